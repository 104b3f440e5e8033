"""Whether the statements of a launch, one after the other, ever wait for what comes later.

Runs the scalar code of one block for several sizes, with an entry for each thread, and counts arrivals; what
it cannot know because it is data, it assumes the one way and then the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.errors import UnsupportedError
from tilec.ir.exprs import int_value, transform
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.interp.expressions import Compiler, State
from tilec.ir.interp.values import numpy_dtype
from tilec.ir.nodes import (
    LOOPS,
    Alloc,
    Bind,
    Block,
    Break,
    Continue,
    For,
    If,
    Kernel,
    Launch,
    Parallel,
    Pipelined,
    ScalarParam,
    Stmt,
    Store,
    While,
    children,
    walk,
)
from tilec.ir.nodes.barriers import AllocBarrier, Arrive, Group, WaitPhase
from tilec.ir.text.expr_printer import format_expr

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Values of run-time sizes that are tried; trips of a loop whose length is data.
_SIZES = (1, 130, 515)
_TRIPS = (0, 1, 2, 7)
#: Trips after which the phases of a loop have long come round.
_MOST = 96
_SCALARS = ("local.var",)


class Blocked(Exception):
    """``stmt`` waits for a phase that does not end before it."""

    def __init__(self, stmt: Stmt, why: str) -> None:
        super().__init__(why)
        self.stmt, self.why = stmt, why


@dataclass(frozen=True)
class _Assumed:
    """One choice of what is not known: the run-time sizes, the index of the block, the trips of loops and the
    truth of conditions that are data."""

    size: int
    block: int
    trips: int
    holds: bool


def check_phases(launch: Launch, kernel: Kernel) -> None:
    """`Blocked` where a statement waits for a later one, or where that cannot be told."""
    for size in _SIZES:
        for block, holds in ((0, True), (1, False)):
            for trips in _TRIPS:
                run = _Run(launch, kernel, _Assumed(size, block, trips, holds))
                run.block(launch.body, run.everyone)
                if not run.assumed:
                    break


class _Run:
    """One pass over a launch. ``assumed``: something in it was data."""

    def __init__(self, launch: Launch, kernel: Kernel, choice: _Assumed) -> None:
        self.choice, self.assumed = choice, False
        x, y, z = launch.threads
        linear = np.arange(x * y * z, dtype=np.int32)
        self.everyone = np.ones(linear.shape, np.bool_)
        self._state, self._compile = State(), Compiler()
        self._scalars: dict[Var, Var] = {}
        self._phases: dict[tuple[Var, int], list[int]] = {}
        self._counts: dict[Var, tuple[int, ...]] = {}
        for dim in kernel.dims:
            if dim.var is not None:
                self._set(dim.var, max(dim.guard.min or 0, -(-choice.size // dim.guard.div) * dim.guard.div))
        for param in kernel.params:
            if isinstance(param, ScalarParam) and str(param.var.ty.dtype).startswith("int"):
                self._set(param.var, choice.size)
        for var in launch.block_vars:
            self._set(var, choice.block)
        for var, value in zip(
            launch.thread_vars, (linear % x, linear // x % y, linear // (x * y)), strict=False
        ):
            self._set(var, value)

    # ---- values ----

    def _set(self, var: Var, value: Any) -> None:
        kind = numpy_dtype(str(var.ty.dtype))
        self._state.scalars[self._compile.number(var)] = np.asarray(value).astype(kind)[()]

    def _forget(self, var: Var) -> None:
        self._state.scalars.pop(self._compile.number(var), None)

    def _value(self, expr: Expr) -> Any:
        """The value of an expression, one for each thread or for all; None where it is data."""
        plain = transform(expr, self._scalar)
        known = self._state.scalars
        for node in walk_expr(plain):
            if isinstance(node, TensorLoad):
                return None
            if isinstance(node, Var) and self._compile.number(node) not in known:
                return None
        try:
            return self._compile(plain)(self._state)
        except UnsupportedError:
            return None

    def _scalar(self, node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad) and node.source in self._scalars:
            return self._scalars[node.source]
        return None

    def _integer(self, expr: Expr, mask: np.ndarray, stmt: Stmt) -> int:
        """An integer that the threads of ``mask`` agree on."""
        value = self._value(expr)
        if value is None:
            raise Blocked(stmt, f"{format_expr(expr)} depends on data")
        own = np.broadcast_to(value, mask.shape)[mask]
        if (own != own[0]).any():
            raise Blocked(stmt, f"{format_expr(expr)} differs from thread to thread")
        return int(own[0])

    # ---- statements ----

    def block(self, block: Block, mask: np.ndarray) -> None:
        """The statements of a block, for the threads of ``mask``."""
        for stmt in block:
            if mask.any():
                self._stmt(stmt, mask)

    def _stmt(self, stmt: Stmt, mask: np.ndarray) -> None:
        if isinstance(stmt, Bind):
            value = self._value(stmt.value)
            self._forget(stmt.var) if value is None else self._set(stmt.var, value)
        elif isinstance(stmt, Alloc):
            self._alloc(stmt)
        elif isinstance(stmt, Store):
            self._store(stmt, mask)
        elif isinstance(stmt, AllocBarrier):
            self._counts[stmt.buffer] = stmt.counts
        elif isinstance(stmt, Arrive):
            self._arrive(stmt, mask)
        elif isinstance(stmt, WaitPhase):
            self._wait(stmt, mask)
        elif isinstance(stmt, Group):
            inside = np.zeros_like(mask)
            inside[stmt.first : stmt.first + stmt.count] = True
            self.block(stmt.body, mask & inside)
        elif isinstance(stmt, If):
            self._branch(stmt, mask)
        elif isinstance(stmt, LOOPS) and _matters((stmt,)):
            self._loop(stmt, mask)

    def _alloc(self, stmt: Alloc) -> None:
        if stmt.buffer.scope() not in _SCALARS or not str(stmt.buffer.dtype).lstrip("u").startswith(
            ("int", "bool")
        ):
            return
        var = self._scalars.setdefault(stmt.buffer, tirx.Var(str(stmt.buffer.name), str(stmt.buffer.dtype)))
        value = 0 if stmt.init is None else self._value(stmt.init)
        self._forget(var) if value is None else self._set(var, value)

    def _store(self, stmt: Store, mask: np.ndarray) -> None:
        var = self._scalars.get(stmt.buffer)
        if var is None:
            return
        value, old = self._value(stmt.value), self._value(var)
        if value is None or (old is None and not mask.all()):
            self._forget(var)
        else:
            self._set(var, value if mask.all() else np.where(mask, value, old))

    def _branch(self, stmt: If, mask: np.ndarray) -> None:
        cond = self._value(stmt.cond)
        if cond is None:
            if not any(map(_matters, children(stmt))):
                return
            self.assumed, cond = True, self.choice.holds
        taken = np.broadcast_to(cond, mask.shape).astype(bool)
        self.block(stmt.then, mask & taken)
        self.block(stmt.orelse, mask & ~taken)

    def _loop(self, stmt: For | Pipelined | While, mask: np.ndarray) -> None:
        if isinstance(stmt, While) or any(isinstance(inner, (Break, Continue)) for inner in walk(stmt.body)):
            waits = next((inner for inner in walk(stmt.body) if isinstance(inner, (WaitPhase, Arrive))), None)
            if waits is not None:
                raise Blocked(waits, "its loop has no number of trips that is known before")
            for inner in walk(stmt.body):
                if isinstance(inner, Store) and inner.buffer in self._scalars:
                    self._forget(self._scalars[inner.buffer])
            return
        step = int_value(stmt.step) if isinstance(stmt, For) else 1
        start, stop = self._value(stmt.start), self._value(stmt.stop)
        if start is None or stop is None or step is None or np.ndim(start) or np.ndim(stop):
            self.assumed = True
            start, step = (0 if start is None or np.ndim(start) else start), step or 1
            stop = start + step * self.choice.trips
        for value in range(int(start), int(stop), step)[:_MOST]:
            self._set(stmt.var, value)
            self.block(stmt.body, mask)

    # ---- barriers ----

    def _place(self, stmt: Arrive | WaitPhase, mask: np.ndarray) -> list[int]:
        """The phase under way of a barrier and the arrivals that it still waits for."""
        number = self._integer(stmt.index, mask, stmt)
        counts = self._counts[stmt.barrier]
        if not 0 <= number < len(counts):
            raise Blocked(stmt, f"{stmt.barrier.name}[{number}] does not exist")
        return self._phases.setdefault((stmt.barrier, number), [0, counts[number]])

    def _arrive(self, stmt: Arrive, mask: np.ndarray) -> None:
        if stmt.block is not None:
            raise Blocked(stmt, "blocks of a cluster wait for each other")
        state = self._place(stmt, mask)
        state[1] -= int(mask.sum())
        if state[1] < 0:
            raise Blocked(stmt, f"{stmt.barrier.name} gets more arrivals than a phase of it takes")
        if state[1] == 0:
            number = self._integer(stmt.index, mask, stmt)
            state[:] = [state[0] + 1, self._counts[stmt.barrier][number]]

    def _wait(self, stmt: WaitPhase, mask: np.ndarray) -> None:
        parity = self._integer(stmt.parity, mask, stmt)
        phase, missing = self._place(stmt, mask)
        if phase % 2 == parity:
            late = f"{missing} arrivals at {stmt.barrier.name} that it waits for come behind it"
            raise Blocked(stmt, f"{late} in program order")


def _matters(block: Block) -> bool:
    """Whether a block may change what barriers or scalars hold."""
    kinds = (Arrive, WaitPhase, AllocBarrier, Store, Alloc)
    return any(isinstance(stmt, kinds) for stmt in walk(block) if not isinstance(stmt, Parallel))
