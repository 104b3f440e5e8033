"""What a config has its blocks do: products, bytes, elements; counted in its tile IR as texts over dims.

A count is a product of trip counts, each a text over dims and over the block's index, which is taken in the
middle of the grid: loops whose length depends on the block (causal attention) count with their mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tilec.build.schedules.cost_texts import unrounded
from tilec.errors import UnsupportedError
from tilec.sizes import SIZES, evaluate

if TYPE_CHECKING:
    from tilec.ir.nodes import Block, Kernel, Region, Stmt


@dataclass(frozen=True)
class Term:
    """``flops`` of products, ``traffic`` bytes between global memory and tiles, ``elements`` that loops of
    T.Parallel compute; done in launch number ``launch`` so many times as the product of ``counts`` says.
    ``dtype``: of the operands of the products."""

    counts: tuple[str, ...]
    flops: int = 0
    traffic: int = 0
    elements: int = 0
    dtype: str = ""
    launch: int = 0


class Totals(NamedTuple):
    """Operations of products, bytes between global memory and tiles, elements, and how many ``products``."""

    flops: float
    traffic: float
    elements: float
    products: float


@dataclass(frozen=True)
class Terms:
    """The terms of a kernel of so many ``launches``; ``middles``: names of block indices and the texts of
    their middles. ``known``: False where a loop's length is in the data."""

    terms: tuple[Term, ...]
    middles: tuple[tuple[str, str], ...] = ()
    known: bool = True
    launches: int = 1

    @property
    def dtype(self) -> str:
        """The type of the operands of the products; "" without products."""
        return next((term.dtype for term in self.terms if term.flops), "")

    def totals(self, dims: Mapping[str, int], launch: int, *, padded: bool = True) -> Totals:
        """What one launch does; ``padded``: of whole tiles."""
        names: dict[str, Any] = dict(dims)
        for name, text in self.middles:
            names[name] = evaluate(SIZES, text, names)
        flops = traffic = elements = products = 0.0
        count = partial(evaluate, SIZES) if padded else unrounded
        for term in self.terms:
            if term.launch == launch:
                times = math.prod(max(count(text, names), 0) for text in term.counts)
                flops, traffic = flops + term.flops * times, traffic + term.traffic * times
                elements, products = elements + term.elements * times, products + (times if term.flops else 0)
        return Totals(flops, traffic, elements, products)


def terms_of(kernel: Kernel) -> Terms:
    """The terms of a kernel's tile IR."""
    counter = _Counter(kernel)
    for stmt in kernel.body:
        counter.visit(stmt, ())
    return Terms(tuple(counter.terms), tuple(counter.middles), counter.known, len(kernel.launches))


class _Counter:
    def __init__(self, kernel: Kernel) -> None:
        self.terms: list[Term] = []
        self.middles: list[tuple[str, str]] = []
        self.known = True
        self._launches = 0
        self.names: dict[Any, str] = {dim.var: dim.name for dim in kernel.dims if dim.var is not None}

    def visit(self, stmt: Stmt, counts: tuple[str, ...]) -> None:
        """Adds the terms of a statement that runs as often as ``counts`` say."""
        from tilec.ir import nodes

        if isinstance(stmt, nodes.Launch):
            self._launch(stmt, counts)
        elif isinstance(stmt, nodes.Bind):
            self._bind(stmt.var, stmt.value)
        elif isinstance(stmt, (nodes.For, nodes.Pipelined)):
            self._loop(stmt, counts)
        elif isinstance(stmt, nodes.PRODUCTS):
            self._product(stmt, counts)
        elif isinstance(stmt, nodes.Copy):
            self._copy(stmt, counts)
        elif isinstance(stmt, nodes.Parallel):
            self._parallel(stmt, counts)
        else:
            for block in nodes.children(stmt):
                self._block(block, counts)

    def _block(self, block: Block, counts: tuple[str, ...]) -> None:
        for stmt in block:
            self.visit(stmt, counts)

    def _launch(self, launch: Any, counts: tuple[str, ...]) -> None:
        texts = tuple(self._text(extent, "1") for extent in launch.grid)
        for number, (var, text) in enumerate(zip(launch.block_vars, texts, strict=False)):
            name = f"block_{len(self.middles)}_{number}"
            self.names[var] = name
            self.middles.append((name, f"({text}) // 2"))
        self._block(launch.body, (*counts, *texts))
        self._launches += 1

    def _loop(self, loop: Any, counts: tuple[str, ...]) -> None:
        start, stop = self._text(loop.start, "0"), self._text(loop.stop, "1")
        step = self._text(getattr(loop, "step", 1), "1")
        trips = f"({stop} - ({start}) + {step} - 1) // ({step})"
        self.names[loop.var] = f"(({start}) + ({stop})) // 2"
        self._block(loop.body, (*counts, trips))

    def _bind(self, var: Any, value: Any) -> None:
        from tilec.lowering.emission.texts import int_text

        try:
            self.names[var] = f"({int_text(value, self.names)})"
        except UnsupportedError:
            return  # a loop that needs it says so

    def _text(self, value: Any, otherwise: str) -> str:
        from tilec.lowering.emission.texts import int_text

        try:
            return int_text(value, self.names)
        except UnsupportedError:
            self.known = False
            return otherwise

    def _product(self, gemm: Any, counts: tuple[str, ...]) -> None:
        from tilec.ir import nodes
        from tilec.ir.small_floats import number_type, numbers_of

        sides = [_sides(region) for region in (gemm.a, gemm.c)]
        if any(side is None for side in sides):
            self.known = False
            return
        (a_rows, a_columns), (rows, columns) = sides[0] or (0, 0), sides[1] or (0, 0)
        depth = a_rows if gemm.trans_a else a_columns
        dtype = str(gemm.a.buffer.dtype)
        if isinstance(gemm, nodes.ScaledGemm):
            dtype, depth = number_type(gemm.a), depth * (1 if gemm.trans_a else numbers_of(gemm.a))
        self._add(Term(counts, flops=2 * rows * columns * depth, dtype=dtype))

    def _copy(self, copy: Any, counts: tuple[str, ...]) -> None:
        for region in (copy.src, copy.dst):
            if region.buffer.scope() == "global":
                count = math.prod(_extents(region))
                self._add(Term(counts, traffic=count * _bytes(region)))

    def _parallel(self, loop: Any, counts: tuple[str, ...]) -> None:
        extents = tuple(self._text(extent, "1") for extent in loop.extents)
        self._add(Term((*counts, *extents), elements=1))
        self._block(loop.body, (*counts, *extents))

    def _add(self, term: Term) -> None:
        self.terms.append(replace(term, launch=self._launches))


def _extents(region: Region) -> Iterator[int]:
    """Extents of a region; 1 for those that are no integers."""
    for extent in region.extent:
        value = extent if isinstance(extent, int) else getattr(extent, "value", 1)
        yield int(value)


def _sides(region: Region) -> tuple[int, int] | None:
    extents = list(_extents(region))[-2:]
    return (extents[0], extents[1]) if len(extents) == 2 else None


def _bytes(region: Region) -> int:
    from tilec.dtypes import lookup

    return max(lookup(str(region.buffer.dtype)).bits // 8, 1)
