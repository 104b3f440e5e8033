"""Loops of one thread over neighbours in memory move several of them at once.

for v in range(16): s += A[i, 16 * j + v]
->
for c in range(2): a[0:8] = A[i, 16 * j + 8 * c : ...]; for v in range(8): s += a[v]

Of a nest each loop moves what it alone counts: ``a[k, i] * b[k, j]`` is a vector of either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.vectors import (
    Comb,
    agree,
    combs,
    divides,
    span,
    vector_width,
    widest,
)
from tilec.backends.cuda.analysis.trips.own_loops import OwnLoops
from tilec.backends.cuda.nodes import ThreadVector
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import cast_to, dtype_of, inlined, int_value, loads, substitute, transform, uses
from tilec.ir.nodes import Alloc, Bind, Block, For, If, Kernel, Stmt, Store, walk
from tilec.ir.traits import defined
from tilec.lowering.analysis.accesses import Access, accesses, updated_in_place, values_of
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tvm.ir import Expr, Var

    from tilec.targets import Target

_MEMORY = ("global", "shared.dyn")


class MoveRuns(Pass):
    """In: loops inside of a Parallel's iteration, or of a thread. Out: where they name neighbours of tensors
    that vectors move, they go by chunks of a vector, whose elements wait in registers: what a chunk reads is
    loaded in front of it, what it writes is stored behind it."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with loops over chunks."""
        return rewrite_launches(kernel, lambda launch: _Loops(kernel, launch).run())


@dataclass(frozen=True, eq=False)
class _Run:
    """What the trips of a chunk name, one element each, and where these wait."""

    item: Access
    registers: Var


class _Form(NamedTuple):
    """A loop, the test under which all of its body stands, None for none, and what may move at once."""

    loop: For
    cond: Expr | None
    items: Sequence[Access]


class _Loops(OwnLoops):
    """The loops of one launch."""

    def loop(self, loop: For) -> list[Stmt] | None:
        """A loop by chunks, where vectors move what it names; None where none do."""
        if type(loop) is not For or int_value(loop.step) != 1 or not is_scalar_code(loop.body):
            return None
        forms = list(self._forms(loop))
        for count in (16, 8, 4, 2):
            for form in forms:
                chunk = _Chunk(form, count)
                moved = self._moved(chunk)
                if moved:
                    made = chunk.loops(moved, self.facts.simplify(chunk.trips))
                    return list(self.block(tuple(made)))
        return None

    def _forms(self, loop: For) -> Iterator[_Form]:
        """A loop without the test of all that it does, and as it is, where something may move at once."""
        for body, cond in (*_conditioned(loop.body), (loop.body, None)):
            items = _movable(body, loop.var, self.overlapping)
            if items:
                yield _Form(replace(loop, body=body), cond, items)

    def _moved(self, chunk: _Chunk) -> list[Access]:
        """What vectors move of a chunk; nothing where trips are left over, not all of the chunk pass the test
        or none of them does, or no vector has an element for each trip."""
        loop = chunk.loop
        self.facts.bind_range(chunk.number, 0, chunk.trips)
        self.facts.bind_range(chunk.var, 0, chunk.count)
        if not divides(chunk.count, loop.stop - loop.start, self.facts):
            return []
        if chunk.form.cond is not None:
            (cond,) = chunk.at((chunk.form.cond,), chunk.var)
            if not agree(cond, chunk.var, chunk.count, self.facts):
                return []
        served = self._served(chunk)
        return list(served) if max(served.values(), default=1) == chunk.count else []

    def _served(self, chunk: _Chunk) -> dict[Access, int]:
        """How many trips of a chunk one vector serves, for each access that has vectors."""
        items = chunk.form.items
        placed = [replace(item, indices=chunk.at(item.indices, chunk.var)) for item in items]
        found = combs(placed, chunk.var, self.facts)
        lone = _lone(accesses(chunk.loop.body), [members for _, members in found.values()])
        served = {}
        for item, at in zip(items, placed, strict=True):
            comb, _ = found.get(at, (None, ()))
            count = self._trips(at, chunk, comb) if item.buffer in lone else 1
            if count > 1:
                served[item] = count
        return served

    def _trips(self, item: Access, chunk: _Chunk, comb: Comb | None) -> int:
        """How many trips of a chunk one vector of an access serves; 1 where it has none."""
        if comb is not None:
            width = widest(item.buffer, chunk.count * comb.stride)
            return comb.width(item.buffer, chunk.count, width, self.facts) // comb.stride
        width = vector_width(item.buffer, item.indices, chunk.var, chunk.count, self.facts)
        if width > 1 or item.is_write:
            return width
        found = span(item.buffer, item.indices, chunk.var, chunk.count, chunk.count, self.facts)
        return found[0] * found[1].count(0) if found and found[0] > 1 else 1


