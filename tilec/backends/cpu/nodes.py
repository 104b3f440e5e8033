"""Statements that CPU lowering adds to the tile IR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cpu.products.tir import FIRST
from tilec.ir.exprs import int_value
from tilec.ir.nodes import is_global
from tilec.ir.roads import Loss
from tilec.ir.stmt import Aside, At, Block, Defines, Region, Scratch, Stmt, Updates, Writes
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import compute_type

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer

#: Rows of ``b`` up to this many elements are a panel as they are.
_PANEL = 64

#: Panels of ``b`` up to which rows of ``a`` are read in place: so few passes are over before a copy pays.
_FEW_PANELS = 4
#: Rows up to which a product waits for its ``b`` rather than for multipliers.
_WAITING_ROWS = 16


@dataclass(frozen=True)
class RegisterBlock:
    """The block of the accumulator that stays in vector registers over a whole K loop.

    ``rows`` x ``cols`` elements in vectors of ``lanes`` elements; ``unroll`` K steps a trip. ``form`` names
    what one step is: "fma" multiplies one K element, "across" has its vectors along K and takes ``unroll``
    elements a trip (`across_tile`), by the instruction of the dot form ``along`` or by multiply-adds; the
    others are those of `dot_forms`. ``ahead`` K elements or words of a row of ``a`` are read at once, where
    they lie side by side: products take them by lane. ``halves``: float16 is multiplied and summed as it
    is. ``beside`` vectors of another block of the same rows are multiplied in the same steps."""

    rows: int
    cols: int
    lanes: int
    unroll: int
    form: str = "fma"
    ahead: int = 1
    halves: bool = False
    along: str = ""
    beside: int = 0

    @property
    def vectors(self) -> int:
        """Whole vectors of one row."""
        return self.cols // self.lanes


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix in a buffer: its element (r, c) is ``region.start`` plus r on axis ``row``, c on axis ``col``.

    With a ``panel`` axis the columns come in panels as wide as the extent of ``col``: column c is c %
    width on ``col`` and c // width on ``panel``."""

    region: Region
    row: int
    col: int
    panel: int | None = None

    @property
    def width(self) -> int | Expr:
        """Columns of one panel; all of them without a panel axis."""
        return self.region.extent[self.col]

    @property
    def side_by_side(self) -> bool:
        """Whether the elements of a row are neighbours in memory."""
        strides = self.region.buffer.strides
        return self.col == len(self.region.start) - 1 and (not len(strides) or int_value(strides[-1]) == 1)


def element(matrix: Matrix, row: Expr, col: Expr) -> tuple[Expr, ...]:
    """The buffer indices of element (row, col) of ``matrix``; neither is negative."""
    indices = list(matrix.region.start)
    indices[matrix.row] = indices[matrix.row] + row
    if matrix.panel is None:
        indices[matrix.col] = indices[matrix.col] + col
        return tuple(indices)
    indices[matrix.panel] = indices[matrix.panel] + col // matrix.width
    indices[matrix.col] = indices[matrix.col] + col % matrix.width
    return tuple(indices)


@dataclass(frozen=True, eq=False)
class TransposePanels(Stmt):
    """``dst[c // width, k, c % width] = src[k, c]`` for ``src`` whose rows index its fastest axis.

    ``src`` has all of these, its extents are build-time multiples of ``lanes``; the width of ``dst`` is one
    too."""

    src: Matrix
    dst: Writes[Region]
    lanes: int


@dataclass(frozen=True, eq=False)
class PackPanels(Stmt):
    """``dst[c // width, k, c % width] = src[k, c]`` for k < ``rows`` and c < ``columns``.

    ``src`` has all of these, its columns side by side. The last panel holds 0 behind them, panels and rows
    beyond are left alone."""

    src: Matrix
    dst: Writes[Region]
    rows: int | Expr
    columns: int | Expr
    lanes: int


@dataclass(frozen=True, eq=False)
class PackWords(Stmt):
    """``dst[c // width, k, c % width]`` = the word of elements ``src[k * group : +group, c]``.

    ``src`` has all of these; its rows are a build-time multiple of the word's ``group``. Elements are
    converted first, as the word form ``form`` has them; words have the type of ``dst``. ``columns`` are
    packed, and of these as many ``rows``, whole words; None: all."""

    src: Matrix
    dst: Writes[Region]
    lanes: int
    form: str
    columns: int | Expr | None = None
    rows: int | Expr | None = None


