"""The iterations of one vector of a ThreadLoop: loads ahead, the body per element, stores behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.bit_fields import BYTES
from tilec.backends.cuda.analysis.vectors import (
    HELD_BY_TWO,
    Comb,
    agree,
    begins_anywhere,
    combs,
    span,
    vector_width,
)
from tilec.backends.cuda.device.floats import PAIRED
from tilec.backends.cuda.emit.access_notes import Moved, take_road
from tilec.backends.cuda.emit.cluster import SENT_AT_LEAST, sent_vector
from tilec.backends.cuda.emit.context import DeviceContext, Part
from tilec.backends.cuda.emit.lane_digits import convert_sum
from tilec.backends.cuda.emit.pairs import Pairs
from tilec.backends.cuda.emit.quads import QUAD, Quads
from tilec.backends.cuda.emit.statements import emit
from tilec.backends.cuda.emit.vector_moves import (
    added_vector,
    load_vector,
    packed_pairs,
    put_together,
    store_registers,
    store_vector,
)
from tilec.backends.cuda.limits import added_at_once, has_tma
from tilec.backends.cuda.nodes import AheadLoop, RemoteStore, ThreadLoop
from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import all_of, dtype_of, inlined, loads, reads, same, same_all, uses
from tilec.ir.layout_algebra import chunk
from tilec.ir.nodes import Atomic, Bind, Block, For, If, Stmt, Store, walk
from tilec.ir.traits import expressions
from tilec.lowering.analysis.accesses import Access, accesses, updated_in_place, values_of
from tilec.lowering.analysis.uses import reads_behind_writes, written_in
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.statements import guarded, learn_binding, sequence
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr


#: Bytes of elements that share the words of registers.
_HALF = 2


@dataclass(frozen=True, eq=False)
class Kept:
    """A store, or an addition, whose elements wait in ``tmp`` until all of the vector are there.
    ``unrounded``: as float32, to be rounded in pairs. ``loaded``: they are what a vector loaded, and there
    already. ``words``: they are made in pairs. ``stride``, ``number``: it has every so many elements of
    ``tmp``, from that one on; the first of those that share ``tmp`` writes all of it."""

    store: Store | Atomic
    tmp: Var
    width: int
    unrounded: bool = False
    loaded: bool = False
    words: tuple[Expr, ...] = ()
    stride: int = 1
    number: int = 0


class Vector:
    """The code of one vector of iterations; the last variable stands at its start."""

    def __init__(self, stmt: ThreadLoop, ctx: DeviceContext) -> None:
        self.stmt, self.body, self.ctx = stmt, stmt.body, ctx
        self.var, self.width = stmt.vars[-1], stmt.vector
        self.written = written_in(self.body) - updated_in_place(self.body)
        if reads_behind_writes(self.body, ctx.overlapping):
            self.written |= {item.buffer for item in accesses(self.body)}
        self.held: list[tuple[TensorLoad, Var, tuple[int, ...]]] = []
        self.moved: list[Moved] = []
        self.fixed: list[tuple[TensorLoad, Expr]] = []
        self.once: list[tirx.Bind] = []
        self.kept: dict[Stmt, Kept] = {}

    def emit(self) -> tirx.Stmt | None:
        """The code of all iterations of the vector, behind the reads of ``once``."""
        found = self._branch() if self._is_wide else None
        if found is not None:
            return self._under(*found)
        for inner in walk(self.body):
            if isinstance(inner, Bind):
                learn_binding(inner, self.ctx)
        ahead = self._loads()
        if not self._is_wide:
            take_road(self.stmt, [], self.ctx)
            with self.ctx.hoist_scope(self.fixed):
                return self.ctx.block(self.body)
        self._plan_stores()
        take_road(self.stmt, self.moved, self.ctx)
        parts: list[tirx.Stmt] = []
        with self.ctx.hoist_scope(self.fixed):
            self._pair_up()
            for element in range(self.width if self._iterates() else 0):
                with self.ctx.scope(), self._at(element):
                    parts += [part for stmt in self.body if (part := self._stmt(stmt, element)) is not None]
            return sequence([*ahead, *self._waiting(), *parts, *self._flush()])

    def _iterates(self) -> bool:
        """Whether anything is left to do element by element."""
        pairs = [kept.store for kept in self.kept.values() if kept.words]
        return not all(isinstance(stmt, Bind) or stmt in pairs for stmt in self.body)

    def _branch(self) -> tuple[Block, If] | None:
        """The branch that is all of the body, behind names, if all elements of the vector take the same side;
        names that each element has for itself are inside of it."""
        *names, branch = self.body
        if not isinstance(branch, If) or not all(isinstance(stmt, Bind) for stmt in names):
            return None
        values = values_of(names)
        moving = {var: value for var, value in values.items() if uses(inlined(value, values), (self.var,))}
        cond = inlined(branch.cond, moving)
        whole = inlined(cond, values)
        changes = reads(whole, self.written)
        if changes or not agree(whole, self.var, self.width, self.ctx.facts):
            return None
        own = tuple(stmt for stmt in names if isinstance(stmt, Bind) and stmt.var in moving)
        common = tuple(stmt for stmt in names if stmt not in own)
        orelse = copied((*own, *branch.orelse)) if branch.orelse else ()
        return common, replace(branch, cond=cond, then=(*own, *branch.then), orelse=orelse)

    def _under(self, common: Block, branch: If) -> tirx.Stmt | None:
        """The vector behind one test, or one for each side of it."""
        ctx = self.ctx
        with ctx.scope():
            names = [emit(stmt, ctx) for stmt in common]
            test = ctx.value(branch.cond)
            once, inner = self._side(branch.then, branch.cond, True)
            if any(isinstance(stmt, Atomic) for stmt in walk(branch.then)):
                once = self._ahead_of(inlined(branch.cond, values_of(common)), once)
            others, other = self._side(branch.orelse, branch.cond, False) if branch.orelse else ([], None)
        then = None if inner is None else sequence([*once, inner])
        orelse = None if other is None else sequence([*others, other])
        made = _chosen(test, then, orelse)
        return sequence([part for part in (*names, made) if part is not None])

    def _side(self, body: Block, cond: Expr, value: bool) -> tuple[list[tirx.Bind], tirx.Stmt | None]:
        """The vector of one side of a branch, and what it reads in front."""
        with self.ctx.facts.remember(cond, value):
            inside = Vector(replace(self.stmt, body=body), self.ctx)
            inner = inside.emit()
        return inside.once, inner

    def _ahead_of(self, cond: Expr, once: list[tirx.Bind]) -> list[tirx.Bind]:
        """Those of the reads of a branch that stay inside of it; others go in front, under its condition:
        compilers read anew behind every addition in memory."""
        known = {stmt.var for stmt in self.body if isinstance(stmt, Bind)}
        if reads(cond, self.written):
            return once
        test = self.ctx.value(cond)
        left: list[tirx.Bind] = []
        for bind in once:
            inner = {*known, *(each.var for each in left)}
            if uses(bind.value, tuple(inner)) or uses(test, tuple(inner)):
                left.append(bind)
                continue
            nothing = tirx.const(0, dtype_of(bind.value))
            self.once.append(tirx.Bind(bind.var, tirx.if_then_else(test, bind.value, nothing)))
        return left

    @contextmanager
    def _at(self, element: int) -> Iterator[None]:
        """Within the context the last variable stands at an iteration of the vector."""
        ctx, base, digits = self.ctx, self.ctx.env[self.var], self.ctx.digits[self.var]
        if self.width > 1:  # the first digit goes through the vector
            first, *rest = digits
            ctx.digits[self.var] = (Part(1, first.size, tirx.const(element, "int32"), True), *rest)
            ctx.env[self.var] = base + tirx.const(element, dtype_of(self.var))
        done = [
            (load, tirx.BufferLoad(tmp, [tirx.const(steps[element], "int32")]))
            for load, tmp, steps in self.held
        ]
        with ctx.hoist_scope(done):
            yield
        ctx.digits[self.var], ctx.env[self.var] = digits, base

    def _pair_up(self) -> None:
        """Stores whose neighbours are made together."""
        for stmt, kept in self.kept.items():
            if kept.stride > 1 or kept.loaded:
                continue
            paired = kept.unrounded and has_tma(self.ctx.target)
            words = self._pairs(kept.store) if paired else self._quads(kept.store)
            if words:
                self.kept[stmt] = replace(kept, words=words)

    def _pairs(self, store: Store | Atomic) -> tuple[Expr, ...]:
        """Words of two 16-bit elements each; nothing where they are made one by one."""
        dtype = str(store.buffer.dtype)
        return self._words(store, Pairs(**self._neighbours, dtype=dtype), 2) if dtype in PAIRED else ()

    def _quads(self, store: Store | Atomic) -> tuple[Expr, ...]:
        """Words of four 8-bit elements each; nothing where they are made one by one."""
        if not isinstance(store, Store) or str(store.buffer.dtype) not in BYTES or self.width % QUAD:
            return ()
        return self._words(store, Quads(**self._neighbours), QUAD)

    def _words(self, store: Store | Atomic, made: Pairs | Quads, count: int) -> tuple[Expr, ...]:
        """Words of ``count`` elements each; nothing where one is none."""
        value = inlined(store.value, values_of(self.body))
        if reads(value, self.written):
            return ()
        words = [made.word(value, first) for first in range(0, self.width, count)]
        return () if None in words else tuple(words)

    @property
    def _neighbours(self) -> dict[str, Any]:
        """The fields of `Neighbours`."""
        extent = dict(zip(self.stmt.vars, self.stmt.extents, strict=True))[self.var]
        return {
            "ctx": self.ctx,
            "var": self.var,
            "width": self.width,
            "extent": extent,
            "at": self._at,
            "held": self.held,
        }

    def _stmt(self, stmt: Stmt, element: int) -> tirx.Stmt | None:
        kept = self.kept.get(stmt)
        if kept is None:
            return emit(stmt, self.ctx)
        if kept.loaded or kept.words:
            return None
        value, dtype = kept.store.value, str(kept.store.buffer.dtype)
        made = self.ctx.unrounded(value, dtype) if kept.unrounded else self.ctx.stored(value, dtype)
        at = kept.stride * element + kept.number
        return tirx.BufferStore(kept.tmp, made, [tirx.const(at, "int32")])

    # ---- loads ----

    def _loads(self) -> list[tirx.Stmt]:
        """Loads every vector that the body reads element by element into registers of its own. Reads whose
        place is known go first: one that waits for another holds up all behind it."""
        inner = {stmt.var for stmt in walk(self.body) if isinstance(stmt, Bind)}
        inner |= {stmt.var for stmt in walk(self.body) if isinstance(stmt, For)}
        found = [load for stmt in walk(self.body) for expr in expressions(stmt) for load in loads(expr)]
        found.sort(key=lambda load: _depth(load, self.ctx))
        return [part for load in found for part in self._hoist(load, inner)]

    def _hoist(self, load: TensorLoad, inner: set[Var]) -> list[tirx.Stmt]:
        if not self._is_memory(load.source) or load.source in self.written:
            return []
        if any(same(load, other) for other, *_ in [*self.held, *self.fixed]):
            return []
        indices = self._spelled(load.indices)
        if any(uses(index, inner) for index in indices):
            return []
        if any(other.source in self.written for index in indices for other in loads(index)):
            return []
        with self.ctx.hoist_scope(self.fixed):
            return self._ahead(load, indices)

    def _ahead(self, load: TensorLoad, indices: tuple[Expr, ...]) -> list[tirx.Stmt]:
        """A read of the same element in all iterations happens once, one of neighbours as vectors."""
        ctx = self.ctx
        if self.width == 1 and not self._repeats(load, indices):
            return self._combed(load)
        if self.width == 1 or not any(uses(index, (self.var,)) for index in indices):
            inlined = tirx.BufferLoad(load.source, list(indices))
            value = ctx.raw(inlined)
            register = ctx.fresh(f"{load.source.name}_once", dtype_of(value))
            self.fixed += [(load, register), (inlined, register)]
            self.once.append(tirx.Bind(register, value))
            return []
        width = vector_width(load.source, indices, self.var, self._limit(load.source), ctx.facts)
        steps = tuple(range(self.width))
        if width < self.width:
            run = span(load.source, indices, self.var, self.width, self._limit(load.source), ctx.facts)
            if run is not None and run[0] > width:
                width, steps = run
            elif width == 1:
                of_two = self._of_two(load, indices)
                if of_two or run is None:
                    return of_two or self._combed(load)
                steps = run[1]
        tmp = self._registers(load.source, "v", 1 << max(steps).bit_length())
        self.held.append((load, tmp, steps))
        if width > 1 or begins_anywhere(load.source, indices, self.var, self.width, ctx.facts) == 1:
            self.moved.append(Moved(Access(load.source, tuple(load.indices), False), width))
        firsts = [steps.index(first) for first in range(0, max(steps) + 1, width)]
        spelled = self._spelled(load.indices)
        return [tirx.AllocBuffer(tmp), *self._chunks(load.source, spelled, tmp, width, load_vector, firsts)]

    def _of_two(self, load: TensorLoad, indices: tuple[Expr, ...]) -> list[tirx.Stmt]:
        """Neighbours that begin between two vectors, put together of these."""
        source = load.source
        width = begins_anywhere(source, indices, self.var, self._limit(source), self.ctx.facts)
        if width < HELD_BY_TWO:
            return []
        tmp, above = (self._registers(source, prefix, self.width) for prefix in "va")
        self.held.append((load, tmp, tuple(range(self.width))))
        self.moved.append(Moved(Access(source, tuple(load.indices), False), width))
        *rows, last = self._spelled(load.indices)
        low = last - tirx.floormod(last, tirx.const(width, dtype_of(last)))
        behind = low + tirx.const(width, dtype_of(last))
        firsts = range(0, self.width, width)
        return [
            tirx.AllocBuffer(tmp),
            tirx.AllocBuffer(above),
            *self._chunks(source, (*rows, low), tmp, width, load_vector, firsts),
            *self._chunks(source, (*rows, behind), above, width, load_vector, firsts),
            *self._chunks(source, (*rows, last), tmp, width, put_together(above), firsts),
        ]

    def _combed(self, load: TensorLoad) -> list[tirx.Stmt]:
        """Vectors of all the elements that the body reads along the loop, each of which has every so many."""
        found = self._comb(Access(load.source, tuple(load.indices), False))
        if found is None:
            return []
        comb, width, members = found
        tmp = self._registers(load.source, "v", comb.stride * self.width)
        for item in members:
            first = self._combs[item][0].number
            steps = tuple(range(first, comb.stride * self.width, comb.stride))
            self.held.append((tirx.BufferLoad(item.buffer, list(item.indices)), tmp, steps))
            self.moved.append(Moved(item, width))
        *rows, place = self._spelled(load.indices)
        start = (*rows, self.ctx.facts.analyzer.simplify(place - comb.number))
        firsts = range(0, self.width, width // comb.stride)
        return [tirx.AllocBuffer(tmp), *self._chunks(load.source, start, tmp, width, load_vector, firsts)]

    def _comb(self, item: Access) -> tuple[Comb, int, tuple[Access, ...]] | None:
        """The comb of an access, how many elements move at once, and the accesses that it shares them
        with."""
        for other, (comb, members) in self._combs.items():
            alike = other.buffer.same_as(item.buffer) and other.is_write == item.is_write
            if alike and same_all(other.indices, item.indices):
                if self.width == 1 and len(members) < comb.stride:
                    return None
                limit = self._limit(item.buffer, self.width * comb.stride)
                width = comb.width(item.buffer, self.width, limit, self.ctx.facts)
                return (comb, width, members) if width else None
        return None

    @cached_property
    def _combs(self) -> dict[Access, tuple[Comb, tuple[Access, ...]]]:
        """The combs of the body."""
        items = [item for item in accesses(self.body) if self._is_memory(item.buffer)]
        return combs(items, self.var, self.ctx.facts)

    @cached_property
    def _is_wide(self) -> bool:
        """Whether several elements may move at once."""
        return self.width > 1 or any(map(self._comb, self._combs))

    def _repeats(self, load: TensorLoad, indices: tuple[Expr, ...]) -> bool:
        """Whether a thread reads an element in several iterations, on every way through the body."""
        always = [expr for stmt in self.body for expr in expressions(stmt)]
        is_read = any(load.same_as(found) for expr in always for found in loads(expr))
        held = [
            var
            for var in self.stmt.vars
            if any(part.in_register and part.size > 1 for part in self.ctx.digits[var])
        ]
        return is_read and not all(any(uses(index, (var,)) for index in indices) for var in held)

    def _limit(self, buffer: Var, count: int = 0) -> int:
        """The most elements of a vector, of ``count`` or as many as there are iterations: in shared memory
        those that its layout keeps together."""
        layout, most = self.ctx.storage(buffer).layout, count or self.width
        return most if layout is None else min(most, chunk(layout))

    def _is_memory(self, buffer: Var) -> bool:
        return str(buffer.scope()).startswith(("shared", "global"))

    def _is_of_quads(self, stmt: Store | RemoteStore) -> bool:
        """Whether what a thread keeps for itself is made four bytes at a time."""
        return isinstance(stmt, Store) and stmt.buffer.scope() == "local" and bool(self._quads(stmt))

    def _registers(self, buffer: Var, prefix: str, size: int, dtype: str = "") -> Var:
        name = self.ctx.fresh(f"{buffer.name}_{prefix}", "int32").name
        stored = str(self.ctx.storage(buffer).data.dtype)
        return tirx.decl_buffer((size,), dtype or stored, name=name, scope="local")

    def _chunks(
        self,
        buffer: Var,
        indices: tuple[Expr, ...],
        tmp: Var,
        width: int,
        move: Callable[..., tirx.Stmt],
        firsts: Sequence[int],
    ) -> list[tirx.Stmt]:
        """``move`` for each access of ``width`` elements, behind the bounds that are open; ``firsts`` are the
        values of the variable at which each begins. The start is spelled out, so that its divisors are
        seen."""
        ctx, parts = self.ctx, []
        base = convert_sum(list(ctx.digits[self.var]), dtype_of(self.var))
        for number, first in enumerate(firsts):
            start = number * width
            with ctx.scope():
                ctx.env[self.var] = base + tirx.const(first, dtype_of(self.var))
                conds = open_bounds(buffer, indices, ctx)
                if conds is None:
                    conds = [tirx.const(False, "bool")]
                place = ctx.storage(buffer).offset([ctx.value(index) for index in indices])
                tests = [ctx.value(all_of(conds))] if conds else []
                parts.append(move(buffer, place, tmp, start, width, tests, ctx))
        return parts

    def _spelled(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Indices without names of the body, and of names in front of it quotients' alone."""
        own = values_of(self.body)
        return tuple(self.ctx.facts.inline(inlined(index, own), whole=False) for index in indices)

    # ---- stores ----

    def _waiting(self) -> list[tirx.Stmt]:
        """Registers for elements that wait."""
        return [
            tirx.AllocBuffer(kept.tmp)
            for kept in self.kept.values()
            if not kept.loaded and not kept.words and not kept.number
        ]

    def _plan_stores(self) -> None:
        """Which stores wait for the vectors that the body writes element by element: all stores to a buffer,
        in their order, or none."""
        read = {load.source for stmt in walk(self.body) for e in expressions(stmt) for load in loads(e)}
        read -= updated_in_place(self.body)
        stores = [stmt for stmt in walk(self.body) if isinstance(stmt, Store) and stmt.buffer not in read]
        for buffer in dict.fromkeys(stmt.buffer for stmt in stores):
            own = [stmt for stmt in stores if stmt.buffer.same_as(buffer)]
            widths = [self._store_width(stmt) if stmt in self.body else 1 for stmt in own]
            if min(widths) > 1:
                for stmt, width in zip(own, widths, strict=True):
                    self._keep(stmt, width)
            elif all(stmt in self.body for stmt in own):
                self._keep_together(own)
        self._plan_additions()

    def _store_width(self, stmt: Store | RemoteStore) -> int:
        """How many elements one access of a store moves; 1 where they cannot wait for each other."""
        if stmt.buffer in self.ctx.fragments:
            return self.width if isinstance(stmt, Store) and self._is_paired_fragment(stmt) else 1
        if not self._may_wait(stmt):
            return 1
        indices = tuple(self.ctx.facts.inline(index) for index in stmt.indices)
        return vector_width(stmt.buffer, indices, self.var, self._limit(stmt.buffer), self.ctx.facts)

    def _may_wait(self, stmt: Store | RemoteStore) -> bool:
        """Whether the elements that a store writes to memory may wait for each other."""
        inner = {bind.var for bind in walk(self.body) if isinstance(bind, Bind)}
        indices = tuple(self.ctx.facts.inline(index) for index in stmt.indices)
        waits = self._is_memory(stmt.buffer) or self._is_of_quads(stmt)
        if not waits or any(uses(index, inner) for index in indices):
            return False
        return not any(load.source in self.written for index in indices for load in loads(index))

    def _keep_together(self, stores: Sequence[Store]) -> None:
        """Registers for stores to a buffer that together write neighbours, where they do."""
        first, *_ = stores
        found = self._comb(Access(first.buffer, first.indices, True))
        if found is None or len(found[2]) != len(stores) or not all(map(self._may_wait, stores)):
            return
        comb, width, members = found
        paired = all(map(self._is_unrounded, stores))
        size = comb.stride * self.width
        tmp = self._registers(first.buffer, "w", size, "float32" if paired else "")
        for number, item in enumerate(members):
            (store,) = (stmt for stmt in stores if same_all(stmt.indices, item.indices))
            self.kept[store] = Kept(store, tmp, width, paired, stride=comb.stride, number=number)
            self.moved.append(Moved(item, width))

    def _plan_additions(self) -> None:
        """Registers for the vectors of elements that the body adds to in memory, and touches in no other
        way."""
        touched = [item.buffer for item in accesses(self.body)]
        for stmt in self.body:
            if not isinstance(stmt, Atomic) or touched.count(stmt.buffer) > 2:
                continue
            width = self._added_width(stmt) if is_added(stmt) else self._sent_width(stmt)
            if width > 1:
                self.moved.append(Moved(Access(stmt.buffer, stmt.indices, False), width))
                self._keep(stmt, width)

    def _added_width(self, stmt: Atomic) -> int:
        """How many neighbours one instruction adds to; 1 where they cannot wait for each other."""
        most = min(self.width, added_at_once(self.ctx.target, str(stmt.buffer.dtype)))
        indices = tuple(self.ctx.facts.inline(index) for index in stmt.indices)
        inner = {bind.var for bind in walk(self.body) if isinstance(bind, Bind)}
        if stmt.buffer.scope() != "global" or any(uses(index, inner) for index in indices):
            return 1
        if any(load.source in self.written for index in indices for load in loads(index)):
            return 1
        return vector_width(stmt.buffer, indices, self.var, most, self.ctx.facts)

    def _sent_width(self, stmt: Atomic) -> int:
        """How many neighbours go to another block at once, of four bytes at least."""
        if not isinstance(stmt, RemoteStore):
            return 1
        width = self._store_width(stmt)
        return width if width * element_bytes(str(stmt.buffer.dtype)) >= SENT_AT_LEAST else 1

    def _is_paired_fragment(self, stmt: Store) -> bool:
        """Whether the elements of a vector are rounded in pairs and lie in registers one after the other."""
        index, layout = stmt.indices[-1], self.ctx.fragments[stmt.buffer].layout
        first = layout.digits[-1][0] if layout.digits[-1] else None
        if first is None or (first.space, first.stride) != ("reg", 1) or first.size % self.width:
            return False
        others = any(uses(each, (self.var,)) for each in stmt.indices[:-1])
        alone = index.same_as(self.var) and not others
        if isinstance(self.stmt, AheadLoop):
            return alone and element_bytes(str(stmt.buffer.dtype)) == _HALF
        if isinstance(stmt.value, TensorLoad) or not alone:
            return False
        return str(stmt.buffer.dtype) in PAIRED or bool(self._quads(stmt))

    def _keep(self, stmt: Store | Atomic, width: int) -> None:
        if self._is_memory(stmt.buffer):
            self.moved.append(Moved(Access(stmt.buffer, stmt.indices, True), width))
        loaded = next(
            (tmp for load, tmp, steps in self.held
             if _is_moved(stmt) and same(load, stmt.value) and steps == tuple(range(self.width))),
            None,
        )  # fmt: skip
        if loaded is not None:
            self.kept[stmt] = Kept(stmt, loaded, width, loaded=True)
            return
        unrounded = self._is_unrounded(stmt)
        tmp = self._registers(stmt.buffer, "w", self.width, "float32" if unrounded else "")
        self.kept[stmt] = Kept(stmt, tmp, width, unrounded)

    def _is_unrounded(self, stmt: Store | Atomic) -> bool:
        """Whether elements wait as float32, to be rounded in pairs."""
        return not _is_moved(stmt) and self.ctx.is_paired(stmt.value, str(stmt.buffer.dtype))

    def _flush(self) -> list[tirx.Stmt]:
        parts: list[tirx.Stmt] = []
        for kept in (kept for kept in self.kept.values() if not kept.number):
            buffer, tmp, size = kept.store.buffer, kept.tmp, kept.stride * self.width
            indices = self._spelled(kept.store.indices)
            if kept.words:
                tmp = self._registers(buffer, "p", len(kept.words), "uint32")
                made = [
                    tirx.BufferStore(tmp, word, [tirx.const(number, "int32")])
                    for number, word in enumerate(kept.words)
                ]
                parts += [tirx.AllocBuffer(tmp), *made]
            elif kept.unrounded:
                words = "uint32" if str(buffer.dtype) in PAIRED else "uint16"
                tmp = self._registers(buffer, "p", size // 2, words)
                pairs = packed_pairs(kept.tmp, tmp, size, str(buffer.dtype))
                parts += [tirx.AllocBuffer(tmp), *pairs]
            if buffer in self.ctx.fragments:
                parts += store_registers(buffer, indices, tmp, self.width, self.ctx)
                continue
            firsts = range(0, self.width, kept.width // kept.stride)
            parts += self._chunks(buffer, indices, tmp, kept.width, _move_of(kept.store), firsts)
        return parts


def _move_of(stmt: Store | Atomic) -> Callable[..., tirx.Stmt]:
    """What writes a vector of a statement."""
    if isinstance(stmt, RemoteStore):
        return lambda _, *rest: sent_vector(stmt, *rest)
    return store_vector if isinstance(stmt, Store) else added_vector


def _is_moved(stmt: Store | Atomic) -> bool:
    """Whether what is stored is an element as it is."""
    return isinstance(stmt.value, TensorLoad) and str(stmt.value.source.dtype) == str(stmt.buffer.dtype)


def is_added(stmt: Atomic) -> bool:
    """Whether an update adds to an element and asks for nothing else."""
    return stmt.kind == "add" and stmt.prev is None and stmt.order == "relaxed"


def _chosen(test: Expr, then: tirx.Stmt | None, orelse: tirx.Stmt | None) -> tirx.Stmt | None:
    """Both sides of a branch, either of which may be nothing."""
    if then is None:
        return None if orelse is None else guarded(orelse, [tirx.Not(test)])
    return tirx.IfThenElse(test, then, orelse)


def _depth(load: TensorLoad, ctx: DeviceContext) -> int:
    """How many reads one after the other lead to the place of a read."""
    inner = (each for index in load.indices for each in loads(ctx.facts.inline(index)))
    return max((1 + _depth(each, ctx) for each in inner), default=0)
