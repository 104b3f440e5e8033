"""Products by hand: ldmatrix, mma.sync and stores on what each thread holds, and emitters that write them."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated
from breadth import parametrized

import tilec.language as T
from tilec.backends.cuda.codegen.images import source
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import IRError, UnsupportedError
from tilec.intrinsics import TensorCoreIntrinEmitter, get_swizzle_layout, mma_layout
from tilec.intrinsics.utils import get_ldmatrix_offset, get_mma_micro_size
from tilec.ir.interp.values import numpy_dtype
from tilec.ir.rules.verifier import verify
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import native_target, parse_target


def by_emitter(m, n, k, dtype, sums, emitter, stages=2, turned=(False, True)):
    """C = A B by warps, as kernels are written around an emitter."""
    bm = emitter.block_row_warps * emitter.warp_row_tiles
    bn = emitter.block_col_warps * emitter.warp_col_tiles
    bk, ta, tb = emitter.chunk, *turned
    x, y = emitter.micro_size_x, emitter.micro_size_y

    def shape(rows, columns, other):
        return (columns, rows) if other else (rows, columns)

    def swizzled(tile):
        return T.Layout(tile.shape, lambda i, j: get_swizzle_layout(i, j, tile.shape[-1], tile.dtype))

    @T.prim_func
    def main(
        A: T.Tensor(shape(m, k, ta), dtype), B: T.Tensor(shape(k, n, tb), dtype), C: T.Tensor((m, n), sums)
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=emitter.threads) as (bx, by):
            a, b = T.alloc_shared(shape(bm, bk, ta), dtype), T.alloc_shared(shape(bk, bn, tb), dtype)
            c = T.alloc_shared((bm // x, bn // y, x, y), sums)
            a_local = T.alloc_local((emitter.warp_rows * emitter.local_size_a,), dtype)
            b_local = T.alloc_local((emitter.warp_cols * emitter.local_size_b,), dtype)
            c_local = T.alloc_local((emitter.warp_rows * emitter.warp_cols * emitter.local_size_out,), sums)
            T.annotate_layout({a: swizzled(a), b: swizzled(b)})
            T.clear(c_local)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                if ta:
                    T.copy(A[ko * bk, by * bm], a)
                else:
                    T.copy(A[by * bm, ko * bk], a)
                if tb:
                    for j, kk in T.Parallel(bn, bk):
                        b[j, kk] = B[bx * bn + j, ko * bk + kk]
                else:
                    T.copy(B[ko * bk, bx * bn], b)
                for ki in T.serial(0, bk // emitter.micro_size_k):
                    emitter.ldmatrix_a(a_local, a, ki)
                    emitter.ldmatrix_b(b_local, b, ki)
                    emitter.mma(a_local, b_local, c_local)
            emitter.stmatrix(c_local, c)
            for i, j in T.Parallel(bm, bn):
                C[by * bm + i, bx * bn + j] = c[i // x, j // y, i % x, j % y]

    return main


def operands(m, n, k, dtype, turned, seed=0):
    rng = np.random.default_rng(seed)
    low = 0 if dtype == "uint8" else -3
    a, b = (rng.integers(low, 4, shape) for shape in ((m, k), (k, n)))
    kind = numpy_dtype(dtype)
    given = [x.T if turn else x for x, turn in zip((a, b), turned, strict=True)]
    return [np.ascontiguousarray(x).astype(kind) for x in given], (a @ b).astype(np.float64)


@pytest.mark.parametrize(
    ("dtype", "sums", "turned", "targets"),
    [
        ("float16", "float32", (False, True), ("sm_80", "sm_90a")),
        ("bfloat16", "float32", (True, False), ("sm_80",)),
        ("float16", "float16", (False, False), ("sm_80",)),
        ("int8", "int32", (False, True), ("sm_80",)),
        ("int8", "int32", (True, False), ("sm_80",)),
        ("float32", "float32", (False, True), ("sm_80",)),
        ("float8_e4m3fn", "float32", (False, True), ("sm_90a",)),
    ],
)
def test_products_around_an_emitter(dtype, sums, turned, targets):
    emitter = TensorCoreIntrinEmitter(
        a_dtype=dtype, b_dtype=dtype, accum_dtype=sums, a_transposed=turned[0], b_transposed=turned[1],
        block_row_warps=2, block_col_warps=1, warp_row_tiles=16, warp_col_tiles=16, chunk=32,
    )  # fmt: skip
    given, wanted = operands(32, 16, 64, dtype, turned)
    agree(
        by_emitter(32, 16, 64, dtype, sums, emitter, turned=turned), *given, expected=wanted, targets=targets
    )


def test_the_lanes_of_a_cpu_are_loops():
    emitter = TensorCoreIntrinEmitter("int8", "int8", "int32", False, True, 2, 1, 16, 8, 32)
    given, wanted = operands(32, 8, 64, "int8", (False, True))
    agree(by_emitter(32, 8, 64, "int8", "int32", emitter), *given, expected=wanted, targets=("cpu",))


@pytest.mark.parametrize("m_first", [False, True])
def test_warps_with_several_tiles_and_eight_columns(m_first):
    emitter = TensorCoreIntrinEmitter(
        "float16", "float16", "float32", False, True, 1, 2, 32, 24, 16, is_m_first=m_first
    )
    assert (emitter.warp_rows, emitter.warp_cols, emitter.local_size_out) == (2, 3, 4)
    given, wanted = operands(32, 48, 32, "float16", (False, True))
    agree(by_emitter(32, 48, 32, "float16", "float32", emitter), *given, expected=wanted, targets=("sm_80",))


@T.prim_func
def raw(A: T.Tensor((16, 16), "float16"), B: T.Tensor((16, 16), "float16"), C: T.Tensor((16, 16), "float32")):
    """One tile by the instructions themselves."""
    with T.Kernel(1, threads=32):
        a, b = T.alloc_shared((16, 16), "float16"), T.alloc_shared((16, 16), "float16")
        c = T.alloc_shared((16, 16), "float32")
        a_local, b_local = T.alloc_local((8,), "float16"), T.alloc_local((8,), "float16")
        c_local = T.alloc_local((8,), "float32")
        tx = T.get_thread_binding()
        T.copy(A, a)
        T.copy(B, b)
        T.mma_fill("float32", 8, c_local.data, 0)
        T.ptx_ldmatrix(
            "float16",
            T.bool(False),
            4,
            ".b16",
            a_local.data,
            0,
            T.address_of(a[0, 0]),
            get_ldmatrix_offset("A", tx, 0, 16, "float16", False),
        )
        T.ptx_ldmatrix(
            "float16",
            T.bool(False),
            4,
            ".b16",
            b_local.data,
            0,
            b.data,
            get_ldmatrix_offset("B", tx, 0, 16, "float16", True),
        )
        for half in range(2):
            T.ptx_mma(
                "float32",
                "m16n8k16",
                "row",
                "col",
                "fp16",
                "fp16",
                "fp32",
                a_local.data,
                0,
                b_local.data,
                half * 4,
                c_local.data,
                half * 4,
                T.bool(False),
            )
        T.mma_store("float32", 16, 16, T.address_of(c[0, 0]), c_local.data, 0, 16)
        T.copy(c, C)  # fmt: skip


def test_the_instructions_themselves():
    given, wanted = operands(16, 16, 16, "float16", (False, True))
    agree(raw, *given, expected=wanted, targets=("cpu", "sm_80"))


def test_they_are_instructions_on_a_gpu_and_their_text_parses_back():
    made = elaborated(raw, (), {}, {}, {})
    text = format_kernel(made)
    assert 'shape="m16n8k16"' in text
    assert format_kernel(parse_kernel(text)) == text
    target = parse_target("sm_80")
    assert any("mma.sync m16n8k16 by hand" in str(road) for road in lower(made, target).launches[0].roads)
    on_cpu = lower(made, native_target()).launches[0].roads
    assert any("loops over lanes" in str(road) and "use T.gemm" in str(road) for road in on_cpu)
    text = source(to_tir(lower(made, target), target), target, "raw")
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in text
    assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in text


def test_fragments_are_where_the_layouts_say():
    """Every element of a tile is held once, and the inverse finds it."""
    for load, width in (
        (mma_layout.mma_load_a_32x4_to_shared_16x8_layout, 8),
        (mma_layout.mma_load_a_32x8_to_shared_16x16_layout, 16),
        (mma_layout.mma_load_a_32x16_to_shared_16x32_layout, 32),
        (mma_layout.mma_load_b_32x8_to_shared_16x16_layout, 16),
        (mma_layout.mma_load_b_32x16_to_shared_16x32_layout, 32),
        (mma_layout.mma_store_32x8_to_shared_16x16_layout, 16),
    ):
        held = {load(lane, local) for lane in range(32) for local in range(width // 2)}
        assert held == {(i, j) for i in range(16) for j in range(width)}
    for find, load, width in (
        (mma_layout.shared_16x8_to_mma_32x4_layout, mma_layout.mma_load_a_32x4_to_shared_16x8_layout, 8),
        (mma_layout.shared_16x16_to_mma_32x8_layout, mma_layout.mma_load_a_32x8_to_shared_16x16_layout, 16),
        (mma_layout.shared_16x32_to_mma_32x16_layout, mma_layout.mma_load_a_32x16_to_shared_16x32_layout, 32),
    ):
        assert all(load(*find(i, j)) == (i, j) for i in range(16) for j in range(width))
    assert get_mma_micro_size("int8") == (16, 16, 32)


# ---- two of four ----


def by_sparse(shape, names, dtype, sums, selector, word="uint32"):
    """C += A B by one mma.sp, each lane with the parts that are its own."""
    k, each = int(shape[6:]), 32 // T.dtype(dtype).bits
    held = k // 2 // 4  # a lane's part of a row of A, two rows a lane

    @T.prim_func
    def main(
        A: T.Tensor((16, k // 2), dtype),
        E: T.Tensor((32,), word),
        B: T.Tensor((8, k), dtype),
        C: T.Tensor((16, 8), sums),
    ):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            a, b = T.alloc_local((2 * held,), dtype), T.alloc_local((2 * held,), dtype)
            c, e = T.alloc_local((4,), sums), T.alloc_local((2,), word)
            for i in T.serial(2 * held):
                half, side, at = i // (2 * each), i // each % 2, i % each
                a[i] = A[tx // 4 + 8 * side, half * 4 * each + tx % 4 * each + at]
                b[i] = B[tx // 4, i // each * 4 * each + tx % 4 * each + at]
            for i in T.serial(4):
                c[i] = C[tx // 4 + i // 2 * 8, tx % 4 * 2 + i % 2]
            e[1] = E[tx]
            T.ptx_mma_sp(
                sums, shape, "row", "col", *names, a.data, 0, b.data, 0, c.data, 0, e.data, 1, selector, False
            )
            for i in T.serial(4):
                C[tx // 4 + i // 2 * 8, tx % 4 * 2 + i % 2] = c[i]

    return main


def words_of(places, shape, dtype, selector, word):
    """Each lane's word of the places (16, groups, 2), as the PTX ISA draws them; others have other places."""
    fours = (places[..., 0] | places[..., 1] << 2).astype(np.uint64)
    made = np.full(32, 0xEEEEEEEE, np.uint64)
    for row in range(8):
        if T.dtype(dtype).bits == 16:
            for part in range(fours.shape[1] // 4):
                both = [fours[each, 4 * part : 4 * part + 4] for each in (row, row + 8)]
                lane = 4 * row + part + selector * int(shape[6:]) // 16
                made[lane] = sum(int(four) << 4 * at for at, four in enumerate(np.concatenate(both)))
        else:
            for lane in range(4):
                mine = fours[row + lane % 2 * 8, lane // 2 * 8 : lane // 2 * 8 + 8]
                made[4 * row + lane] = sum(int(four) << 4 * at for at, four in enumerate(mine))
    return made.astype(np.uint32).view(word)


TWO_OF_FOUR = [
    ("m16n8k16", "bfloat16", "float32", 3, ("sm_80",)),
    ("m16n8k32", "float16", "float32", 1, ("sm_80", "sm_90a")),
    ("m16n8k64", "int8", "int32", 0, ("cpu", "sm_80")),
    ("m16n8k64", "float8_e4m3fn", "float32", 0, ("sm_90a",)),
]
FURTHER = [
    ("m16n8k16", "float16", "float32", 0, ("cpu", "sm_80")),
    ("m16n8k32", "bfloat16", "float32", 0, ("sm_80",)),
    ("m16n8k64", "uint8", "int32", 0, ("sm_80",)),
]


@parametrized(("shape", "dtype", "sums", "selector", "targets"), TWO_OF_FOUR + FURTHER, fast=TWO_OF_FOUR)
def test_products_with_two_of_four(shape, dtype, sums, selector, targets):
    rng, k = np.random.default_rng(1), int(shape[6:])
    kind, low = numpy_dtype(dtype), 0 if dtype == "uint8" else -3
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    places = pairs[rng.integers(0, 6, (16, k // 4))]
    a, b = rng.integers(low, 4, (16, k // 2)), rng.integers(low, 4, (8, k))
    c = rng.integers(-9, 9, (16, 8))
    dense = np.zeros((16, k // 4, 4), np.int64)
    np.put_along_axis(dense, places, a.reshape(16, -1, 2), axis=-1)
    names = [{"float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3"}.get(dtype, dtype)] * 2
    names.append("fp32" if sums == "float32" else sums)
    word = "int32" if dtype == "int8" else "uint32"
    made = by_sparse(shape, names, dtype, sums, selector, word)
    given = (a.astype(kind), words_of(places, shape, dtype, selector, word), b.astype(kind), c.astype(sums))
    agree(made, *given, expected=(dense.reshape(16, k) @ b.T + c).astype(sums), targets=targets)


def one_sparse(shape="m16n8k32", names=("fp16", "fp16", "fp32"), sums="float32", selector=0, word="uint32"):
    return elaborated(by_sparse(shape, names, "float16", sums, selector, word), (), {}, {}, {})


def test_a_sparse_product_is_one_instruction_and_its_text_parses_back():
    made = one_sparse(selector=1)
    text = format_kernel(made)
    assert 'lane_mma_sp(c[0], a[0], b[0], tx % 32, e[1], shape="m16n8k32", selector=1)' in text
    assert format_kernel(parse_kernel(text)) == text
    assert [param.access for param in made.params] == ["in", "in", "in", "inout"]
    target = parse_target("sm_80")
    assert any("mma.sp m16n8k32 by hand" in str(road) for road in lower(made, target).launches[0].roads)
    assert any("mma.sp is an instr" in str(road) for road in lower(made, native_target()).launches[0].roads)
    text = source(to_tir(lower(made, target), target), target, "main")
    assert "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32" in text


def test_what_mma_sp_does_not_have_is_refused():
    with pytest.raises(ValueError, match="m16n8k8 of float16"):
        one_sparse(shape="m16n8k8")
    with pytest.raises(ValueError, match="on arrays of float16, float16, float16"):
        one_sparse(names=("fp16", "fp16", "fp16"), sums="float16")
    with pytest.raises(ValueError, match="with selector 2 and places in uint32"):
        one_sparse(selector=2)
    with pytest.raises(ValueError, match="with selector 0 and places in int16"):
        one_sparse(word="int16")
    text = format_kernel(one_sparse(selector=1))
    with pytest.raises(IRError, match=r"mma\.sp m16n8k32 of float16"):
        verify(parse_kernel(text.replace("selector=1", "selector=2")))


@T.prim_func
def of_a_block(C: T.Tensor((8,), "float32")):
    """A product of a warp where each iteration is some thread's."""
    with T.Kernel(1, threads=32):
        a, c = T.alloc_local((8,), "float16"), T.alloc_local((8,), "float32")
        for _ in T.Parallel(32):
            T.ptx_mma(
                "float32", "m16n8k16", "row", "col", "fp16", "fp16", "fp32", a.data, 0, a.data, 0, c.data, 0
            )


def test_what_mma_sync_does_not_have_is_refused():
    def wrong(
        shape="m16n8k16", names=("fp16", "fp16", "fp32"), layouts=("row", "col"), memory="local", threads=32
    ):
        @T.prim_func
        def main(C: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=threads):
                a, c = T.alloc_local((8,), "float16"), T.alloc_local((8,), "float32")
                b = T.alloc_local((8,), "float16") if memory == "local" else T.alloc_shared((8,), "float16")
                T.ptx_mma("float32", shape, *layouts, *names, a.data, 0, b.data, 0, c.data, 0, False)

        return elaborated(main, (), {}, {}, {})

    with pytest.raises(ValueError, match="m16n8k4 of float16"):
        wrong(shape="m16n8k4")
    with pytest.raises(ValueError, match="on arrays of float16, float16, float32"):
        wrong(names=("bf16", "bf16", "fp32"))
    with pytest.raises(UnsupportedError, match="layouts col and col"):
        wrong(layouts=("col", "col"))
    with pytest.raises(ValueError, match="b in shared"):
        wrong(memory="shared")
    with pytest.raises(UnsupportedError, match=r"T\.ptx_mma in T\.Parallel"):
        elaborated(of_a_block, (), {}, {}, {})
    with pytest.raises(ValueError, match="in a block of 48 threads"):
        wrong(threads=48)
    with pytest.raises(ValueError, match="warp_row_tiles = 8"):
        TensorCoreIntrinEmitter("float16", "float16", "float32", warp_row_tiles=8)
