"""Rings of tiles that an author counts by hand are pipelined loops over one tile.

    for s in 0..2: copy(A[.., s], a[s])                        for k in pipelined(0, n, num_stages=3):
    for k in 0..n:                                                 copy(A[.., k], a)
        if k + 2 < n: copy(A[.., k + 2], a[(k + 2) % 3])    ->     gemm(a, ..)
        gemm(a[k % 3], ..)

How far loads run ahead, and by which instructions, is then what suits the target. H200, 4096^3 in stages of
128 x 128 x 64 by T.async_copy and T.wgmma_gemm, us: 533, and 192 so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from tvm import sym, tirx

from tilec.backends.cuda.analysis.trips.ring_tiles import OneStage, asks_for_no_stages, is_one_stage
from tilec.ir.analysis.alike import Likeness
from tilec.ir.exprs import dtype_of, inlined, int_value, loads, same, substitute, transform
from tilec.ir.nodes import (
    Alloc,
    Block,
    Break,
    Continue,
    Copy,
    For,
    If,
    Kernel,
    Launch,
    Pipelined,
    Region,
    Stmt,
    Store,
    walk,
)
from tilec.ir.nodes.threads import Return
from tilec.ir.traits import loads_of, mentioned, regions
from tilec.lowering.analysis.accesses import computed_values_of
from tilec.lowering.analysis.regions import moved
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.lowering.rewrite import map_stmt, rename

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

_Loop: TypeAlias = "For | Pipelined"
#: Trips whose loads stand in front of a loop, at most.
_MOST = 8
_NOTE = "{}: stages that its author counts are those of a pipelined loop"


class FoldRings(Pass):
    """In: serial loops that fill a stage of each of some tiles for a later trip, behind the loads of the
    first trips. Out: pipelined loops whose trips load what they read, where nothing else touches the tiles
    and nothing in the launch writes what is loaded."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its rings folded."""
        return rewrite_launches(kernel, lambda launch: _Rings(kernel, launch).run())


@dataclass(frozen=True)
class _Load:
    """A copy to a stage where ``cond`` holds, of ``stmt``; ``ahead``: how many trips later it is read."""

    copy: Copy
    cond: Expr | None
    stmt: Stmt
    ahead: int = 0

    @property
    def tile(self) -> Var:
        """Whose stage it fills."""
        return self.copy.dst.buffer

    def at(self, values: dict[Var, Expr]) -> _Load:
        """It with other values for variables."""
        copy = map_stmt(self.copy, lambda expr: substitute(expr, values))
        assert isinstance(copy, Copy)
        return replace(self, copy=copy, cond=None if self.cond is None else substitute(self.cond, values))