class _Chunk:
    """Every ``count`` trips of a loop together: ``number`` counts them, ``var`` the trips of one. Trips of a
    single chunk from 0 on keep their variable: what it names are a few elements, as layouts of rows ask."""

    def __init__(self, form: _Form, count: int) -> None:
        self.form, self.loop, self.count = form, form.loop, count
        self._dtype = dtype_of(self.loop.var)
        whole = int_value(self.loop.start) == 0 and int_value(self.loop.stop) == count
        self.number, self.var = self._name("chunk"), self.loop.var if whole else self._name("in")
        self.trips: Expr = tirx.floordiv(self.loop.stop - self.loop.start, self._const(count))

    def at(self, values: Sequence[Expr], var: Expr) -> tuple[Expr, ...]:
        """Values of the loop at the trip ``var``."""
        return tuple(substitute(value, {self.loop.var: self._place(var)}) for value in values)

    def loops(self, items: Sequence[Access], trips: Expr) -> list[Stmt]:
        """The loop over chunks, of which vectors move ``items``; a single one without a loop."""
        body = self._body(self._runs(items))
        zero, one = self._const(0), self._const(1)
        if int_value(trips) == 1:
            return [Bind(self.number, zero, loc=self.loop.loc), *body]
        kind = "serial" if self.loop.kind == "vectorized" else self.loop.kind
        return [replace(self.loop, kind=kind, var=self.number, start=zero, stop=trips, step=one, body=body)]

    def _name(self, part: str) -> Var:
        return tirx.Var(f"{self.loop.var.name}_{part}", self._dtype)

    def _const(self, value: int) -> Expr:
        return tirx.const(value, self._dtype)

    def _place(self, var: Expr) -> Expr:
        return self.loop.start + self.number * self._const(self.count) + var

    def _runs(self, items: Sequence[Access]) -> list[_Run]:
        found: list[_Run] = []
        for item in items:
            if not any(run.item.matches(item) for run in found):
                name = f"{item.buffer.name}_run"
                shape, dtype = (self.count,), str(item.buffer.dtype)
                found.append(_Run(item, tirx.decl_buffer(shape, dtype, name, scope="local")))
        return found

    def _body(self, runs: Sequence[_Run]) -> Block:
        loc = self.loop.loc
        rooms = [Alloc(run.registers, loc=loc) for run in runs]
        loaded = self._moved([run for run in runs if not run.item.is_write])
        stored = self._moved([run for run in runs if run.item.is_write])
        values = values_of(self.loop.body)
        body = tuple(_waiting(stmt, runs, self.var, values) for stmt in self.loop.body)
        if self.var is not self.loop.var:
            body = (Bind(self.loop.var, self._place(self.var), loc=loc), *body)
        zero, one = self._const(0), self._const(1)
        trips = For("unroll", self.var, zero, self._const(self.count), one, body, loc=loc)
        parts = (*rooms, *loaded, trips, *stored)
        if self.form.cond is None:
            return parts
        (cond,) = self.at((self.form.cond,), zero)
        return (If(cond, parts, loc=loc),)

    def _moved(self, runs: Sequence[_Run]) -> Block:
        """The vectors of runs."""
        if not runs:
            return ()
        var, zero, one = self._name("moved"), self._const(0), self._const(1)
        body = tuple(self._move(run, var) for run in runs)
        return (ThreadVector("vectorized", var, zero, self._const(self.count), one, body, loc=self.loop.loc),)

    def _move(self, run: _Run, var: Var) -> Store:
        """One element of a run."""
        place, waiting = self.at(run.item.indices, var), (var,)
        loc, buffer, registers = self.loop.loc, run.item.buffer, run.registers
        if run.item.is_write:
            return Store(buffer, place, tirx.BufferLoad(registers, list(waiting)), loc=loc)
        return Store(registers, waiting, tirx.BufferLoad(buffer, list(place)), loc=loc)


