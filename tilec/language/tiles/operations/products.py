"""Products of tiles: T.gemm, and T.gemm_sp of a sparse left operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilec import dtypes
from tilec.errors import SourceAssertionError, SourceError, SourceValueError
from tilec.ir import nodes as ir
from tilec.language.tiles.memory.boxes import Box, sized_box
from tilec.language.tiles.memory.views import View
from tilec.language.tiles.operations.stage_operands import tile_of, write_back
from tilec.language.tiles.operations.warp_policies import GemmWarpPolicy, warp_policy
from tilec.language.values.conversions import condition
from tilec.language.values.kernel.annotations import check_annotations
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.outside_parallel import product_builder

#: Operand dtype of a product -> the dtypes that its accumulator may have.
_PRODUCTS = {
    "float16": ("float32", "float16"),
    "bfloat16": ("float32",),
    "tfloat32": ("float32",),
    "float32": ("float32",),
    "float64": ("float64",),
    "int8": ("int32",),
    "uint8": ("int32",),
    "float8_e4m3fn": ("float32", "float16"),
    "float8_e5m2": ("float32", "float16"),
}

#: What to do about operands whose tiles do not agree.
_OF_SHAPES = "check the tile shapes and transpose_A / transpose_B"
#: Types of operands of which a product may have one of each.
_BYTES = {"int8", "uint8"}

#: What holds the places of values in sparse operands.
_PLACES = ("uint8", "int8", "uint16", "int16", "uint32", "int32")


def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: int = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    k_pack: Any = 1,
    wg_wait: int = 0,
    mbar: Any = None,
    annotations: Any = None,
) -> None:
    """``C += op(A) @ op(B)``; ``C = ...`` where ``clear_accum`` (a bool or a condition) holds.

    A is (M, K), or (K, M) if ``transpose_A``; B (K, N), or (N, K) if ``transpose_B``; C (M, N); leading axes
    have extent 1 and all extents are build-time integers. Raises `SourceAssertionError` for shapes that do
    not fit, `SourceValueError` for operands of different dtypes, `UnsupportedError` for a pair of dtypes
    without a product. ``policy``, ``k_pack`` and ``wg_wait`` are hints: C is complete when the product
    ends."""
    if mbar is not None or not isinstance(k_pack, int):
        raise unsupported(
            "T.gemm(mbar=...)", remedy="leave mbar out: the product is complete when T.gemm ends"
        )
    check_annotations("T.gemm", annotations)
    a, b, c = (sized_box(operand, "T.gemm") for operand in (A, B, C))
    check_product_scopes(a, b, c)
    _check_product_dtypes(a, b, c)
    check_product_shapes(matrix(a, transpose_A), matrix(b, transpose_B), matrix(c, False), a, b, c)
    left, right, sums = (tile_of(operand) for operand in (a, b, c))
    stmt = ir.Gemm(
        left.region(),
        right.region(),
        sums.region(),
        bool(transpose_A),
        bool(transpose_B),
        condition(clear_accum, "clear_accum"),
        warp_policy("T.gemm", policy),
        loc=loc(),
    )
    product_builder("T.gemm").emit(stmt, "T.gemm")
    if sums is not c:
        write_back(sums.buffer, c)


def wgmma_gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: int = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    annotations: Any = None,
) -> None:
    """`gemm` whose C nobody relies on before a ``T.wait_wgmma``; it is complete when the product ends."""
    check_annotations("T.wgmma_gemm", annotations)
    gemm(A, B, C, transpose_A, transpose_B, policy, clear_accum)


def gemm_sp(
    A_sparse: Any,
    E: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_E: bool = False,
    transpose_B: bool = False,
    policy: int = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    k_pack: int = 1,
    wg_wait: int = 0,
    annotations: Any = None,
) -> None:
    """`gemm` whose left operand has at most two values other than 0 in each group of four along K.

    A_sparse holds two values of each group, (M, K/2), or (K/2, M) if ``transpose_A``. E says where in their
    groups they are: (M, K/w) integers of w bits (8, 16 or 32), or (K/w, M) if ``transpose_E``, four bits a
    group, row by row from the lowest bit on, as `tilec.utils.sparse.compress` makes both. B and C are as in
    `gemm`; 16-bit and 8-bit operands. Raises as `gemm`, and `SourceValueError` for an E of another type."""
    name = "T.gemm_sp"
    check_annotations(name, annotations)
    a, e, b, c = (sized_box(operand, name) for operand in (A_sparse, E, B, C))
    check_product_scopes(a, b, c)
    _check_places(e)
    _check_product_dtypes(a, b, c)
    if dtypes.lookup(str(a.buffer.dtype)).bits > 16:
        raise unsupported(f"{name} of {a.buffer.dtype}", remedy="use 16-bit or 8-bit operands, or T.gemm")
    sides = [
        matrix(operand, turned)
        for operand, turned in ((a, transpose_A), (e, transpose_E), (b, transpose_B), (c, False))
    ]
    _check_sparse_shapes(sides, (a, e, b, c))
    left, right, sums = (tile_of(operand) for operand in (a, b, c))
    stmt = ir.SparseGemm(
        left.region(),
        e.region(),
        right.region(),
        sums.region(),
        bool(transpose_A),
        bool(transpose_E),
        bool(transpose_B),
        condition(clear_accum, "clear_accum"),
        warp_policy("T.gemm_sp", policy),
        loc=loc(),
    )
    product_builder(name).emit(stmt, name)
    if sums is not c:
        write_back(sums.buffer, c)


def _check_places(e: Box) -> None:
    dtype = str(e.buffer.dtype)
    if dtype not in _PLACES or e.buffer.scope() != "shared.dyn" or isinstance(e.buffer, View):
        raise source_error(
            SourceValueError,
            f"T.gemm_sp: {e.buffer.name} is {dtype} in {e.buffer.scope()} memory",
            construct="T.gemm_sp",
            why=f"the places of values are {', '.join(_PLACES)} in a shared tile",
            remedy="T.copy them into a tile of T.alloc_shared, of the dtype that the tensor has",
        )


def _check_sparse_shapes(sides: Sequence[tuple[int, int]], boxes: Sequence[Box]) -> None:
    (rows, held), (lines, words), b, c = sides
    bits = dtypes.lookup(str(boxes[1].buffer.dtype)).bits
    check_product_shapes((rows, 2 * held), b, c, boxes[0], *boxes[2:], packed=True)
    if (lines, words * bits) != (rows, b[0]):
        raise product_error(
            f"{boxes[1].buffer.name} has {lines} rows of {words} integers of {bits} bits",
            f"K = {b[0]} and M = {rows} take {rows} rows of {b[0]} / {bits}: four bits for each four along K",
        )


def matrix(operand: Box, transposed: bool) -> tuple[int, int]:
    """Rows and columns of an operand as the product sees it."""
    name, extents = operand.buffer.name, operand.extents or ()
    if len(extents) < 2 or any(extent != 1 for extent in extents[:-2]) or not _fixed(extents):
        raise product_error(
            f"{name} has extents ({', '.join(map(str, extents))})",
            "an operand has two build-time extents after leading ones of 1",
        )
    rows, columns = int(extents[-2]), int(extents[-1])
    return (columns, rows) if transposed else (rows, columns)


def _fixed(extents: Sequence[Any]) -> bool:
    return all(isinstance(extent, int) for extent in extents)


def check_product_shapes(
    a: tuple[int, int], b: tuple[int, int], c: tuple[int, int], *boxes: Box, packed: bool = False
) -> None:
    """Raises `SourceAssertionError` where the sides of A, B and C, which ``boxes`` name, do not agree.
    ``packed``: A holds half of what its sides say."""
    names = [operand.buffer.name for operand in boxes]
    remedy = _turned_remedy(a, b, c, packed)
    axes = (
        ("K", a[1], names[0], b[0], names[1]),
        ("M", a[0], names[0], c[0], names[2]),
        ("N", b[1], names[1], c[1], names[2]),
    )
    for axis, left, one, right, other in axes:
        if left != right:
            raise product_error(
                f"axis {axis} is {left} in {one} and {right} in {other}", "the extents must agree", remedy
            )


def _turned_remedy(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int], packed: bool) -> str:
    """What to do about shapes that do not agree: they may with A, B or both the other way round."""
    turned = (a[1] // 2, 2 * a[0]) if packed else a[::-1]
    ways = {"transpose_B": (a, b[::-1]), "transpose_A": (turned, b)}
    ways["transpose_A and transpose_B"] = (turned, b[::-1])
    for words, (left, right) in ways.items():
        if left[1] == right[0] and (left[0], right[1]) == c:
            return f"they do with {words} the other way round"
    return _OF_SHAPES


def product_error(what: str, why: str, remedy: str = _OF_SHAPES) -> SourceError:
    """The error for an operand that no product takes."""
    return source_error(
        SourceAssertionError,
        f"T.gemm: {what}",
        construct="T.gemm",
        why=why,
        remedy=remedy,
    )


def _check_product_dtypes(a: Box, b: Box, c: Box) -> None:
    left, right, total = (str(operand.buffer.dtype) for operand in (a, b, c))
    if left != right and not {left, right} <= _BYTES:
        raise source_error(
            SourceValueError,
            f"T.gemm: {a.buffer.name} is {left} and {b.buffer.name} is {right}",
            construct="T.gemm",
            remedy="copy one operand into a tile of the other's dtype",
        )
    if total not in _PRODUCTS.get(left, ()):
        raise unsupported(
            f"T.gemm of {left} into {total}", remedy="accumulate in float32 (int32 for 8-bit integers)"
        )


def check_product_scopes(a: Box, b: Box, c: Box) -> None:
    """Raises `SourceAssertionError` for operands that are neither shared tiles nor fragments."""
    for operand in (a, b):
        if operand.buffer.scope() not in ("shared.dyn", "local.fragment"):
            raise product_error(
                f"{operand.buffer.name} is in {operand.buffer.scope()} memory",
                "operands are shared tiles or fragments",
                "T.copy it to a tile of T.alloc_shared, and multiply that",
            )
    if c.buffer.scope() not in ("shared.dyn", "local.fragment"):
        raise product_error(
            f"{c.buffer.name} is in {c.buffer.scope()} memory",
            "the accumulator is a fragment",
            "add up in a tile of T.alloc_fragment, and T.copy that",
        )