class _Rings(ScopedRewrite):
    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self._changed = changed_in(launch)
        self._names = computed_values_of(walk(launch.body))
        self._folded: list[Var] = []

    def run(self) -> Launch:
        """The launch with its rings folded."""
        body = self.block(self.launch.body)
        if not self._folded:
            return self.launch
        notes = [_NOTE.format(tile.name) for tile in self._folded]
        return with_notes(replace(self.launch, body=OneStage(self._folded).block(body)), notes)

    def block(self, block: Block) -> Block:
        """The rewritten block."""
        made = super().block(block)
        for stmt in made:
            if _is_straight(stmt):
                joined = self._with_last_trip(made, stmt)
                made = self._fold(made, stmt, made) or self._fold(*joined, made) or made
        return made

    def _fold(self, block: Block, loop: _Loop, written: Block) -> Block:
        """``block`` with ``loop`` pipelined where it fills rings; nothing where it does not. ``written``: the
        block as its author has it."""
        found = [self._ahead(load, loop) for load in self._loads(loop.body)]
        ring = [load for load in found if load is not None]
        before = block[: block.index(loop)]
        first = self._first_loads(before, ring)
        if (
            not ring
            or len(ring) < len(found)
            or first is None
            or not self._are_alone(ring, first, block, written, loop)
        ):
            return ()
        if not all(self._fills_all(load, loop) for load in ring) or not self._are_first(first, ring, loop):
            return ()
        tiles = list(dict.fromkeys(load.tile for load in ring))
        self._folded += tiles
        gone = {load.stmt for load in first}
        left = tuple(stmt for stmt in before if stmt not in gone)
        return (*left, self._pipelined(loop, ring, tiles), *block[len(before) + 1 :])

    def _with_last_trip(self, block: Block, loop: _Loop) -> tuple[Block, _Loop]:
        """A block and a loop in it, one of whose trips is the last one, which loads nothing more, where that
        stands behind it."""
        loading = {load.stmt for load in self._loads(loop.body) if load.cond is None}
        own = tuple(stmt for stmt in loop.body if stmt not in loading)
        place = block.index(loop) + 1
        last, behind = rename(own, {loop.var: loop.stop}), block[place : place + len(own)]
        there = self.facts.prove(self._plain(loop.start <= loop.stop)) is True
        if not (loading and own and there) or not Likeness(self._is_alike).block(behind, last):
            return block, loop
        more = loop.var < loop.stop
        body = tuple(If(more, (stmt,)) if stmt in loading else stmt for stmt in loop.body)
        whole = replace(loop, stop=loop.stop + 1, body=body)
        return (*block[: place - 1], whole, *block[place + len(own) :]), whole

    def _pipelined(self, loop: _Loop, ring: list[_Load], tiles: list[Var]) -> Pipelined:
        """A loop whose trips begin with the loads of what they read."""
        loads_now = tuple(self._earlier(load.copy, loop.var, load.ahead) for load in ring)
        gone = {load.stmt for load in ring}
        body = (*loads_now, *(stmt for stmt in loop.body if stmt not in gone))
        stages = max(int_value(tile.shape[0]) or 1 for tile in tiles)
        return Pipelined(loop.var, loop.start, loop.stop, body, stages, loc=loop.loc)

    def _earlier(self, copy: Copy, var: Var, trips: int) -> Copy:
        """What a copy did so many trips before."""
        values, analyzer = {var: var - trips}, self.facts.analyzer
        return replace(copy, src=moved(copy.src, values, analyzer), dst=moved(copy.dst, values, analyzer))

    # ---- loads ----

    def _loads(self, block: Sequence[Stmt]) -> Iterator[_Load]:
        """The copies to stages among statements, and in branches that hold nothing else."""
        for stmt in block:
            inner = stmt.then if isinstance(stmt, If) and not stmt.orelse else (stmt,)
            if not all(_fills_stage(each) for each in inner):
                continue
            cond = self._plain(stmt.cond) if isinstance(stmt, If) else None
            for copy in inner:
                plain = map_stmt(copy, self._plain)
                assert isinstance(plain, Copy)
                yield _Load(plain, cond, stmt)

    def _plain(self, expr: Expr) -> Expr:
        return inlined(expr, self._names)

    def _ahead(self, load: _Load, loop: _Loop) -> _Load | None:
        """A load of a loop with the number of trips after which its stage is read; None where that is not
        one number from 1 on, as many as there are stages behind the last read of a trip."""
        users = [stmt for stmt in loop.body if stmt is not load.stmt and _mentions(stmt, load.tile)]
        stage, stages = self._stage(users, load.tile), int_value(load.tile.shape[0])
        if stage is None or stages is None or not _counts(stage, loop.var, stages):
            return None
        place = loop.body.index(load.stmt)
        last = stages if all(loop.body.index(stmt) < place for stmt in users) else stages - 1
        for ahead in range(1, last + 1):
            later = substitute(stage, {loop.var: loop.var + ahead})
            if self._is_same(load.copy.dst.start[0], later):
                return replace(load, ahead=ahead)
        return None

    def _stage(self, users: list[Stmt], tile: Var) -> Expr | None:
        """The one stage of a tile that statements name."""
        inner = [each for stmt in users for each in walk((stmt,)) if tile in mentioned(each)]
        named = [[each for each in regions(stmt) if each.buffer.same_as(tile)] for stmt in inner]
        if not named or not all(named) or any(isinstance(stmt, Store) for stmt in inner):
            return None
        stages = [_remainders(self._plain(each.start[0])) for found in named for each in found]
        whole = all(int_value(each.extent[0]) == 1 for found in named for each in found)
        known = whole and next(loads(stages[0]), None) is None
        return stages[0] if known and all(same(each, stages[0]) for each in stages) else None

    def _first_loads(self, before: Block, ring: list[_Load]) -> list[_Load] | None:
        """The loads of a ring's tiles in front of a loop, one by one; None where something else does."""
        tiles = {load.tile for load in ring}
        found: list[_Load] = []
        for stmt in before:
            names = {name for inner in walk((stmt,)) for name in mentioned(inner)}
            if isinstance(stmt, Alloc) or not names & tiles:
                continue
            loads_of_stmt = list(self._written_out(stmt))
            if not loads_of_stmt:
                return None
            found += loads_of_stmt
        return found

    def _written_out(self, stmt: Stmt) -> Iterator[_Load]:
        """The loads of a statement, each trip's of a loop of such."""
        if not isinstance(stmt, For):
            yield from self._loads((stmt,))
            return
        inner = list(self._loads(stmt.body))
        start, stop, step = map(int_value, (stmt.start, stmt.stop, stmt.step))
        if start is None or stop is None or not step or len(inner) < _count(stmt.body):
            return
        numbers = range(start, stop, step)
        for number in numbers if len(numbers) <= _MOST else ():
            value = {stmt.var: tirx.const(number, dtype_of(stmt.var))}
            yield from (replace(load.at(value), stmt=stmt) for load in inner)

    # ---- proofs ----

    def _are_alone(
        self, ring: list[_Load], first: list[_Load], block: Block, written: Block, loop: _Loop
    ) -> bool:
        """Whether nothing but these loads and the loop behind them touches the tiles, and nothing in the
        launch changes what is loaded, or where from."""
        tiles, known = {load.tile for load in ring}, {load.stmt for load in first} | {loop}
        others = any(_mentions(stmt, tile) for stmt in block if stmt not in known for tile in tiles)
        inside = all(_users(self.launch.body, tile) == _users(written, tile) for tile in tiles)
        read_alone = any(load.source in tiles for load in loads_of(*walk((loop,))))
        leaves = any(isinstance(stmt, (Break, Continue, Return)) for stmt in walk((loop,)))
        sources = {name for load in ring for name in (load.copy.src.buffer, *_looked_up(load))}
        return inside and not (others or read_alone or leaves or sources & self._changed)

    def _fills_all(self, load: _Load, loop: _Loop) -> bool:
        """Whether a load's condition holds for all trips that it has something to bring for."""
        if load.cond is None:
            return True
        trip = tirx.Var(str(loop.var.name), dtype_of(loop.var))
        self.facts.bind_range(trip, loop.start + load.ahead, loop.stop)
        return self.facts.prove(substitute(load.cond, {loop.var: trip - load.ahead})) is True

    def _are_first(self, first: list[_Load], ring: list[_Load], loop: _Loop) -> bool:
        """Whether loads in front of a loop are those of the first trips, in any order."""
        left = list(first)
        for load in ring:
            for number in range(load.ahead):
                wanted = load.at({loop.var: loop.start + (number - load.ahead)})
                there = self._plain(loop.start + number < loop.stop)
                found = next((each for each in left if self._brings(each, wanted, there)), None)
                if found is None:
                    return False
                left.remove(found)
        return not left

    def _brings(self, load: _Load, wanted: _Load, there: Expr) -> bool:
        """Whether a load is another one wherever the trip exists that reads it."""
        pairs = ((load.copy.src, wanted.copy.src), (load.copy.dst, wanted.copy.dst))
        if load.copy.hints != wanted.copy.hints or not all(self._are_same(*pair) for pair in pairs):
            return False
        if load.cond is None:
            return True
        with self.facts.remember(there):
            return self.facts.prove(load.cond) is True

    def _are_same(self, one: Region, other: Region) -> bool:
        sides = zip((*one.start, *one.extent), (*other.start, *other.extent), strict=False)
        return one.buffer.same_as(other.buffer) and all(self._is_same(*pair) for pair in sides)

    def _is_alike(self, one: Expr, other: Expr) -> bool:
        whole = dtype_of(one) == dtype_of(other) and dtype_of(one).startswith("int")
        return same(one, other) or (whole and self._is_same(one, other))

    def _is_same(self, one: Expr, other: Expr) -> bool:
        left, right = (_remainders(self._plain(each)) for each in (one, other))
        return int_value(self.facts.analyzer.simplify(left - right)) == 0


