"""Products with a sparse first operand by wgmma.sp on sm_90a: types, tiles, sides, ends, what it leaves."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated
from breadth import parametrized
from sparse_products import operands, product

import tilec.language as T
from tilec.backends.cuda.nodes import BoxLoad, SparseWarpGemm, SparseWarpgroupProduct, TurnTile
from tilec.backends.cuda.passes.waits import place_product_waits
from tilec.backends.pipeline import lower
from tilec.errors import EmulationError
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target


def launch_of(kernel, target="sm_90a"):
    return lower(elaborated(kernel, (), {}, {}, {}), parse_target(target)).launches[0]


def found_in(launch, kind):
    return [stmt for stmt in walk(launch.body) if isinstance(stmt, kind)]


def says(launch):
    return "\n".join(map(str, launch.roads))


def stored(arrays, turned):
    return [np.ascontiguousarray(x.T) if turn else x for x, turn in zip(arrays, turned, strict=False)]


#: (M, N, K), type, type of places, sums, (A, E, B stored the other way round), tile, threads, instruction.
CASES = [
    ((128, 128, 512), "float16", "uint8", "float32", (0, 0, 1), (128, 128, 128), 256, "m64n128k32"),
    ((192, 64, 256), "bfloat16", "int32", "float32", (0, 0, 0), (64, 64, 64), 128, "m64n64k32"),
    ((128, 96, 512), "int8", "int32", "int32", (0, 0, 1), (128, 96, 128), 128, "m64n96k64"),
    ((64, 64, 256), "float8_e4m3fn", "uint8", "float32", (0, 0, 1), (64, 64, 128), 128, "m64n64k64"),
    ((136, 72, 448), "float16", "int16", "float32", (0, 0, 1), (64, 64, 128), 128, "m64n64k32"),
]
MORE = [
    ((256, 512, 256), "float16", "uint8", "float32", (0, 0, 1), (128, 256, 64), 256, "m64n256k32"),
    ((128, 64, 256), "float16", "uint8", "float32", (1, 0, 0), (128, 64, 64), 128, "m64n64k32"),
    ((128, 64, 256), "float16", "int16", "float32", (0, 1, 1), (128, 64, 128), 256, "m64n64k32"),
    ((128, 128, 256), "uint8", "int32", "int32", (0, 0, 0), (64, 128, 128), 128, "m64n128k64"),
    ((128, 128, 256), "int8", "uint8", "int32", (1, 0, 1), (64, 128, 64), 128, "m64n128k64"),
    ((64, 256, 128), "float16", "int32", "float32", (0, 0, 1), (64, 256, 64), 256, "m64n128k32"),
    ((64, 256, 256), "int8", "uint8", "int32", (0, 0, 1), (64, 256, 128), 128, "m64n256k64"),
    ((64, 64, 192), "bfloat16", "uint8", "float32", (0, 0, 1), (64, 64, 96), 128, "m64n64k32"),
]


@parametrized(
    ("sizes", "dtype", "places", "sums", "turned", "tiles", "threads", "instruction"),
    CASES + MORE,
    fast=CASES,
)
def test_products_of_warpgroups(sizes, dtype, places, sums, turned, tiles, threads, instruction):
    turned = tuple(map(bool, turned))
    arrays = operands(*sizes, dtype, places)
    made = product(*sizes, dtype, places, sums, turned, tiles, threads)
    launch = launch_of(made)
    assert f"wgmma.sp {instruction}" in says(launch)
    (stmt,) = found_in(launch, SparseWarpgroupProduct)
    assert stmt.tile.instruction == instruction
    agree(made, *stored(arrays, turned), expected=arrays[3], targets=("sm_90a",))


def held_product(m, n, k, dtype, sums, tiles=(64, 64, 128)):
    """The same with the values of A in a fragment."""
    bm, bn, bk = tiles

    @T.prim_func
    def main(
        A: T.Tensor((m, k // 2), dtype),
        E: T.Tensor((m, k // 8), "uint8"),
        B: T.Tensor((n, k), dtype),
        C: T.Tensor((m, n), sums),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            a, held = T.alloc_shared((bm, bk // 2), dtype), T.alloc_fragment((bm, bk // 2), dtype)
            e, b = T.alloc_shared((bm, bk // 8), "uint8"), T.alloc_shared((bn, bk), dtype)
            c = T.alloc_fragment((bm, bn), sums)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=2):
                T.copy(A[by * bm, ko * bk // 2], a)
                T.copy(E[by * bm, ko * bk // 8], e)
                T.copy(B[bx * bn, ko * bk], b)
                T.copy(a, held)
                T.gemm_sp(held, e, b, c, transpose_B=True)
            T.copy(c, C[by * bm, bx * bn])

    return main


@pytest.mark.parametrize(("dtype", "sums"), [("float16", "float32"), ("int8", "int32")])
def test_values_in_registers(dtype, sums):
    a, e, b, wanted = operands(128, 64, 512, dtype, "uint8")
    made = held_product(128, 64, 512, dtype, sums)
    (stmt,) = found_in(launch_of(made), SparseWarpgroupProduct)
    assert stmt.a.buffer.scope() == "local.fragment"
    agree(made, a, e, np.ascontiguousarray(b.T), expected=wanted, targets=("sm_90a",))


def test_it_has_the_roles_of_a_product():
    launch = launch_of(
        product(4096, 4096, 4096, "float16", "uint8", "float32", (0, 0, 1), (128, 256, 128), 256)
    )
    assert "a loading warp, computing warpgroups 2, TMA rings of a 2, e 2, b 2 stages" in says(launch)
    for part in ("A -> a: TMA", "E -> e: TMA", "B -> b: TMA"):
        assert part in says(launch)
    assert any("no strategy does: none has sparse products" in note for note in launch.notes)
    short = product(4096, 4096, 4096, "float16", "uint8", "float32", (0, 0, 1), (128, 256, 64), 256)
    launch = launch_of(short)
    assert "a loading warp, computing warpgroups 2, TMA rings of a 4, e 4, b 4 stages" in says(launch)
    (places,) = (stmt for stmt in found_in(launch, BoxLoad) if str(stmt.src.buffer.dtype) == "uint8")
    assert [int(extent) for extent in places.src.extent] == [128, 16]
    odd = product(200, 256, 320, "float16", "uint8", "float32", (0, 0, 1), (128, 256, 64), 256)
    assert "E -> e: cp.async of " in says(launch_of(odd))
    turns = product(4096, 4096, 4096, "int8", "uint8", "int32", (0, 0, 1), (128, 128, 128), 256)
    assert "computing warpgroups 2 that take tiles in turns" in says(launch_of(turns))


def test_its_text_parses_back():
    kernel = product(128, 128, 256, "float16", "uint8", "float32", (0, 1, 1), (64, 128, 128), 128)
    text = format_kernel(lower(elaborated(kernel, (), {}, {}, {}), parse_target("sm_90a")))
    assert "wgmma_sp(" in text
    assert "trans_e=True" in text
    assert format_kernel(parse_kernel(text)) == text


def test_places_are_not_changed_while_a_product_reads_them(monkeypatch):
    arrays = operands(64, 64, 384, "float16", "uint8")
    made = product(64, 64, 384, "float16", "uint8", "float32", (0, 0, 1), (64, 64, 128), 128)
    given = stored(arrays, (0, 0, 1))
    agree(made, *given, expected=arrays[3], targets=("sm_90a",))
    monkeypatch.setattr(place_product_waits, "_writes_own_registers", lambda product: False)
    with pytest.raises(EmulationError, match="while an asynchronous product reads it"):
        agree(made, *given, expected=arrays[3], targets=("sm_90a",))


def test_newer_gpus_have_the_roles_and_mma_sp():
    arrays = operands(128, 64, 256, "float16", "uint8")
    made = product(128, 64, 256, "float16", "uint8", "float32", (0, 0, 1), (64, 64, 128), 128)
    launch = launch_of(made, "sm_120")
    assert "TMA rings of a 2, e 2, b 2 stages" in says(launch)
    assert found_in(launch, SparseWarpGemm)
    agree(made, *stored(arrays, (0, 0, 1)), expected=arrays[3], targets=("sm_120",))


def test_places_of_several_trips_come_at_once():
    """All of a tile's in front of its loop, or those of two trips in a loop around them."""
    m, n, k, step = 64, 64, 512, 64

    @T.prim_func
    def whole(
        A: T.Tensor((m, k // 2), "float16"),
        E: T.Tensor((m, k // 8), "uint8"),
        B: T.Tensor((n, k), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((m, step // 2), "float16"), T.alloc_shared((n, step), "float16")
            e, c = T.alloc_shared((m, k // 8), "uint8"), T.alloc_fragment((m, n), "float32")
            T.copy(E, e)
            for ko in T.Pipelined(k // step, num_stages=2):
                T.copy(A[0, ko * step // 2], a)
                T.copy(B[0, ko * step], b)
                here = e[:, ko * step // 8 : (ko + 1) * step // 8]
                T.gemm_sp(a, here, b, c, transpose_B=True, clear_accum=ko == 0)
            T.copy(c, C)

    @T.prim_func
    def in_pairs(
        A: T.Tensor((m, k // 2), "float16"),
        E: T.Tensor((m, k // 8), "uint8"),
        B: T.Tensor((n, k), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((m, step // 2), "float16"), T.alloc_shared((n, step), "float16")
            e, c = T.alloc_shared((m, step // 4), "uint8"), T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for ko in T.Pipelined(k // step // 2, num_stages=2):
                T.copy(E[0, ko * step // 4], e)
                for half in T.Pipelined(2, num_stages=3):
                    T.copy(A[0, (2 * ko + half) * step // 2], a)
                    T.copy(B[0, (2 * ko + half) * step], b)
                    here = e[:, half * step // 8 : (half + 1) * step // 8]
                    T.gemm_sp(a, here, b, c, transpose_B=True)
            T.copy(c, C)

    arrays = operands(m, n, k, "float16", "uint8")
    for made in (whole, in_pairs):
        assert "E -> e: TMA" in says(launch_of(made))
        agree(made, *stored(arrays, (0, 0, 1)), expected=arrays[3], targets=("sm_90a",))


def test_a_bias_behind_a_serial_loop_and_results_that_leave_turned():
    m, n, k, step = 128, 64, 256, 64

    @T.prim_func
    def main(
        A: T.Tensor((m, k // 2), "float16"),
        E: T.Tensor((m, k // 8), "uint8"),
        B: T.Tensor((n, k), "float16"),
        bias: T.Tensor((m,), "float32"),
        C: T.Tensor((n, m), "float32"),
    ):
        with T.Kernel(T.ceildiv(m, 64), threads=128) as by:
            a, b = T.alloc_shared((64, step // 2), "float16"), T.alloc_shared((n, step), "float16")
            e, c = T.alloc_shared((64, step // 8), "uint8"), T.alloc_fragment((64, n), "float32")
            T.clear(c)
            for ko in T.serial(k // step):
                T.copy(A[by * 64, ko * step // 2], a)
                T.copy(E[by * 64, ko * step // 8], e)
                T.copy(B[0, ko * step], b)
                T.gemm_sp(a, e, b, c, transpose_B=True)
            for i, j in T.Parallel(64, n):
                C[j, by * 64 + i] = c[i, j] + bias[by * 64 + i]

    a, e, b, wanted = operands(m, n, k, "float16", "uint8")
    bias = np.arange(m, dtype=np.float32)
    expected = (wanted + bias[:, None]).T
    assert found_in(launch_of(main), SparseWarpgroupProduct)
    agree(main, a, e, np.ascontiguousarray(b.T), bias, expected=expected, targets=("sm_90a",))


def test_8_bit_operands_across_k_are_turned_in_front():
    launch = launch_of(product(128, 128, 256, "int8", "uint8", "int32", (1, 0, 0), (64, 128, 128), 128))
    assert len(found_in(launch, TurnTile)) == 2
    (stmt,) = found_in(launch, SparseWarpgroupProduct)
    assert (stmt.trans_a, stmt.trans_b) == (False, True)


@pytest.mark.parametrize(
    ("tiles", "threads", "why"),
    [
        ((64, 64, 64), 64, "2 warps are no whole warpgroups"),
        ((32, 64, 64), 128, "1 warpgroups cannot share 32 x 64 sums, 64 rows by 8 columns"),
        ((64, 64, 48), 128, "K = 48 is no multiple of 32"),
    ],
)
def test_what_it_does_not_take_goes_on_and_says_why(tiles, threads, why):
    m, n, k = 64, 64, 2 * tiles[2]
    made = product(m, n, k, "float16", "int16", "float32", (0, 0, 1), tiles, threads)
    launch = launch_of(made)
    assert why in says(launch)
    assert not found_in(launch, SparseWarpgroupProduct)
    assert bool(found_in(launch, SparseWarpGemm)) == (tiles[2] != 48)
    arrays = operands(m, n, k, "float16", "int16")
    agree(made, *stored(arrays, (0, 0, 1)), expected=arrays[3], targets=("sm_90a",))
