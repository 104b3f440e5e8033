"""What a strategy is: one way to give the warps of a launch roles.

Which strategy takes a launch is decided once, by `AssignRoles`: the first of an ordered tuple
(`tilec.backends.cuda.strategies`) whose `match` finds a plan is written down as ``Launch.strategy``. From
there on
- passes for all GPUs leave the launch alone (`tilec.lowering.passes.base.rewrite_launches`);
- the strategy's own passes rewrite the statement of roles that ends its body (`rewrite_roles`);
- emission asks the strategy for the code (`Strategy.lower`).

Another strategy is one folder beside `matmul`, `attention` and `packed_weights`, and one entry of the tuple:
    nodes.py       its statement of roles, and what stands in it
    match/         which launches it takes: their parts, or Unfit with what to change
    assign/        those parts as roles: the plan
    passes/        its own passes, one a file
    emit/          their code, by the short forms of `emit.build`; its kernel, in the frame of `emit.entry`
    strategy.py    all this as one object, and what `explain` says of its statements
A file stands for a folder where one is enough.
It imports this folder and what all GPUs share, and no other strategy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

from tilec.backends.cuda.analysis.layouts.asked_layouts import asked
from tilec.backends.cuda.analysis.pipelines.asked_hints import hinted
from tilec.backends.cuda.warp_roles.plain_groups import without_groups
from tilec.backends.cuda.warp_roles.unfit import Unfit, need, without_refusals, without_roles
from tilec.errors import CompileError, UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.analysis.aliases import named
from tilec.ir.nodes import Block, Kernel, Launch, Stmt
from tilec.ir.options import NO_ROLES
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.backends.cuda.launch import LoweredCudaLaunch
    from tilec.targets import Target

R = TypeVar("R", bound=Stmt)


@dataclass(frozen=True, eq=False)
class Plan:
    """A launch whose body ends with a statement of roles, and the statements that have to run before it."""

    launch: Launch
    before: Block = ()


class Strategy(ir.Strategy, ABC):
    """One way to give warps roles. ``roles``: the statement that ends the bodies of its launches; ``passes``:
    from there to the form that `lower` reads."""

    roles: ClassVar[type[Stmt]]
    passes: ClassVar[tuple[Pass, ...]]

    @abstractmethod
    def match(self, kernel: Kernel, launch: Launch, target: Target) -> Plan | None:
        """How ``launch`` is carried out; None for one of another kind. Unfit for one of this kind that does
        not meet a condition, CompileError for one whose config asks for more than there is."""

    @abstractmethod
    def lower(self, kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredCudaLaunch:
        """The code of a launch behind all passes; ``marks`` as in
        `tilec.backends.cuda.emit.context.DeviceContext`."""


@dataclass(frozen=True)
class AssignRoles(Pass):
    """In: launches of tile IR. Out: each that a strategy takes has its roles, others have the reason among
    their roads, that of the first strategy which gives one. Groups of warps that an author has written
    down are taken as the loops that they are made of, if a strategy takes those; so are ``idioms``, rules
    that rewrite usual ways of writing a launch: where no strategy takes the outcome either, the launch stays
    as it was written."""

    strategies: tuple[Strategy, ...]
    idioms: tuple[Pass, ...] = ()

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with roles where they pay and no pass config is against them."""
        against = kernel.option(NO_ROLES)
        if against is not None:
            forbidden = Unfit(f"the pass config {against} is set", remedy=f"leave {against} out")
            return rewrite_launches(kernel, lambda launch: without_roles(launch, forbidden))
        body: list[Stmt] = []
        for stmt in kernel.body:
            body += self._assigned(kernel, stmt, target) if isinstance(stmt, Launch) else (stmt,)
        return replace(kernel, body=tuple(body))

    def _assigned(self, kernel: Kernel, launch: Launch, target: Target) -> Block:
        plain = without_groups(kernel, launch)
        for form in () if plain is None else (plain, self._usual(kernel, plain, target)):
            with suppress(Unfit, CompileError, UnsupportedError):
                return self._taken(kernel, form, target)
        try:
            return self._taken(kernel, launch, target)
        except Unfit as unfit:
            return self._taken_as_usual(kernel, launch, target, unfit)

    def _taken_as_usual(self, kernel: Kernel, launch: Launch, target: Target, unfit: Unfit) -> Block:
        """A launch that no strategy takes as it is written, ``unfit`` says why: with roles in its usual form,
        or without roles and with the reason that this form leaves."""
        usual = self._usual(kernel, launch, target)
        if usual.notes == launch.notes:
            return (without_roles(launch, unfit),)
        try:
            return self._taken(kernel, usual, target)
        except Unfit as left:
            return (without_roles(launch, left),)
        except CompileError:
            return (without_roles(launch, unfit),)

    def _usual(self, kernel: Kernel, launch: Launch, target: Target) -> Launch:
        """``launch`` as the rules rewrite it, each of which says in a note what it did."""
        made = replace(kernel, body=(*(stmt for stmt in kernel.body if not isinstance(stmt, Launch)), launch))
        for step in self.idioms:
            made = step.apply(made, target)
        return made.launches[0]

    def _taken(self, kernel: Kernel, launch: Launch, target: Target) -> Block:
        """The launch with the roles of the first strategy that takes it; Unfit with the first reason where
        none does."""
        check_hints(launch)
        sparse = next((stmt for stmt in ir.walk(launch.body) if isinstance(stmt, ir.SparseGemm)), None)
        need(sparse is None, "none has sparse products", sparse)
        reasons = []
        for strategy in self.strategies:
            try:
                plan = strategy.match(kernel, launch, target)
            except Unfit as unfit:
                reasons.append(unfit)
                continue
            if plan is not None:
                roads, asking = without_refusals(plan.launch.roads), (*asked(launch), *hinted(launch))
                taken = replace(plan.launch, roads=roads, strategy=strategy, asked=asking)
                return (*plan.before, taken)
        raise next(iter(reasons), Unfit("it is of no kind that gets roles"))


