"""Words of several neighbours of a vector, each made at once, for stores that wait for all of the vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.backends.cuda.analysis.accesses.bit_fields import BYTES
from tilec.backends.cuda.device.floats import PAIRED
from tilec.backends.cuda.emit.loops.neighbours import QUAD
from tilec.backends.cuda.emit.loops.pairs import Pairs
from tilec.backends.cuda.emit.loops.quads import Quads
from tilec.backends.cuda.emit.loops.vector_scope import VectorScope
from tilec.ir.exprs import inlined, may_inline, reads
from tilec.ir.nodes import Atomic, Store
from tilec.lowering.analysis.accesses import values_of

if TYPE_CHECKING:
    from tvm.ir import Expr


class VectorWords:
    """The words that a vector stores."""

    def __init__(self, scope: VectorScope) -> None:
        self.scope = scope
        self._quads: dict[Store, tuple[Expr, ...]] = {}

    def pairs(self, store: Store | Atomic) -> tuple[Expr, ...]:
        """Words of two 16-bit elements each; nothing where they are made one by one."""
        dtype = str(store.buffer.dtype)
        return self._words(store, Pairs(**self._neighbours, dtype=dtype), 2) if dtype in PAIRED else ()

    def quads(self, store: Store | Atomic) -> tuple[Expr, ...]:
        """Words of four 8-bit elements each, made once; nothing where they are made one by one."""
        if not isinstance(store, Store) or str(store.buffer.dtype) not in BYTES or self.scope.width % QUAD:
            return ()
        if store not in self._quads:
            self._quads[store] = self._words(store, Quads(**self._neighbours), QUAD)
        return self._quads[store]

    def _words(self, store: Store | Atomic, made: Pairs | Quads, count: int) -> tuple[Expr, ...]:
        """Words of ``count`` elements each; nothing where one is none."""
        names = values_of(self.scope.body)
        if not may_inline([store.value], names):
            return ()
        value = inlined(store.value, names)
        if reads(value, self.scope.written):
            return ()
        words = [made.word(value, first) for first in range(0, self.scope.width, count)]
        return () if None in words else tuple(words)

    @property
    def _neighbours(self) -> dict[str, Any]:
        """The fields of `Neighbours`."""
        extent = dict(zip(self.scope.stmt.vars, self.scope.stmt.extents, strict=True))[self.scope.var]
        return {
            "ctx": self.scope.ctx,
            "var": self.scope.var,
            "width": self.scope.width,
            "extent": extent,
            "at": self.scope.at,
            "held": self.scope.held,
        }
