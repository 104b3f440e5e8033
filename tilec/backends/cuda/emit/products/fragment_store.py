"""A fragment of sums to a shared tile: by stmatrix, or by pairs in an order without bank conflicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragment_stores import FragmentStore, Step, fragment_store
from tilec.backends.cuda.device.exchange import ALL_LANES, warp_sync
from tilec.backends.cuda.device.floats import pack
from tilec.backends.cuda.device.matrices import store_matrices
from tilec.backends.cuda.device.moves import bits, move
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.products.lane_digits import thread_digit
from tilec.backends.cuda.emit.statements import call
from tilec.backends.cuda.limits import has_tma
from tilec.ir.exprs import int32
from tilec.ir.layout_algebra import element_at, extent_of, terms
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.emission.statements import sequence

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.nodes import ThreadLoop


def stored_fragment(stmt: ThreadLoop, ctx: DeviceContext) -> tirx.Stmt | None:
    """The code of a loop that stores a fragment to a shared tile; None for other loops."""
    layouts = {buffer: fragment.layout for buffer, fragment in ctx.fragments.items()}
    tiles = {item.buffer for item in accesses(stmt.body) if item.buffer.scope() == "shared.dyn"}
    layouts |= {tile: layout for tile in tiles if (layout := ctx.storage(tile).layout) is not None}
    plan = fragment_store(stmt, layouts)
    if plan is None or extent_of(stmt.layout, "warp") != ctx.warps:
        return None
    if not plan.matrices:
        ctx.take(stmt, "vectors", "vectors of 8 bytes")
        return sequence(list(_pairs(stmt, plan, ctx)))
    if not has_tma(ctx.target):
        return None
    ctx.take(stmt, "vectors", "stmatrix")
    return sequence(list(_matrices(stmt, plan, ctx)))


def _matrices(stmt: ThreadLoop, plan: FragmentStore, ctx: DeviceContext) -> Iterator[tirx.Stmt]:
    """Lane 8 m + r names row r of matrix m, whose first element lane 4 r has, or of a turned one lane r / 2.
    Lanes of a warp wait for each other before and behind, as others may read what a lane has."""
    lane = ctx.lane
    assert lane is not None
    row, matrix = tirx.truncmod(lane, int32(8)), tirx.truncdiv(lane, int32(8))
    bits_of = [(2, tirx.truncmod(matrix, int32(2))), (4, tirx.truncdiv(matrix, int32(2)))]
    first = row * int32(4)
    if plan.turned:
        first, bits_of = tirx.truncdiv(row, int32(2)), [(1, tirx.truncmod(row, int32(2))), *bits_of]
    yield call(warp_sync(ALL_LANES).call())
    place = _Place(stmt, plan, first, tuple(bits_of), ctx)
    yield from place.binds
    data = ctx.fragments[plan.fragment].data
    store = store_matrices(plan.turned)
    for number, step in enumerate(plan.steps):
        firsts = range(8 * number, 8 * number + 8, 2)
        words = [_word(data, first, str(plan.store.buffer.dtype)) for first in firsts]
        yield call(store.call(place.data.ptr_to([place.at(step)]), *words))
    yield call(warp_sync(ALL_LANES).call())


def _word(data: Var, first: int, dtype: str) -> Expr:
    """Two neighbours of a fragment as 16 bits each."""
    if str(data.dtype) != "float32":
        return bits(4).call(data.ptr_to([int32(first)]))
    return pack(dtype).call(*(tirx.BufferLoad(data, [int32(first + half)]) for half in range(2)))


def _pairs(stmt: ThreadLoop, plan: FragmentStore, ctx: DeviceContext) -> Iterator[tirx.Stmt]:
    """Each lane's pairs, two of which some lanes exchange."""
    lane, data = ctx.lane, ctx.fragments[plan.fragment].data
    assert lane is not None
    exchanges: Expr = int32(0)
    if plan.lane_bit:
        exchanges = tirx.truncmod(tirx.truncdiv(lane, int32(plan.lane_bit)), int32(2))
    place = _Place(stmt, plan, lane, ((2 * plan.pair_bit, exchanges),) if plan.lane_bit else (), ctx)
    yield from place.binds
    for pair, step in enumerate(plan.steps):
        tmp = tirx.decl_buffer((2,), str(data.dtype), name=ctx.fresh("pair", "int32").name, scope="local")
        yield tirx.AllocBuffer(tmp)
        for half in range(2):
            own, other = (
                tirx.BufferLoad(data, [int32(2 * each + half)]) for each in (pair, pair ^ plan.pair_bit)
            )
            value = tirx.Select(tirx.NE(exchanges, int32(0)), other, own) if plan.lane_bit else own
            yield tirx.BufferStore(tmp, value, [int32(half)])
        at = tirx.Cast("int64", tirx.shift_right(place.at(step), int32(1)))
        start = place.data.ptr_to([int32(0)])
        yield call(move(8).call(start, at, tmp.ptr_to([int32(0)]), tirx.const(0, "int64")))


class _Place:
    """Where this thread's first access is, as ``lane`` has it, beyond registers times what ``more`` says of
    each; ``binds`` define it."""

    def __init__(
        self,
        stmt: ThreadLoop,
        plan: FragmentStore,
        lane: Expr,
        more: tuple[tuple[int, Expr], ...],
        ctx: DeviceContext,
    ) -> None:
        storage, lead = ctx.storage(plan.store.buffer), plan.store.indices[:-2]
        indices = [self._index(stmt, axis, lane, more, ctx) for axis in range(2)]
        self.data = storage.data
        self._lead = storage.offset([*map(ctx.value, lead), int32(0), int32(0)]) if lead else int32(0)
        self._first = ctx.fresh("first", "int32")
        first = storage.offset([*(int32(0) for _ in lead), *indices])
        self.binds = [tirx.Bind(self._first, first)]

    def _index(
        self, stmt: ThreadLoop, axis: int, lane: Expr, more: tuple[tuple[int, Expr], ...], ctx: DeviceContext
    ) -> Expr:
        total: Expr = int32(0)
        before, ctx.lane = ctx.lane, lane
        for term in terms(stmt.layout, axis):
            if term.space != "reg":
                digit = thread_digit(term.space, term.stride, term.size, ctx)
                total = total + digit * int32(term.weight)
        ctx.lane = before
        for register, times in more:
            away = element_at(stmt.layout, {"lane": 0, "warp": 0, "group": 0, "reg": register})[axis]
            total = total + times * int32(away)
        return total

    def at(self, step: Step) -> Expr:
        """The element at which an access begins."""
        place: Expr = self._first
        if step.flip:
            place = tirx.bitwise_xor(place, int32(step.flip))
        return self._lead + (place + int32(step.far) if step.far else place)
