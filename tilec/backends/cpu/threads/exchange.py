"""Shuffles, votes and reductions on a CPU, where threads of a block are iterations.

    y = shfl_xor(x, 1)    ->    for t in threads: offered[t] = x;  for t in threads: y = offered[t ^ 1]

Threads offer values in a tile, the block works on it where there is something to compute, threads take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir import nodes as ir
from tilec.ir.exprs import all_of, dtype_of, int_value, substitute
from tilec.ir.nodes.threads import SHUFFLES, WARP, Lane, ThreadReduce
from tilec.lowering.analysis.accumulations import identity

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.thread_grid import ThreadGrid

_COMBINE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "sum": tirx.Add,
    "max": tirx.Max,
    "min": tirx.Min,
    "bitand": tirx.bitwise_and,
    "bitor": tirx.bitwise_or,
}


@dataclass
class Made:
    """``tiles`` of the block; what every thread does ``before`` (all of them) and to offer its value (those
    that come here); what the block does when they meet; what names stand for ``after``, and what threads do
    then."""

    tiles: list[Var] = field(default_factory=list)
    before: list[ir.Stmt] = field(default_factory=list)
    offers: list[ir.Stmt] = field(default_factory=list)
    meeting: list[ir.Stmt] = field(default_factory=list)
    values: dict[Var, Expr] = field(default_factory=dict)
    after: list[ir.Stmt] = field(default_factory=list)


class Exchange:
    """The code of one exchange. ``partly``: some threads may stay away."""

    def __init__(self, grid: ThreadGrid, partly: bool, loc: ir.Loc | None) -> None:
        self._grid, self._partly, self._loc = grid, partly, loc
        self._made = Made()
        self._here: Var | None = None

    def lane(self, stmt: Lane) -> Made:
        """What a `Lane` becomes."""
        self._note_presence(stmt.mask)
        offered = self._offer(stmt.operands[0]) if stmt.operands else None
        if stmt.kind in SHUFFLES:
            result = self._shuffle(stmt, offered)
        elif stmt.kind.startswith("match"):
            result = self._match(stmt, offered)
        elif stmt.kind.startswith("block"):
            result = self._block_vote(stmt, offered)
        else:
            result = self._warp(stmt, offered)
        self._made.values[stmt.var] = result
        return self._made

    def reduce(self, stmt: ThreadReduce) -> Made:
        """What a `ThreadReduce` becomes: a result for every group of threads, which each of them stores."""
        dtype, sizes = dtype_of(stmt.identity), self._grid.extents
        offered = self._tile(dtype, self._grid.count, "offered")
        if self._partly:
            self._made.before.append(self._store(offered, self._grid.number, stmt.identity))
        value = tirx.if_then_else(stmt.cond, stmt.value, stmt.identity)
        self._made.offers.append(self._store(offered, self._grid.number, value))
        kept = [axis for axis in range(3) if sizes[axis] > 1 and axis not in stmt.axes]
        groups = prod(sizes[axis] for axis in kept)
        result = self._tile(dtype, groups, "reduced")
        group, member = tirx.Var("group", "int32"), tirx.Var("member", "int32")
        total, zero = _decl(dtype, 1, "total", "local"), _const(0)
        place = self._spread(group, kept) + self._spread(member, stmt.axes)
        values = {stmt.vars[0]: _load(total, zero), stmt.vars[1]: _load(offered, place)}
        joined = self._store(total, zero, substitute(stmt.combine, values))
        body = (
            ir.Alloc(total, loc=self._loc),
            self._store(total, zero, _load(offered, substitute(place, {member: zero}))),
            self._for(member, 1, prod(sizes[axis] for axis in stmt.axes), (joined,)),
            self._store(result, group, _load(total, zero)),
        )
        self._made.meeting.append(self._each(group, groups, body))
        found = _load(result, self._gathered(kept))
        self._made.after.append(ir.Store(stmt.buffer, stmt.indices, found, loc=stmt.loc))
        return self._made

    def _spread(self, number: Expr, axes: Sequence[int]) -> Expr:
        """The thread whose indices along ``axes``, the first fastest, ``number`` counts; 0 along the
        others."""
        sizes, total = self._grid.extents, _const(0)
        axes = [axis for axis in axes if sizes[axis] > 1]
        for axis in axes:
            index = number if axis == axes[-1] else number % sizes[axis]
            total = total + index * prod(sizes[:axis])
            number = number // sizes[axis]
        return total

    def _gathered(self, axes: Sequence[int]) -> Expr:
        """What a thread counts as along ``axes``: the inverse of `_spread`."""
        total, step = _const(0), 1
        for axis in axes:
            total = total + self._grid.vars[axis] * step
            step *= self._grid.extents[axis]
        return total

    # Parts

    def _note_presence(self, mask: Expr | None) -> None:
        """A tile that says which threads come here, where that may not be all of them."""
        if not self._partly and mask is None:
            return
        self._here = self._tile("bool", self._grid.count, "here")
        number = self._grid.number
        self._made.before.append(self._store(self._here, number, tirx.const(False, "bool")))
        present = tirx.const(True, "bool")
        if mask is not None:
            bit = tirx.shift_right(mask, tirx.Cast("uint32", number % WARP))
            present = tirx.NE(tirx.bitwise_and(bit, tirx.const(1, "uint32")), tirx.const(0, "uint32"))
        self._made.offers.append(self._store(self._here, number, present))

    def _offer(self, value: Expr) -> Var:
        offered = self._tile(dtype_of(value), self._grid.count, "offered")
        self._made.offers.append(self._store(offered, self._grid.number, value))
        return offered

    def _present(self, number: Expr, *more: Expr) -> Expr:
        """Whether thread ``number`` exists and comes here, and what else has to hold."""
        conds = [*more]
        if self._grid.count % WARP:
            conds.append(number < self._grid.count)
        if self._here is not None:
            conds.append(_load(self._here, number))
        return all_of(conds) if conds else tirx.const(True, "bool")

    def _shuffle(self, stmt: Lane, offered: Var | None) -> Expr:
        """Every thread's source, counted in its warp."""
        assert offered is not None
        number = tirx.Var("thread", "int32")
        result = self._tile(dtype_of(stmt.operands[0]), self._grid.count, "received")
        source = self._known_source(stmt, number)
        if source is not None:
            body: tuple[ir.Stmt, ...] = (self._store(result, number, _load(offered, source)),)
        else:
            name = tirx.Var("source", "int32")
            source, inside = self._source(stmt, number, name)
            own, theirs = (_load(offered, place) for place in (number, name))
            value = tirx.if_then_else(self._present(name, *inside), theirs, own)
            body = (ir.Bind(name, source), self._store(result, number, value))
        self._made.meeting.append(self._each(number, self._grid.count, body))
        return _load(result, self._grid.number)

    def _known_source(self, stmt: Lane, number: Var) -> Expr | None:
        """The thread that thread ``number`` asks where that is one of its group, which is there, whatever the
        number is; None where that is to be seen."""
        other = int_value(stmt.operands[1])
        if other is None or self._here is not None or self._grid.count % WARP:
            return None
        if stmt.kind == "shfl":
            return number // stmt.width * stmt.width + other % stmt.width
        return _flipped(number, other) if stmt.kind == "shfl_xor" and 0 <= other < stmt.width else None

    def _source(self, stmt: Lane, number: Var, name: Var) -> tuple[Expr, list[Expr]]:
        """The thread that thread ``number`` asks, and whether that, by ``name``, is one of its group."""
        other = self._wanted(stmt.operands[1], number)
        lane = number % WARP
        group = lane // stmt.width * stmt.width
        source = {
            "shfl": group + other % stmt.width,
            "shfl_xor": tirx.bitwise_xor(lane, other),
            "shfl_up": lane - other,
            "shfl_down": lane + other,
        }[stmt.kind]
        low = _const(0) if stmt.kind == "shfl_xor" else group
        inside = [name >= number - lane + low, name < number - lane + group + stmt.width]
        return number - lane + source, inside

    def _wanted(self, operand: Expr, number: Var) -> Expr:
        """The lane, mask or distance that thread ``number`` asks for."""
        if isinstance(operand, tirx.IntImm):
            return operand
        wanted = self._tile("int32", self._grid.count, "wanted")
        self._made.offers.append(self._store(wanted, self._grid.number, operand))
        return _load(wanted, number)

    def _warp(self, stmt: Lane, offered: Var | None) -> Expr:
        """One result per warp, from a loop over its lanes."""
        kind, dtype = stmt.kind, dtype_of(stmt.var)
        combine = kind.removeprefix("warp_")
        start = identity(combine, dtype) if combine in _COMBINE else tirx.const(int(kind == "all"), dtype)
        number, lane = tirx.Var("thread", "int32"), tirx.Var("lane", "int32")

        def step(old: Expr) -> tuple[Expr, Expr | None]:
            mine = None if offered is None else _load(offered, number)
            if combine in _COMBINE:
                return _COMBINE[combine](old, mine), None
            if kind == "any":
                return tirx.const(1, dtype), mine
            if kind == "all":
                return tirx.const(0, dtype), tirx.Not(mine)
            bit = tirx.shift_left(tirx.const(1, dtype), tirx.Cast(dtype, lane))
            return tirx.bitwise_or(old, bit), mine

        return self._per_warp(dtype, start, number, lane, step)

    def _per_warp(
        self,
        dtype: str,
        start: Expr,
        number: Var,
        lane: Var,
        step: Callable[[Expr], tuple[Expr, Expr | None]],
    ) -> Expr:
        count = -(-self._grid.count // WARP)
        result, total = self._tile(dtype, count, "voted"), _decl(dtype, 1, "total", "local")
        warp, zero = tirx.Var("warp", "int32"), _const(0)
        value, holds = step(_load(total, zero))
        taken = self._where(number, holds, self._store(total, zero, value))
        body = (
            ir.Alloc(total, loc=self._loc),
            self._store(total, zero, start),
            self._for(lane, 0, WARP, (ir.Bind(number, warp * WARP + lane), taken)),
            self._store(result, warp, _load(total, zero)),
        )
        self._made.meeting.append(self._each(warp, count, body))
        return _load(result, self._grid.number // WARP)

    def _match(self, stmt: Lane, offered: Var | None) -> Expr:
        """For every thread the lanes of its warp with the same value."""
        assert offered is not None
        number, lane, other = (tirx.Var(name, "int32") for name in ("thread", "lane", "other"))
        total, zero = _decl("uint32", 2, "total", "local"), _const(0)
        one = tirx.const(1, "uint32")
        bit = tirx.shift_left(one, tirx.Cast("uint32", lane))
        alike = tirx.EQ(_bits(_load(offered, other)), _bits(_load(offered, number)))
        result = self._tile("uint32", self._grid.count, "matched")
        count = [
            self._where(other, cond, self._store(total, place, tirx.bitwise_or(_load(total, place), bit)))
            for place, cond in ((_const(0), alike), (_const(1), None))
        ]
        both = tirx.EQ(_load(total, _const(0)), _load(total, _const(1)))
        value = _load(total, zero)
        if stmt.kind == "match_all":
            value = tirx.if_then_else(both, value, tirx.const(0, "uint32"))
        body = (
            ir.Alloc(total, loc=self._loc),
            *(self._store(total, _const(place), tirx.const(0, "uint32")) for place in (0, 1)),
            self._for(lane, 0, WARP, (ir.Bind(other, number // WARP * WARP + lane), *count)),
            self._store(result, number, value),
        )
        self._made.meeting.append(self._each(number, self._grid.count, body))
        return _load(result, self._grid.number)

    def _block_vote(self, stmt: Lane, offered: Var | None) -> Expr:
        """One result from a loop over all threads."""
        assert offered is not None
        result, zero = self._tile("int32", 1, "voted"), _const(0)
        number, old = tirx.Var("thread", "int32"), _load(result, zero)
        holds = _load(offered, number)
        every = stmt.kind == "block_and"
        value = old + 1 if stmt.kind == "block_count" else tirx.const(int(not every), "int32")
        taken = self._where(number, tirx.Not(holds) if every else holds, self._store(result, zero, value))
        self._made.meeting += [
            self._store(result, zero, tirx.const(int(every), "int32")),
            self._for(number, 0, self._grid.count, (taken,)),
        ]
        return old

    def _where(self, number: Expr, cond: Expr | None, stmt: ir.Stmt) -> ir.Stmt:
        """``stmt`` if thread ``number`` is there and ``cond`` holds."""
        present = self._present(number, *([] if cond is None else [cond]))
        return stmt if int_value(present) == 1 else ir.If(present, (stmt,), loc=self._loc)

    def _tile(self, dtype: str, size: int, name: str) -> Var:
        tile = _decl(dtype, size, name, "local.fragment")
        self._made.tiles.append(tile)
        return tile

    def _store(self, buffer: Var, index: Expr, value: Expr) -> ir.Store:
        return ir.Store(buffer, (index,), value, loc=self._loc)

    def _for(self, var: Var, start: int, stop: int, body: ir.Block) -> ir.For:
        return ir.For("serial", var, _const(start), _const(stop), _const(1), body, loc=self._loc)

    def _each(self, var: Var, count: int, body: ir.Block) -> ir.Parallel:
        return ir.Parallel((var,), (count,), body, loc=self._loc)


def _flipped(number: Expr, mask: int) -> Expr:
    """``number ^ mask`` by quotients and remainders, whose bounds are known, and which lanes know apart."""
    for step in (1 << bit for bit in range(mask.bit_length()) if mask >> bit & 1):
        number = number // (2 * step) * (2 * step) + (number + step) % (2 * step)
    return number


def _bits(value: Expr) -> Expr:
    """A value as the integer with the same bits."""
    dtype = dtype_of(value)
    width = {"float32": "uint32", "float64": "uint64"}.get(dtype)
    return value if width is None else tirx.reinterpret(width, value)


def _decl(dtype: str, size: int, name: str, scope: str) -> Var:
    return tirx.decl_buffer((size,), dtype, name, scope=scope)


def _load(buffer: Var, index: Expr) -> Expr:
    return tirx.BufferLoad(buffer, [index])


def _const(value: int) -> Expr:
    return tirx.const(value, "int32")
