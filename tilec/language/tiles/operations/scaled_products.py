"""T.gemm_blockscaled: products of 8- and 4-bit floats with a scale for neighbours along K."""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceValueError
from tilec.ir import nodes as ir
from tilec.language.tiles.memory.boxes import Box, sized_box
from tilec.language.tiles.memory.packed import InBytes
from tilec.language.tiles.operations.products import (
    check_product_scopes,
    check_product_shapes,
    matrix,
    product_error,
)
from tilec.language.tiles.operations.stage_operands import tile_of, write_back
from tilec.language.tiles.operations.warp_policies import GemmWarpPolicy, warp_policy
from tilec.language.values.conversions import condition
from tilec.language.values.kernel.annotations import check_annotations
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.outside_parallel import product_builder

_NAME = "T.gemm_blockscaled"
#: What operands and scales may be, and how many neighbours along K share a scale.
_NUMBERS = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
_SCALES = ("float8_e8m0fnu", "float8_e4m3fn")
_SIZES = (16, 32)


def gemm_blockscaled(
    A: Any,
    B: Any,
    C: Any,
    SFA: Any,
    SFB: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    sf_size: int = 32,
    policy: int = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    annotations: Any = None,
) -> None:
    """``C[i, j] += sum over k of SFA[i, k // sf_size] * A[i, k] * SFB[j, k // sf_size] * B[k, j]``;
    ``C = ...`` where ``clear_accum`` (a bool or a condition) holds.

    A (M, K) and B (K, N), or (K, M) if ``transpose_A`` and (N, K) if ``transpose_B``, are float8_e4m3fn,
    float8_e5m2 or float4_e2m1fn each; C (M, N) is float32. SFA (M, K/sf_size) and SFB (N, K/sf_size) are
    float8_e8m0fnu (mxfp8, mxfp4: ``sf_size`` 32) or float8_e4m3fn (nvfp4: 16), the same for both; ``sf_size``
    is 16 or 32. All are shared tiles or fragments with extents that are build-time integers, leading ones 1.
    An element times its scale is exact within the range of bfloat16, 2^-133 to 2^128; beyond it targets
    differ. Raises `SourceAssertionError` for shapes that do not fit, `SourceValueError` for dtypes that it
    does not take, `UnsupportedError` for another ``sf_size`` or C."""
    check_annotations(_NAME, annotations)
    a, b, c, sfa, sfb = (sized_box(operand, _NAME) for operand in (A, B, C, SFA, SFB))
    check_product_scopes(a, b, c)
    check_product_scopes(sfa, sfb, c)
    _check_dtypes(a, b, c, sfa, sfb)
    _check_shapes(a, b, c, sfa, sfb, transpose_A, transpose_B, sf_size)
    left, right, sums, rows, columns = (_tile(operand) for operand in (a, b, c, sfa, sfb))
    stmt = ir.ScaledGemm(
        left.region(),
        right.region(),
        sums.region(),
        rows.region(),
        columns.region(),
        sf_size,
        bool(transpose_A),
        bool(transpose_B),
        condition(clear_accum, "clear_accum"),
        warp_policy(_NAME, policy),
        loc=loc(),
    )
    product_builder(_NAME).emit(stmt, _NAME)
    if sums.buffer is not c.buffer:
        write_back(sums.buffer, c)


def _tile(operand: Box) -> Box:
    """The memory of an operand: of numbers that nothing computes with their bytes."""
    return operand.buffer.bytes_of(operand) if isinstance(operand.buffer, InBytes) else tile_of(operand)


def _check_dtypes(a: Box, b: Box, c: Box, sfa: Box, sfb: Box) -> None:
    for operand, allowed in ((a, _NUMBERS), (b, _NUMBERS), (sfa, _SCALES), (sfb, _SCALES)):
        found = str(operand.buffer.dtype)
        if found not in allowed:
            raise _dtype_error(f"{operand.buffer.name} is {found}", f"it is one of {', '.join(allowed)}")
    left, right = (str(operand.buffer.dtype) for operand in (sfa, sfb))
    if left != right:
        raise _dtype_error(
            f"{sfa.buffer.name} is {left} and {sfb.buffer.name} is {right}",
            "the scales of both operands have one type",
        )
    if str(c.buffer.dtype) != "float32":
        raise unsupported(f"{_NAME} into {c.buffer.dtype}", remedy="accumulate in float32")


def _dtype_error(what: str, why: str) -> SourceValueError:
    return source_error(  # type: ignore[return-value]
        SourceValueError,
        f"{_NAME}: {what}",
        construct=_NAME,
        why=why,
        remedy="give the tensors and tiles the dtypes of mxfp8, mxfp4 or nvfp4, or use T.gemm",
    )


def _check_shapes(
    a: Box, b: Box, c: Box, sfa: Box, sfb: Box, trans_a: bool, trans_b: bool, size: int
) -> None:
    if size not in _SIZES:
        raise unsupported(
            f"{_NAME}(sf_size={size})",
            why="a scale is for 16 or 32 neighbours along K",
            remedy="use 32 (mxfp8, mxfp4) or 16 (nvfp4), or scale the sums of T.gemm",
        )
    left, right = matrix(a, trans_a), matrix(b, trans_b)
    check_product_shapes(left, right, matrix(c, False), a, b, c)
    depth = left[1]
    if depth % size:
        raise product_error(f"axis K is {depth}", f"sf_size = {size} neighbours share a scale")
    for scales, rows, axis in ((sfa, left[0], "M"), (sfb, right[1], "N")):
        if matrix(scales, False) != (rows, depth // size):
            lines, counts = matrix(scales, False)
            raise product_error(
                f"{scales.buffer.name} has {lines} rows of {counts} scales",
                f"{axis} = {rows} and K = {depth} take {rows} rows of {depth // size}",
            )
