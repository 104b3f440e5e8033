"""Sums of the lanes of several vectors at once."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.products.tir import index
from tilec.ir.exprs import dtype_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.ir import Expr


def totals_of(
    vectors: list[Expr], parts: list[tirx.Stmt], add: Callable[[Expr, Expr], Expr] = operator.add
) -> Expr:
    """The sums of the lanes of each of the vectors, a power of two of them and no more than they have lanes,
    side by side; what computes them goes to the end of ``parts``. ``add`` makes a sum of two vectors.

    A vector has equal groups of lanes, one for each sum. Two of them add the halves of their groups, which
    leaves one vector of twice as many groups."""
    groups, lanes = 1, vectors[0].ty.dtype.lanes
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_halved(list(pair), lanes // groups, parts, add) for pair in pairs]
        groups *= 2
    (vector,) = vectors
    while vector.ty.dtype.lanes > groups:
        vector = _halved([vector], vector.ty.dtype.lanes // groups, parts, add)
    return vector


def _halved(
    vectors: list[Expr], group: int, parts: list[tirx.Stmt], add: Callable[[Expr, Expr], Expr]
) -> Expr:
    """The first halves of all groups of ``group`` lanes plus the second ones."""
    names = [tirx.Var("v", dtype_of(vector)) for vector in vectors]
    parts += [tirx.Bind(name, vector) for name, vector in zip(names, vectors, strict=True)]
    lanes = [lane for lane in range(len(names) * names[0].ty.dtype.lanes) if lane % group < group // 2]
    low, high = ([index(lane + shift) for lane in lanes] for shift in (0, group // 2))
    return add(tirx.Shuffle(names, low), tirx.Shuffle(names, high))
