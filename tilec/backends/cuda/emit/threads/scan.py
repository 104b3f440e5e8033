"""BlockScan: each thread's run of neighbours first, then lanes by shuffles, then warps through shared memory.

A line is cut into *runs* of neighbours in one thread, *pieces* of one run from each lane, and the pieces of
all warps; a thread has a run in every ``warps``-th piece. Runs, lanes and pieces count backwards where the
scan does.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.device.exchange import from_lane
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.products.lane_digits import thread_digit
from tilec.backends.cuda.emit.statements import block_barrier, emit
from tilec.backends.cuda.nodes import BlockScan
from tilec.ir.layout_algebra import Term, terms
from tilec.lowering.analysis.accumulations import identity
from tilec.lowering.emission.statements import sequence

if TYPE_CHECKING:
    from tvm.ir import Expr


@emit.register(BlockScan)
def _emit_scan(stmt: BlockScan, ctx: DeviceContext) -> tirx.Stmt:
    return _Scan(stmt, ctx).emit()


class _Scan:
    """The code of one scan. ``lines`` are the first registers of the lines that a thread has parts of."""

    def __init__(self, stmt: BlockScan, ctx: DeviceContext) -> None:
        self.stmt, self.ctx = stmt, ctx
        fragment = ctx.fragments[stmt.tile.buffer]
        self.data, self.dtype = fragment.data, fragment.dtype
        layout = fragment.layout
        self.axis = len(layout.digits) - 1
        own = terms(layout, self.axis)
        self.lanes = next((term for term in own if term.space == "lane"), None)
        self.warps = next((term for term in own if term.space == "warp"), None)
        first = [term for term in own if term.space == "reg" and term.weight == 1]
        self.run = first[0] if first else Term(1, 1, 1, "reg")
        rest = [term for term in own if term.space == "reg" and term.weight > 1]
        self.pieces = rest[0] if rest else Term(1, 1, 1, "reg")
        others = [term for axis in range(self.axis) for term in terms(layout, axis)]
        steps = [[d * t.stride for d in range(t.size)] for t in others if t.space == "reg"]
        self.lines = [sum(parts) for parts in itertools.product(*steps)]
        self.places = [term for term in others if term.space != "reg"]
        shape = (len(self.lines) * self.pieces.size,)
        self.sums, self.before = (
            tirx.decl_buffer(shape, self.dtype, name=ctx.fresh(name, "int32").name, scope="local")
            for name in ("sums", "before")
        )

    def emit(self) -> tirx.Stmt:
        """All steps."""
        parts: list[tirx.Stmt] = [tirx.AllocBuffer(self.sums), tirx.AllocBuffer(self.before)]
        for line, piece in self._parts():
            parts += [*self._scan_run(line, piece), *self._scan_lanes(line, piece)]
        if self.stmt.scratch is not None:
            parts += self._share()
        for line in range(len(self.lines)):
            parts += self._carry(line)
        return sequence(parts)

    def _parts(self) -> itertools.product[tuple[int, int]]:
        return itertools.product(range(len(self.lines)), range(self.pieces.size))

    def _order(self, count: int) -> list[int]:
        """0 to ``count`` - 1 in the direction of the scan."""
        return list(range(count))[:: -1 if self.stmt.reverse else 1]

    def _combine(self, left: Expr, right: Expr) -> Expr:
        return left + right if self.stmt.kind == "sum" else tirx.Max(left, right)

    def _nothing(self) -> Expr:
        return identity(self.stmt.kind, self.dtype)

    # ---- registers ----

    def _register(self, line: int, piece: int, element: int) -> Expr:
        place = self.lines[line] + piece * self.pieces.stride + element * self.run.stride
        return tirx.const(place, "int32")

    def _value(self, line: int, piece: int, element: int) -> Expr:
        return tirx.BufferLoad(self.data, [self._register(line, piece, element)])

    def _slot(self, line: int, piece: int) -> list[Expr]:
        return [tirx.const(line * self.pieces.size + piece, "int32")]

    def _scan_run(self, line: int, piece: int) -> list[tirx.Stmt]:
        order = self._order(self.run.size)
        made: list[tirx.Stmt] = []
        for last, element in itertools.pairwise(order):
            value = self._combine(self._value(line, piece, last), self._value(line, piece, element))
            made.append(tirx.BufferStore(self.data, value, [self._register(line, piece, element)]))
        total = tirx.BufferStore(self.sums, self._value(line, piece, order[-1]), self._slot(line, piece))
        return [*made, total]

    # ---- lanes ----

    def _digit(self, term: Term) -> Expr:
        """The thread's place along a term, in the direction of the scan."""
        value = thread_digit(term.space, term.stride, term.size, self.ctx)
        return tirx.const(term.size - 1, "int32") - value if self.stmt.reverse else value

    def _scan_lanes(self, line: int, piece: int) -> list[tirx.Stmt]:
        """``sums``: up to and with this lane's run. ``before``: without it."""
        slot = self._slot(line, piece)
        so_far = tirx.BufferLoad(self.sums, slot)
        if self.lanes is None:
            return [tirx.BufferStore(self.before, self._nothing(), slot)]
        digit = self._digit(self.lanes)
        made: list[tirx.Stmt] = []
        step = 1
        while step < self.lanes.size:
            other, earlier = self._from_lane_before(so_far, step)
            inside = tirx.GE(digit, tirx.const(step, "int32"))
            value = tirx.Select(inside, self._combine(earlier, so_far), so_far)
            made += [other, tirx.BufferStore(self.sums, value, slot)]
            step *= 2
        other, earlier = self._from_lane_before(so_far, 1)
        inside = tirx.GE(digit, tirx.const(1, "int32"))
        value = tirx.Select(inside, earlier, self._nothing())
        return [*made, other, tirx.BufferStore(self.before, value, slot)]

    def _from_lane_before(self, value: Expr, distance: int) -> tuple[tirx.Stmt, Expr]:
        """A name for the value of a lane before this one; all lanes shuffle, whether they use it or not."""
        assert self.lanes is not None
        kind = "down" if self.stmt.reverse else "up"
        earlier = self.ctx.fresh("earlier", self.dtype)
        operand = tirx.const(distance * self.lanes.stride, "int32")
        return tirx.Bind(earlier, self._shuffle(kind, value, operand)), earlier

    def _shuffle(self, kind: str, value: Expr, operand: Expr) -> Expr:
        return from_lane(kind, self.dtype).call(value, operand)

    # ---- pieces ----

    def _share(self) -> list[tirx.Stmt]:
        """The last lane of a piece writes its sum, where other warps read it."""
        ctx, made = self.ctx, []
        assert self.warps is not None
        storage = ctx.storage(self.stmt.scratch)
        warp = thread_digit("warp", self.warps.stride, self.warps.size, ctx)
        for line, piece in self._parts():
            place = storage.offset(self._scratch_place(line, piece, warp))
            value = tirx.BufferLoad(self.sums, self._slot(line, piece))
            made.append(tirx.BufferStore(storage.data, value, [place]))
        writes = sequence(made)
        if self.lanes is not None:
            last = tirx.EQ(self._digit(self.lanes), tirx.const(self.lanes.size - 1, "int32"))
            writes = tirx.IfThenElse(last, writes, None)
        return [writes, block_barrier(self.ctx)]

    def _scratch_place(self, line: int, piece: int, warp: Expr) -> list[Expr]:
        """Piece, warp, line among those of the block."""
        number: Expr = tirx.const(line, "int32")
        count = len(self.lines)
        for term in self.places:
            number = number + thread_digit(term.space, term.stride, term.size, self.ctx) * count
            count *= term.size
        return [tirx.const(piece, "int32"), warp, number]

    def _carry(self, line: int) -> list[tirx.Stmt]:
        """Adds to every run what stands before it."""
        ctx = self.ctx
        carry = tirx.decl_buffer((1,), self.dtype, name=ctx.fresh("carry", "int32").name, scope="local")
        zero = [tirx.const(0, "int32")]
        so_far = tirx.BufferLoad(carry, zero)
        made: list[tirx.Stmt] = [tirx.AllocBuffer(carry), tirx.BufferStore(carry, self._nothing(), zero)]
        for piece in self._order(self.pieces.size):
            slot = self._slot(line, piece)
            before = tirx.BufferLoad(self.before, slot)
            for is_own, total in self._totals(line, piece):
                start = self._combine(so_far, before)
                kept = start if is_own is None else tirx.Select(is_own, start, before)
                made.append(tirx.BufferStore(self.before, kept, slot))
                made.append(tirx.BufferStore(carry, self._combine(so_far, total), zero))
            for element in range(self.run.size):
                value = self._combine(before, self._value(line, piece, element))
                made.append(tirx.BufferStore(self.data, value, [self._register(line, piece, element)]))
        return made

    def _totals(self, line: int, piece: int) -> list[tuple[Expr | None, Expr]]:
        """The sums of one piece of each warp, in order, with the test that it is this warp's own."""
        ctx = self.ctx
        if self.stmt.scratch is None:
            total = tirx.BufferLoad(self.sums, self._slot(line, piece))
            return [(None, self._last_lane(total))]
        assert self.warps is not None
        storage = ctx.storage(self.stmt.scratch)
        own = thread_digit("warp", self.warps.stride, self.warps.size, ctx)
        found = []
        for warp in self._order(self.warps.size):
            number = tirx.const(warp, "int32")
            place = storage.offset(self._scratch_place(line, piece, number))
            found.append((tirx.EQ(own, number), tirx.BufferLoad(storage.data, [place])))
        return found

    def _last_lane(self, value: Expr) -> Expr:
        """The value that the last lane of a piece has."""
        if self.lanes is None or self.pieces.size == 1:
            return value
        stride, size = self.lanes.stride, self.lanes.size
        own = thread_digit("lane", stride, size, self.ctx) * tirx.const(stride, "int32")
        end = 0 if self.stmt.reverse else (size - 1) * stride
        assert self.ctx.lane is not None
        return self._shuffle("", value, self.ctx.lane - own + tirx.const(end, "int32"))
