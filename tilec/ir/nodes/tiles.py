"""Statements on tiles: copies, products, reductions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tilec.ir.hints import Hints
from tilec.ir.reductions import REDUCTIONS
from tilec.ir.stmt import Region, Stmt, Updates, Writes

if TYPE_CHECKING:
    from tvm.ir import Expr


REDUCE_KINDS = tuple(REDUCTIONS)
SCAN_KINDS = ("sum", "max")


@dataclass(frozen=True, eq=False)
class Copy(Stmt):
    """``dst[...] = cast(src[...])`` elementwise. Extent-1 axes aside, both sides have the same extents in
    order; they are already resolved by the rules of the language (the faster memory decides)."""

    syntax = "copy(src, dst, hints=)"

    src: Region
    dst: Writes[Region]
    hints: Hints = field(default_factory=Hints)


@dataclass(frozen=True, eq=False)
class Fill(Stmt):
    """``dst[...] = value`` (a scalar of the buffer's dtype)."""

    dst: Writes[Region]
    value: Expr


@dataclass(frozen=True, eq=False)
class Gemm(Stmt):
    """``c = (clear ? 0 : c) + op(a) @ op(b)``. Regions have extent-1 leading axes beyond the last two.
    a: (M, K) or (K, M) if trans_a; b: (K, N) or (N, K) if trans_b; c: (M, N). ``clear`` is a bool
    expression."""

    syntax = "gemm(a, b, c, trans_a=, trans_b=, clear=, policy=)"

    a: Region
    b: Region
    c: Updates[Region]
    trans_a: bool
    trans_b: bool
    clear: Expr
    policy: int = 0


@dataclass(frozen=True, eq=False)
class SparseGemm(Stmt):
    """A Gemm whose left operand has two values in each group of four along K: ``a`` holds those, (M, K/2),
    ``e`` which ones they are, (M, K/w) integers of w bits, row by row a string of bits: four for each group
    from the lowest on, two for the place of the first value and two for that of the second, behind it
    (PTX ISA, "Sparse matrix storage"). ``trans_a`` and ``trans_e``: stored (K/2, M), (K/w, M)."""

    syntax = "gemm_sp(a, e, b, c, trans_a=, trans_e=, trans_b=, clear=, policy=)"

    a: Region
    e: Region
    b: Region
    c: Updates[Region]
    trans_a: bool
    trans_e: bool
    trans_b: bool
    clear: Expr
    policy: int = 0


@dataclass(frozen=True, eq=False)
class ScaledGemm(Stmt):
    """A Gemm of 8- and 4-bit floats with scales: each element of ``a`` and ``b`` counts times the one of
    ``sfa`` (M, K/group) or ``sfb`` (N, K/group) for its row of A or column of B and its ``group`` neighbours
    along K. Bytes (uint8) of ``a`` and ``b`` are two float4_e2m1fn each, side by side along the last axis,
    the first one in the low nibble; those of ``sfa`` and ``sfb`` float8_e8m0fnu."""

    syntax = "gemm_blockscaled(a, b, c, sfa, sfb, group=, trans_a=, trans_b=, clear=, policy=)"

    a: Region
    b: Region
    c: Updates[Region]
    sfa: Region
    sfb: Region
    group: int
    trans_a: bool
    trans_b: bool
    clear: Expr
    policy: int = 0


#: Products of tiles.
PRODUCTS = (Gemm, SparseGemm, ScaledGemm)
#: Those without scales.
Unscaled: TypeAlias = Gemm | SparseGemm


@dataclass(frozen=True, eq=False)
class Reduce(Stmt):
    """``dst = combine(clear ? identity : dst, reduction of src along axis)``; src elements are cast to dst's
    dtype first. dst has src's extents with ``axis`` removed, or 1 there. kind: one of REDUCE_KINDS."""

    syntax = "reduce_{kind}(src, dst, axis=, clear=!, nan_propagate=)"
    kinds = REDUCE_KINDS

    kind: str
    src: Region
    dst: Updates[Region]
    axis: int
    clear: bool
    nan_propagate: bool = False

    @property
    def update(self) -> str:
        """What is cleared first is not read."""
        return "writes" if self.clear else "updates"


@dataclass(frozen=True, eq=False)
class Scan(Stmt):
    """``dst`` = the inclusive scan of ``src`` along ``axis``: element k combines elements 0 to k, with
    ``reverse`` elements k to the last. Elements of src are cast to dst's dtype first; both regions have the
    same extents and are one and the same or do not overlap. kind: one of SCAN_KINDS; max ignores NaN."""

    syntax = "scan_{kind}(src, dst, axis=, reverse=)"
    kinds = SCAN_KINDS

    kind: str
    src: Region
    dst: Writes[Region]
    axis: int
    reverse: bool = False