def check_hints(launch: Launch) -> None:
    """Unfit for a launch with a load that its author keeps from TMA."""
    for stmt in ir.walk(launch.body):
        if isinstance(stmt, ir.Copy) and stmt.hints.avoids_tma and stmt.dst.buffer.scope() == "shared.dyn":
            key = "disable_tma" if stmt.hints.disable_tma else "prefer_instruction"
            raise Unfit(f"{key} keeps a load from TMA", stmt, f"leave {key} out")


def roles_of(launch: Launch, kind: type[R]) -> R:
    """The statement of roles that ends the body of a launch which a strategy has taken."""
    roles = launch.body[-1]
    assert isinstance(roles, kind), f"{launch.strategy} has no {kind.__name__}"
    return roles


def rewrite_roles(kernel: Kernel, kind: type[R], rewrite: Callable[[Launch, R], Launch]) -> Kernel:
    """``kernel`` with every launch of the strategy of ``kind`` rewritten."""

    def rewritten(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Launch) or not isinstance(stmt.strategy, Strategy):
            return stmt
        return rewrite(stmt, roles_of(stmt, kind)) if stmt.strategy.roles is kind else stmt

    return replace(kernel, body=tuple(rewritten(stmt) for stmt in kernel.body))


def with_roles(launch: Launch, roles: Stmt) -> Launch:
    """``launch`` with another statement of roles."""
    return replace(launch, body=(*launch.body[:-1], roles))


def check_launch(launch: Launch) -> None:
    """Unfit for a launch whose schedule asks for what warp roles cannot be: they take all of the registers,
    and their loads run ahead of stores."""
    need(
        not named(launch),
        "its tensors may alias each other",
        remedy="leave out T.annotate_restrict_buffers where no two tensors overlap",
    )
    blocks = launch.schedule.min_blocks_per_sm or 1
    need(
        blocks == 1,
        f"min_blocks_per_sm asks for {blocks} blocks on a multiprocessor, warp roles take all of it",
        remedy="leave min_blocks_per_sm out",
    )
