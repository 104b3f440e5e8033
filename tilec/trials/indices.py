"""What the elements of integer tensors are used for: indices along axes of other tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, TensorLoad, Var

    from tilec.ir.nodes import Kernel, Stmt


@dataclass(frozen=True)
class Indices:
    """``extents``: those of the axes that the elements index, texts over dims. ``are_bounds``: an element and
    its neighbour are used together, as where a stretch starts and ends."""

    extents: tuple[str, ...]
    are_bounds: bool


@lru_cache(maxsize=64)
def indices_of(ir_text: str) -> dict[str, Indices]:
    """Per integer tensor parameter whose elements are indices, what they index."""
    from tilec.ir.text.parser import parse_kernel

    return _Finder(parse_kernel(ir_text)).found()


@lru_cache(maxsize=64)
def gathered(ir_text: str) -> dict[str, tuple[str, ...]]:
    """Per tensor parameter whose first axis is indexed by elements of integer tensors alone (a table, the
    pages of a cache), the names of these."""
    from tilec.ir.text.parser import parse_kernel

    return _Finder(parse_kernel(ir_text)).gathered()


class _Finder:
    """Follows what is read from integer tensors through names to indices."""

    def __init__(self, kernel: Kernel) -> None:
        from tilec.ir.nodes import TensorParam, walk
        from tilec.lowering.analysis.accesses import values_of

        self.kernel = kernel
        tensors = [param for param in kernel.params if isinstance(param, TensorParam)]
        self.names = {tensor.buffer: tensor.name for tensor in tensors}
        self.extents = {tensor.buffer: tensor.extents for tensor in tensors}
        self.integers = {
            tensor.buffer: tensor.name for tensor in tensors if "int" in str(tensor.buffer.dtype)
        }
        self.values: Mapping[Var, Expr] = values_of(walk(kernel.body))

    def found(self) -> dict[str, Indices]:
        """The indices of all parameters."""
        from tilec.ir.nodes import walk

        extents: dict[str, dict[str, None]] = {}
        for stmt in walk(self.kernel.body):
            for buffer, indices in _accesses(stmt):
                for index, extent in zip(indices, self.extents.get(buffer, ()), strict=False):
                    for load in self._reads(index):
                        extents.setdefault(self.integers[load.source], {})[extent] = None
        return {name: Indices(tuple(given), self._are_bounds(name)) for name, given in extents.items()}

    def gathered(self) -> dict[str, tuple[str, ...]]:
        """The tensors that are indexed by integers of others."""
        from tilec.ir.nodes import walk

        found: dict[str, dict[str, None]] = {}
        for stmt in walk(self.kernel.body):
            for buffer, indices in _accesses(stmt):
                if buffer in self.names and indices:
                    source = self._looked_up(indices[0])
                    found.setdefault(self.names[buffer], {})[source] = None
        return {
            name: tuple(source for source in sources if source)
            for name, sources in found.items()
            if all(sources)
        }

    def _looked_up(self, index: Expr) -> str:
        """The parameter that an index is an element of, as it stands; empty for any other index."""
        from tvm import tirx
        from tvm.ir import TensorLoad, Var

        if isinstance(index, Var) and index in self.values:
            return self._looked_up(self.values[index])
        if isinstance(index, tirx.Cast):
            return self._looked_up(index.value)
        is_element = isinstance(index, TensorLoad) and index.source in self.integers
        return self.integers[index.source] if is_element else ""

    def _reads(self, expr: Expr) -> Iterator[TensorLoad]:
        """The elements of integer parameters that a value depends on, without those that say where."""
        from tvm.ir import TensorLoad, Var

        from tilec.ir.exprs import operands

        if isinstance(expr, TensorLoad):
            if expr.source in self.integers:
                yield expr
            return
        if isinstance(expr, Var) and expr in self.values:
            yield from self._reads(self.values[expr])
        for part in operands(expr):
            yield from self._reads(part)

    def _are_bounds(self, name: str) -> bool:
        """Whether two elements one apart are read."""
        from tvm import sym

        analyzer = sym.Analyzer()
        read = [load.indices[-1] for load in self._all_reads() if self.integers[load.source] == name]
        return any(
            getattr(analyzer.simplify(right - left), "value", None) == 1 for left in read for right in read
        )

    def _all_reads(self) -> Iterator[TensorLoad]:
        from tilec.ir.exprs import loads
        from tilec.ir.nodes import walk
        from tilec.ir.traits import expressions

        for stmt in walk(self.kernel.body):
            for expr in expressions(stmt):
                yield from (load for load in loads(expr) if load.source in self.integers)


def _accesses(stmt: Stmt) -> Iterator[tuple[Var, Sequence[Expr]]]:
    """The buffers that a statement names, each with the indices of an element or of the start of a region."""
    from tilec.ir.exprs import loads
    from tilec.ir.nodes import Atomic, Store
    from tilec.ir.traits import expressions, regions

    for expr in expressions(stmt):
        yield from ((load.source, tuple(load.indices)) for load in loads(expr))
    yield from ((region.buffer, region.start) for region in regions(stmt))
    if isinstance(stmt, (Store, Atomic)):
        yield stmt.buffer, stmt.indices