@dataclass(frozen=True, eq=False)
class AskAhead(Stmt):
    """Where there is an element at ``indices``, asks for the one at ``ahead``, whether there is one or not:
    once for the lanes of a vector, in the cache ``near`` (`products.tir`), to ``write`` it or to read it."""

    buffer: Buffer
    indices: At[tuple[Expr, ...]]
    ahead: tuple[Expr, ...]
    near: int = FIRST
    write: bool = False


@dataclass(frozen=True, eq=False)
class MicroGemm(Stmt):
    """``c = (clear ? 0 : c) + a @ b`` by register blocks, each finished by the epilogue ``body``.

    ``a`` is (rows, depth), ``b`` (depth, columns), ``c`` (rows, columns); all three may be run-time
    expressions (no more than the tile has, possibly below zero: nothing is done). Where ``b`` is in panels
    the last one is computed to its end, which holds zeros. ``body`` runs once per element, with ``vars`` =
    (row, column) counted from the start of ``c``'s region. It reads and writes the buffers in ``registers``
    at that element alone; they exist per register block and never reach memory. A ``c`` outside of
    ``registers`` is loaded before and stored after. Where ``last`` does not hold, sums are stored to ``c`` in
    place of running ``body``, and loaded by a later product; None: it holds always. ``band`` is the tile that
    holds the rows of ``a`` of one register block at a time (`bands`); None: they are read where they lie.
    ``c_reach``: elements of ``c`` whose column is more than that behind their row are not wanted: blocks of
    nothing else are left out; None: all are wanted. ``a_reach``: elements of ``a`` so far behind their row
    may be zeros, which a product looks for and leaves out (`depths`); None: it does not look. Where
    ``in_place`` holds, the rows of ``a`` are read from ``a_place`` and ``a`` holds nothing; None: never.
    ``loss``: why the plain multiply-adds ("fma") are not faster instructions."""

    syntax = (
        "product(a, b, c, clear=, rows=, columns=, depth=, block=, registers=, last=, band=, "
        "c_reach=, a_reach=, a_place=, in_place=)"
    )

    a: Matrix
    b: Matrix
    c: Updates[Region]
    clear: Expr
    rows: int | Expr
    columns: int | Expr
    depth: int | Expr
    block: RegisterBlock
    vars: Defines[tuple[Var, Var]]
    body: Block = ()
    registers: Scratch[tuple[Buffer, ...]] = ()
    last: Expr | None = None
    band: Scratch[Buffer | None] = None
    c_reach: Expr | None = None
    a_reach: Expr | None = None
    a_place: Matrix | None = None
    in_place: Expr | None = None
    loss: Aside[Loss | None] = None

    @property
    def computed(self) -> str:
        """The type of the sums in registers, and of both operands of a plain multiply-add."""
        return "float16" if self.block.halves else compute_type(str(self.c.buffer.dtype))

    @property
    def reads_rows(self) -> bool:
        """Whether a ``b`` that is read in place has rows that are longer than a panel."""
        b = self.b.region.buffer
        in_place = self.block.form == "fma" and self.b.panel is None and is_global(b)
        return in_place and not is_panel(b)

    @property
    def has_few_panels(self) -> bool:
        """Whether rows of ``a`` meet so few panels of ``b`` that a copy of them does not pay."""
        return static(self.c.extent[-1]) <= _FEW_PANELS * self.block.cols

    @property
    def asks_ahead(self) -> bool:
        """Whether such rows are asked for while others are multiplied: not where many rows share few panels.
        They wait for each line once, and would take the time for prefetches each time."""
        rows = static(self.a.region.extent[self.a.row])
        return self.reads_rows and (rows <= _WAITING_ROWS or not self.has_few_panels)


@dataclass(frozen=True, eq=False)
class JoinedProducts(Stmt):
    """``products`` over the same rows and columns, by register blocks of one size: each block goes through
    all of them, in their order, before the next one begins. What they hand on is in the ``registers`` of each
    that touches it, and in these: it exists per register block and never reaches memory."""

    products: Block
    registers: Scratch[tuple[Buffer, ...]] = ()

    @property
    def parts(self) -> tuple[MicroGemm, ...]:
        """The products."""
        return tuple(stmt for stmt in self.products if isinstance(stmt, MicroGemm))


def is_panel(b: Var) -> bool:
    """Whether rows of ``b`` are so short that it is a panel as it is."""
    width = int_value(b.shape[-1])
    return width is not None and width <= _PANEL