def _conditioned(body: Block) -> list[tuple[Block, Expr]]:
    """What a body does behind names, and the test of all of it; nothing where it has none, or may change what
    that reads."""
    *names, branch = body or (None,)
    if not isinstance(branch, If) or branch.orelse or not all(isinstance(stmt, Bind) for stmt in names):
        return []
    cond = inlined(branch.cond, values_of(names))
    return [] if next(loads(cond), None) is not None else [((*names, *branch.then), cond)]


def _movable(body: Block, trip: Var, overlapping: frozenset[Var]) -> list[Access]:
    """What every trip of a loop names in tensors at places that are known in front of it, and that no other
    trip writes; of the loops inside what all of their trips read."""
    named = accesses(body)
    written = [item.buffer for item in named if item.is_write]
    unknown = set(overlapping) if overlapping & {*written} else set()
    read = {item.buffer for item in named if not item.is_write} - updated_in_place(body, trip)
    unknown |= {buffer for buffer in written if buffer in read}
    values, own = values_of(body), [var for stmt in walk(body) for var in defined(stmt)]
    found = []
    for item in _always(body):
        indices = tuple(inlined(index, values) for index in item.indices)
        is_known = not any(uses(index, own) or next(loads(index), None) is not None for index in indices)
        if item.buffer.scope() in _MEMORY and item.buffer not in unknown and is_known:
            found.append(replace(item, indices=indices))
    return found


def _always(body: Block) -> Iterator[Access]:
    """What a body names whenever it runs, but for what loops inside write."""
    yield from accesses(tuple(stmt for stmt in body if isinstance(stmt, (Bind, Store))))
    for loop in body:
        if isinstance(loop, For) and (int_value(loop.stop - loop.start) or 0) > 0:
            yield from (item for item in _always(loop.body) if not item.is_write)


def _lone(named: Sequence[Access], together: Sequence[Sequence[Access]]) -> set[Var]:
    """The buffers of which a trip writes one element or none, or the several ones of a run that it writes
    ``together``: no other trip writes these."""
    written = [item.buffer for item in named if item.is_write]
    runs = {members[0].buffer: len(members) for members in together if members[0].is_write}
    return {
        item.buffer
        for item in named
        if written.count(item.buffer) <= 1 or written.count(item.buffer) == runs.get(item.buffer)
    }


def _waiting(stmt: Stmt, runs: Sequence[_Run], trip: Var, values: Mapping[Var, Expr]) -> Stmt:
    """A statement over registers in place of tensors."""

    def registers(buffer: Var, indices: Sequence[Expr], is_write: bool) -> Var | None:
        item = Access(buffer, tuple(inlined(index, values) for index in indices), is_write)
        return next((run.registers for run in runs if run.item.matches(item)), None)

    def read(node: Expr) -> Expr | None:
        found = registers(node.source, node.indices, False) if isinstance(node, TensorLoad) else None
        return None if found is None else tirx.BufferLoad(found, [trip])

    stmt = map_stmt(stmt, lambda expr: transform(expr, read))
    found = registers(stmt.buffer, stmt.indices, True) if isinstance(stmt, Store) else None
    if not isinstance(stmt, Store) or found is None:
        return stmt
    return replace(stmt, buffer=found, indices=(trip,), value=cast_to(stmt.value, str(found.dtype)))