def _is_straight(stmt: Stmt) -> TypeGuard[_Loop]:
    """Whether a loop counts by one, and its author has not asked for stages."""
    if isinstance(stmt, Pipelined):
        return asks_for_no_stages(stmt)
    return isinstance(stmt, For) and stmt.kind == "serial" and int_value(stmt.step) == 1


def _fills_stage(stmt: Stmt) -> bool:
    return isinstance(stmt, Copy) and stmt.src.buffer.scope() == "global" and is_one_stage(stmt.dst)


def _users(block: Block, tile: Var) -> int:
    return sum(tile in mentioned(stmt) and not isinstance(stmt, Alloc) for stmt in walk(block))


def _mentions(stmt: Stmt, tile: Var) -> bool:
    return _users((stmt,), tile) > 0


def _remainders(expr: Expr) -> Expr:
    """An expression with `x % 2 ** n` for `x & (2 ** n - 1)`."""

    def visit(node: Expr) -> Expr | None:
        mask = int_value(node.b) if isinstance(node, tirx.BitwiseAnd) else None
        if mask is None or mask <= 0 or mask & (mask + 1):
            return None
        return tirx.floormod(_remainders(node.a), mask + 1)

    return transform(expr, visit)


def _count(block: Block) -> int:
    return sum(len(stmt.then) if isinstance(stmt, If) else 1 for stmt in block)


def _counts(stage: Expr, var: Var, stages: int) -> bool:
    """Whether ``stage`` is a remainder by the number of stages, so that neighbouring trips have others."""
    if not isinstance(stage, (tirx.FloorMod, tirx.Mod)) or int_value(stage.b) != stages:
        return False
    step = substitute(stage.a, {var: var + 1}) - stage.a
    return int_value(sym.Analyzer().simplify(step)) == 1


def _looked_up(load: _Load) -> Iterator[Var]:
    """The tensors in which a load looks up its place."""
    for start in (*load.copy.src.start, *load.copy.src.extent, *([] if load.cond is None else [load.cond])):
        yield from (each.source for each in loads(start))
