"""AsyncGather as cp.async instructions: all places first, then all copies.

A place may depend on what is looked up (a page table). cp.async orders memory for the compiler, so a look-up
between two of them would wait for its turn; in front of all their latencies overlap. Pieces whose places lie
a constant distance apart share one address, one look-up and one test of their table's bounds."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.gathers import masked
from tilec.backends.cuda.device.moves import cp_async
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.copies.look_up import gathered_pieces
from tilec.backends.cuda.emit.held import Piece
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.nodes import AsyncGather
from tilec.ir.exprs import all_of, conjuncts, dtype_of, int_value, loads, same, substitute
from tilec.ir.nodes import Store
from tilec.lowering.analysis.conditions import gap
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.statements import guarded, sequence
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr


@emit.register(AsyncGather)
def _emit_gather(stmt: AsyncGather, ctx: DeviceContext) -> tirx.Stmt | None:
    with ctx.scope():
        return _Gather(stmt, ctx).emit()


@dataclass
class _Shared:
    """Values that pieces share: what was computed once, with the name that it has."""

    looked_up: list[tuple[TensorLoad, Expr]] = field(default_factory=list)
    starts: list[tuple[tuple[Expr, ...], Expr]] = field(default_factory=list)
    gaps: list[tuple[Expr, Expr]] = field(default_factory=list)
    targets: list[tuple[Expr, Expr]] = field(default_factory=list)


class _Gather:
    """The code of one gather."""

    def __init__(self, stmt: AsyncGather, ctx: DeviceContext) -> None:
        self.stmt, self.ctx = stmt, ctx
        (store,) = stmt.body
        assert isinstance(store, Store)
        self.store = store
        self.cond, source = masked(store.value)
        assert isinstance(source, TensorLoad)
        self.source = source
        self.size = stmt.width * element_bytes(str(store.buffer.dtype))
        self.shared = _Shared()
        self.code: list[tirx.Stmt] = []

    def emit(self) -> tirx.Stmt | None:
        """The places of all pieces, then their copies."""
        copies = [self._copy(piece) for piece in self._pieces()]
        return sequence([*self.code, *copies])

    def _pieces(self) -> list[Piece]:
        """What this thread moves."""
        stmt = self.stmt
        if stmt.registers is not None:
            return self.ctx.looked_up[stmt.registers].over(stmt.vars)
        size = self.size // stmt.width
        binds, pieces = gathered_pieces(stmt.vars, stmt.extents, stmt.width, size, self.ctx)
        self.code += binds
        return pieces

    def _copy(self, piece: Piece) -> tirx.Stmt:
        """The copy of a piece; what it needs is added to the code in front."""
        ctx = self.ctx
        indices = tuple(ctx.facts.simplify(substitute(index, piece.values)) for index in self.source.indices)
        self._look_up(indices)
        with ctx.hoist_scope(self.shared.looked_up):
            start, count = self._start(indices), self._count(indices, piece)
        origin, target = ctx.storage(self.source.source), ctx.storage(self.store.buffer)
        to = target.data.ptr_to([self._target(piece)])
        copy = call(cp_async(self.size, self.stmt.evict).call(to, origin.data.ptr_to([start]), count))
        return guarded(copy, [ctx.value(guard) for guard in piece.guards])

    # ---- what pieces share ----

    def _named(self, name: str, value: Expr) -> Expr:
        """A name for a value, defined in front of all copies."""
        var = self.ctx.fresh(name, dtype_of(value))
        self.code.append(tirx.Bind(var, value))
        return var

    def _look_up(self, indices: Sequence[Expr]) -> None:
        """Names for the elements that indices look up: those that are read at computed places."""
        known = self.shared.looked_up
        for load in (load for index in indices for load in loads(index)):
            nested = any(True for index in load.indices for _ in loads(index))
            if not nested and not any(same(load, other) for other, _ in known):
                known.append((load, self._named(f"{load.source.name}_at", self.ctx.load(load))))

    def _start(self, indices: tuple[Expr, ...]) -> Expr:
        """The element of the source, as a distance from that of an earlier piece where it is constant."""
        storage = self.ctx.storage(self.source.source)
        for earlier, name in self.shared.starts:
            steps = [self._distance(*pair) for pair in zip(earlier, indices, strict=True)]
            if None not in steps:
                apart = [tirx.const(step, storage.index_type) for step in steps]
                return name + storage.offset(apart)
        whole = storage.offset([self.ctx.value(index) for index in indices])
        name = self._named(f"{self.source.source.name}_start", whole)
        self.shared.starts.append((indices, name))
        return name

    def _distance(self, left: Expr, right: Expr) -> int | None:
        return int_value(self.ctx.facts.simplify(right - left))

    def _count(self, indices: tuple[Expr, ...], piece: Piece) -> Expr:
        """The bytes of a piece that exist: all or none."""
        ctx = self.ctx
        full, none = tirx.const(self.size, "int32"), tirx.const(0, "int32")
        own = [] if self.cond is None else list(conjuncts(substitute(self.cond, piece.values)))
        with ctx.facts.remember(all_of(own)) if own else nullcontext():
            conds = open_bounds(self.source.source, indices, ctx)
        if conds is None:
            return none
        tests = [*(part for part in own if ctx.facts.prove(part) is not True), *conds]
        return tirx.Select(all_of([self._test(test) for test in tests]), full, none) if tests else full

    def _test(self, cond: Expr) -> Expr:
        """A comparison as one of a shared difference with a constant."""
        positive = gap(cond)
        if positive is None:
            return self.ctx.value(cond)
        positive = self.ctx.facts.simplify(positive)
        for earlier, name in self.shared.gaps:
            step = self._distance(earlier, positive) if dtype_of(earlier) == dtype_of(positive) else None
            if step is not None:
                return name > tirx.const(-step, dtype_of(name))
        name = self._named("left", self.ctx.value(positive))
        self.shared.gaps.append((positive, name))
        return name > tirx.const(0, dtype_of(name))

    def _target(self, piece: Piece) -> Expr:
        """The element of the tile."""
        ctx = self.ctx
        indices = [ctx.value(ctx.facts.simplify(substitute(i, piece.values))) for i in self.store.indices]
        place = ctx.facts.analyzer.simplify(ctx.storage(self.store.buffer).offset(indices))
        for earlier, name in self.shared.targets:
            step = int_value(ctx.facts.analyzer.simplify(place - earlier))
            if step is not None:
                return name + tirx.const(step, dtype_of(name))
        name = self._named(f"{self.store.buffer.name}_place", place)
        self.shared.targets.append((place, name))
        return name
