"""What a pass is, and the rewriting of blocks that passes share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.ir.nodes import Block, Kernel, Launch, Stmt, children, with_children
from tilec.ir.text.forms import small

if TYPE_CHECKING:
    from tilec.targets import Target

#: Maps one block whose inner blocks are already rewritten to its replacement.
BlockRewrite = Callable[[Block], Sequence[Stmt]]


@dataclass(frozen=True)
class Pass(ABC):
    """A step from tile IR to tile IR. Its fields are its options; one that has some is a frozen dataclass.

    ``apply`` is pure: it returns a new kernel (or the same one) and never changes what it is given."""

    @property
    def name(self) -> str:
        """What `explain` calls the form after this pass: the name of its class in small letters."""
        return small(type(self))

    @abstractmethod
    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The rewritten kernel."""


class LaunchPass(Pass):
    """A pass that makes of every launch what this launch alone tells."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with every launch rewritten that no strategy has taken."""
        return rewrite_launches(kernel, self.launch)

    @abstractmethod
    def launch(self, launch: Launch) -> Launch:
        """The rewritten launch."""


class BlockPass(LaunchPass):
    """A pass that makes of every block what this block alone tells, innermost first."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with every block rewritten."""
        return replace(launch, body=rewrite_blocks(launch.body, self.block))

    @abstractmethod
    def block(self, block: Block) -> Sequence[Stmt]:
        """The replacement of a block whose inner blocks are already rewritten."""


def rewrite_blocks(block: Block, rewrite: BlockRewrite) -> Block:
    """``block`` with ``rewrite`` applied to every block inside, innermost first, and then to itself."""
    return tuple(rewrite(tuple(_rewrite_inside(stmt, rewrite) for stmt in block)))


def replaced(block: Block, made: Mapping[Stmt, Block]) -> Block:
    """``block`` with other statements in the place of some, wherever they stand in it; what is inside of such
    a one goes with it."""

    def kept(stmt: Stmt) -> Stmt:
        return _over_blocks(stmt, lambda inner: replaced(inner, made))

    return tuple(new for stmt in block for new in (made[stmt] if stmt in made else (kept(stmt),)))


def _rewrite_inside(stmt: Stmt, rewrite: BlockRewrite) -> Stmt:
    return _over_blocks(stmt, lambda block: rewrite_blocks(block, rewrite))


def _over_blocks(stmt: Stmt, rewrite: Callable[[Block], Block]) -> Stmt:
    """The statement with its blocks rewritten: itself where they are the same."""
    inner = children(stmt)
    blocks = tuple(map(rewrite, inner))
    if all(_same(old, new) for old, new in zip(inner, blocks, strict=True)):
        return stmt
    return with_children(stmt, blocks)


def _same(old: Block, new: Block) -> bool:
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))


def rewrite_launches(kernel: Kernel, rewrite: Callable[[Launch], Launch]) -> Kernel:
    """``kernel`` with every launch replaced by ``rewrite(launch)``, but those that a strategy has taken: its
    own passes rewrite them."""
    body = (
        rewrite(stmt) if isinstance(stmt, Launch) and stmt.strategy is None else stmt for stmt in kernel.body
    )
    return replace(kernel, body=tuple(body))


def rewrite_launch_blocks(kernel: Kernel, rewrite: BlockRewrite) -> Kernel:
    """``kernel`` with ``rewrite`` applied to every block of every launch, innermost first."""
    return rewrite_launches(kernel, lambda launch: replace(launch, body=rewrite_blocks(launch.body, rewrite)))
