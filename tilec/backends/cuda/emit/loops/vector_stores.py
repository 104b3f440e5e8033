"""What a vector of iterations writes to memory, and adds to it, behind its body: elements wait until all of
the vector are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.accesses.vectors import vector_width
from tilec.backends.cuda.device.floats import PAIRED
from tilec.backends.cuda.emit.loops.access_notes import Moved
from tilec.backends.cuda.emit.loops.vector_moves import (
    added_vector,
    packed_pairs,
    store_registers,
    store_vector,
)
from tilec.backends.cuda.emit.loops.vector_scope import VectorScope
from tilec.backends.cuda.emit.loops.vector_words import VectorWords
from tilec.backends.cuda.emit.statements import emit
from tilec.backends.cuda.emit.threads.cluster import SENT_AT_LEAST, sent_vector
from tilec.backends.cuda.limits import added_at_once, has_tma
from tilec.backends.cuda.nodes import AheadLoop, RemoteStore
from tilec.ir.exprs import loads, same, same_all, uses
from tilec.ir.nodes import Atomic, Bind, Stmt, Store, walk
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.accesses import Access, accesses, updated_in_place
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


class VectorStores:
    """The stores of a vector that wait, and what they wait in."""

    def __init__(self, scope: VectorScope) -> None:
        self.scope, self.ctx = scope, scope.ctx
        self.body, self.var, self.width = scope.body, scope.var, scope.width
        self.words = VectorWords(scope)
        self.kept: dict[Stmt, Kept] = {}

    def plan(self) -> None:
        """Which stores wait for the vectors that the body writes element by element: all stores to a buffer,
        in their order, or none."""
        read = {load.source for load in loads_of(*walk(self.body))}
        read -= updated_in_place(self.body, self.var, self.scope.stmt.extents[-1])
        stores = [stmt for stmt in walk(self.body) if isinstance(stmt, Store) and stmt.buffer not in read]
        for buffer in dict.fromkeys(stmt.buffer for stmt in stores):
            own = [stmt for stmt in stores if stmt.buffer.same_as(buffer)]
            widths = [self.width_of(stmt) if stmt in self.body else 1 for stmt in own]
            if min(widths) > 1:
                for stmt, width in zip(own, widths, strict=True):
                    self._keep(stmt, width)
            elif all(stmt in self.body for stmt in own):
                self._keep_together(own)
        self._plan_additions()

    def width_of(self, stmt: Store | RemoteStore) -> int:
        """How many elements one access of a store moves; 1 where they cannot wait for each other."""
        if stmt.buffer in self.ctx.fragments:
            return self.width if isinstance(stmt, Store) and self._is_paired_fragment(stmt) else 1
        if not self._may_wait(stmt):
            return 1
        indices = tuple(self.ctx.facts.inline(index) for index in stmt.indices)
        return vector_width(stmt.buffer, indices, self.var, self.scope.limit(stmt.buffer), self.ctx.facts)

    def _may_wait(self, stmt: Store | RemoteStore) -> bool:
        """Whether the elements that a store writes to memory may wait for each other."""
        inner = {bind.var for bind in walk(self.body) if isinstance(bind, Bind)}
        indices = tuple(self.ctx.facts.inline(index) for index in stmt.indices)
        waits = self.scope.is_memory(stmt.buffer) or self._is_of_quads(stmt)
        if not waits or any(uses(index, inner) for index in indices):
            return False
        return not any(load.source in self.scope.written for index in indices for load in loads(index))

    def _keep_together(self, stores: Sequence[Store]) -> None:
        """Registers for stores to a buffer that together write neighbours, where they do."""
        first, *_ = stores
        found = self.scope.comb(Access(first.buffer, first.indices, True))
        if found is None or len(found[2]) != len(stores) or not all(map(self._may_wait, stores)):
            return
        comb, width, members = found
        paired = all(map(self._is_unrounded, stores))
        size = comb.stride * self.width
        tmp = self.scope.registers(first.buffer, "w", size, "float32" if paired else "")
        for number, item in enumerate(members):
            (store,) = (stmt for stmt in stores if same_all(stmt.indices, item.indices))
            self.kept[store] = Kept(store, tmp, width, paired, stride=comb.stride, number=number)
            self.scope.moved.append(Moved(item, width))

    def _plan_additions(self) -> None:
        """Registers for the vectors of elements that the body adds to in memory, and touches in no other
        way."""
        touched = [item.buffer for item in accesses(self.body)]
        for stmt in self.body:
            if not isinstance(stmt, Atomic) or touched.count(stmt.buffer) > 2:
                continue
            width = self._added_width(stmt) if is_added(stmt) else self._sent_width(stmt)
            if width > 1:
                self.scope.moved.append(Moved(Access(stmt.buffer, stmt.indices, False), width))
                self._keep(stmt, width)

    def _added_width(self, stmt: Atomic) -> int:
        """How many neighbours one instruction adds to; 1 where they cannot wait for each other."""
        most = min(self.width, added_at_once(self.ctx.target, str(stmt.buffer.dtype)))
        indices = tuple(self.ctx.facts.inline(index) for index in stmt.indices)
        inner = {bind.var for bind in walk(self.body) if isinstance(bind, Bind)}
        if stmt.buffer.scope() != "global" or any(uses(index, inner) for index in indices):
            return 1
        if any(load.source in self.scope.written for index in indices for load in loads(index)):
            return 1
        return vector_width(stmt.buffer, indices, self.var, most, self.ctx.facts)

    def _sent_width(self, stmt: Atomic) -> int:
        """How many neighbours go to another block at once, of four bytes at least."""
        if not isinstance(stmt, RemoteStore):
            return 1
        width = self.width_of(stmt)
        return width if width * element_bytes(str(stmt.buffer.dtype)) >= SENT_AT_LEAST else 1

    def _is_paired_fragment(self, stmt: Store) -> bool:
        """Whether the elements of a vector are rounded in pairs and lie in registers one after the other."""
        index, layout = stmt.indices[-1], self.ctx.fragments[stmt.buffer].layout
        first = layout.digits[-1][0] if layout.digits[-1] else None
        if first is None or (first.space, first.stride) != ("reg", 1) or first.size % self.width:
            return False
        others = any(uses(each, (self.var,)) for each in stmt.indices[:-1])
        alone = index.same_as(self.var) and not others
        if isinstance(self.scope.stmt, AheadLoop):
            return alone and element_bytes(str(stmt.buffer.dtype)) == _HALF
        if isinstance(stmt.value, TensorLoad) or not alone:
            return False
        return str(stmt.buffer.dtype) in PAIRED or bool(self.words.quads(stmt))

    def _is_of_quads(self, stmt: Store | RemoteStore) -> bool:
        """Whether what a thread keeps for itself is made four bytes at a time."""
        return isinstance(stmt, Store) and stmt.buffer.scope() == "local" and bool(self.words.quads(stmt))

    def _keep(self, stmt: Store | Atomic, width: int) -> None:
        if self.scope.is_memory(stmt.buffer):
            self.scope.moved.append(Moved(Access(stmt.buffer, stmt.indices, True), width))
        loaded = next(
            (tmp for load, tmp, steps in self.scope.held
             if _is_moved(stmt) and same(load, stmt.value) and steps == tuple(range(self.width))),
            None,
        )  # fmt: skip
        if loaded is not None:
            self.kept[stmt] = Kept(stmt, loaded, width, loaded=True)
            return
        unrounded = self._is_unrounded(stmt)
        tmp = self.scope.registers(stmt.buffer, "w", self.width, "float32" if unrounded else "")
        self.kept[stmt] = Kept(stmt, tmp, width, unrounded)

    def _is_unrounded(self, stmt: Store | Atomic) -> bool:
        """Whether elements wait as float32, to be rounded in pairs."""
        return not _is_moved(stmt) and self.ctx.is_paired(stmt.value, str(stmt.buffer.dtype))

    def pair_up(self) -> None:
        """Stores whose neighbours are made together."""
        for stmt, kept in self.kept.items():
            if kept.stride > 1 or kept.loaded:
                continue
            paired = kept.unrounded and has_tma(self.ctx.target)
            words = self.words.pairs(kept.store) if paired else self.words.quads(kept.store)
            if words:
                self.kept[stmt] = replace(kept, words=words)

    def made(self, stmt: Stmt, element: int) -> tirx.Stmt | None:
        """A statement of the body at an iteration: what waits goes to its register, words are made later."""
        kept = self.kept.get(stmt)
        if kept is None:
            return emit(stmt, self.ctx)
        if kept.loaded or kept.words:
            return None
        value, dtype = kept.store.value, str(kept.store.buffer.dtype)
        made = self.ctx.unrounded(value, dtype) if kept.unrounded else self.ctx.stored(value, dtype)
        at = kept.stride * element + kept.number
        return tirx.BufferStore(kept.tmp, made, [tirx.const(at, "int32")])

    def waiting(self) -> list[tirx.Stmt]:
        """Registers for elements that wait."""
        return [
            tirx.AllocBuffer(kept.tmp)
            for kept in self.kept.values()
            if not kept.loaded and not kept.words and not kept.number
        ]

    def flush(self) -> list[tirx.Stmt]:
        """Writes what waits."""
        parts: list[tirx.Stmt] = []
        for kept in (kept for kept in self.kept.values() if not kept.number):
            buffer, tmp, size = kept.store.buffer, kept.tmp, kept.stride * self.width
            indices = self.scope.spelled(kept.store.indices)
            if kept.words:
                tmp = self.scope.registers(buffer, "p", len(kept.words), "uint32")
                made = [
                    tirx.BufferStore(tmp, word, [tirx.const(number, "int32")])
                    for number, word in enumerate(kept.words)
                ]
                parts += [tirx.AllocBuffer(tmp), *made]
            elif kept.unrounded:
                words = "uint32" if str(buffer.dtype) in PAIRED else "uint16"
                tmp = self.scope.registers(buffer, "p", size // 2, words)
                pairs = packed_pairs(kept.tmp, tmp, size, str(buffer.dtype))
                parts += [tirx.AllocBuffer(tmp), *pairs]
            if buffer in self.ctx.fragments:
                parts += store_registers(buffer, indices, tmp, self.width, self.ctx)
                continue
            firsts = range(0, self.width, kept.width // kept.stride)
            parts += self.scope.chunks(buffer, indices, tmp, kept.width, _move_of(kept.store), firsts)
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
