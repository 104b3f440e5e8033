"""T.gemm as wgmma: types, sums, places of operands, shapes that warpgroups share; each emulated on sm_90a."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from agree import agree

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

ALLOC = {"shared": T.alloc_shared, "fragment": T.alloc_fragment}
SM90A = ("sm_90a",)


def operand(*shape, dtype="float16", seed=0):
    """Few small values: products and their sums are exact in every accumulator."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return np.random.default_rng(seed).integers(0 if kind.kind == "u" else -2, 3, shape).astype(kind)


def wide(array):
    return array.astype(np.float64)


def roads(kernel):
    """The roads of a kernel's products."""
    made = elaborate(kernel, name="k", dims={}, args={}, config={}, open_dims=True)
    found = lower(made, parse_target("sm_90a"), until="select_instructions").launches[0].roads
    return [str(road) for road in found if "mma" in str(road) or "dot" in str(road)]


def product(m, n, k, dtype="float16", acc="float32", ta=False, tb=True, scopes=("shared",) * 2, threads=128):
    a_shape, b_shape = (k, m) if ta else (m, k), (n, k) if tb else (k, n)

    @T.prim_func
    def main(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((m, n), acc)):
        with T.Kernel(1, threads=threads):
            a, b = ALLOC[scopes[0]](a_shape, dtype), ALLOC[scopes[1]](b_shape, dtype)
            c = T.alloc_fragment((m, n), acc)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            T.copy(c, C)

    return main


def check(m, n, k, dtype="float16", acc="float32", ta=False, tb=True, **options):
    a, b = operand(m, k, dtype=dtype), operand(k, n, dtype=dtype, seed=1)
    kernel = product(m, n, k, dtype, acc, ta, tb, **options)
    assert all("wgmma" in road for road in roads(kernel)), roads(kernel)
    left, right = a.T.copy() if ta else a, b.T.copy() if tb else b
    agree(kernel, left, right, expected=wide(a) @ wide(b), targets=SM90A)


@pytest.mark.parametrize("held", ["shared", "fragment"])
@pytest.mark.parametrize(
    ("dtype", "acc"),
    [
        ("float16", "float16"),
        ("float8_e4m3fn", "float16"),
        ("float8_e5m2", "float32"),
        ("int8", "int32"),
        ("uint8", "int32"),
        ("float32", "float32"),
        ("bfloat16", "float32"),
    ],
)
def test_types_of_operands_and_sums(dtype, acc, held):
    check(128, 32, 64, dtype, acc, scopes=(held, "shared"))


def test_256_columns_of_integers_are_one_instruction():
    (road,) = roads(product(64, 256, 64, "int8", "int32"))
    assert "wgmma m64n256k32" in road
    check(64, 256, 64, "int8", "int32")


@pytest.mark.parametrize("dtype", ["int8", "float32", "float16"])
def test_a_in_registers_of_warpgroups_that_share_rows_and_columns(dtype):
    acc = "int32" if dtype == "int8" else "float32"
    check(128, 32, 32, dtype, acc, scopes=("fragment", "shared"), threads=256)
    check(64, 32, 64, dtype, acc, scopes=("fragment", "shared"), threads=256)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float32", "float16"])
def test_a_product_whose_operand_another_product_made(dtype):
    """As in attention: the operand comes from the sums of an earlier product, through a conversion."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), dtype), K: T.Tensor((32, 64), dtype), V: T.Tensor((64, 32), dtype),
        C: T.Tensor((64, 64), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            q, k, v = (T.alloc_shared(shape, dtype) for shape in ((64, 64), (32, 64), (64, 32)))
            s, p = T.alloc_fragment((64, 32), "float32"), T.alloc_fragment((64, 32), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, q)
            T.copy(K, k)
            T.copy(V, v)
            T.gemm(q, k, s, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(64, 32):
                s[i, j] = s[i, j] * 0.125
            T.copy(s, p)
            T.gemm(p, v, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    assert all("wgmma" in road for road in roads(main))
    q, k, v = (operand(*shape, dtype=dtype, seed=seed) for seed, shape in
               enumerate(((64, 64), (32, 64), (64, 32))))  # fmt: skip
    p = (wide(q) @ wide(k).T / 8).astype(q.dtype)
    agree(main, q, k, v, expected=wide(p) @ wide(v).T, targets=SM90A)


def test_sums_of_16_bits_in_a_loop_with_statements_between():
    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "float16"), B: T.Tensor((64, 128), "float16"), C: T.Tensor((64, 64), "float16")
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float16")
            T.clear(c)
            for ko in T.Pipelined(2, num_stages=2):
                T.copy(A[:, ko * 64 : ko * 64 + 64], a)
                T.copy(B[:, ko * 64 : ko * 64 + 64], b)
                T.gemm(a, b, c, transpose_B=True)
                for i, j in T.Parallel(64, 64):
                    c[i, j] = c[i, j] * T.float16(0.5)
            T.copy(c, C)

    assert all("wgmma" in road for road in roads(main))
    a, b = operand(64, 128), operand(64, 128, seed=1)
    x, y = wide(a), wide(b)
    expected = x[:, :64] @ y[:, :64].T / 4 + x[:, 64:] @ y[:, 64:].T / 2
    agree(main, a, b, expected=expected, targets=SM90A)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize(
    ("ta", "tb", "scopes"),
    [
        (False, False, ("shared", "shared")),
        (True, True, ("shared", "shared")),
        (True, False, ("shared", "shared")),
        (True, False, ("fragment", "fragment")),
    ],
)
def test_operands_of_8_bits_that_are_stored_across_k(dtype, ta, tb, scopes):
    acc = "int32" if dtype == "int8" else "float32"
    check(64, 48, 32, dtype, acc, ta=ta, tb=tb, scopes=scopes)


def test_float32_in_registers_across_k():
    check(64, 48, 32, "float32", ta=True, tb=False, scopes=("fragment", "fragment"))


@pytest.mark.parametrize("threads", [128, 256])
def test_attention_of_8_bits_whose_values_are_stored_by_rows(threads):
    dtype = "float8_e4m3fn"

    @T.prim_func
    def main(
        Q: T.Tensor((128, 64), dtype), K: T.Tensor((96, 64), dtype), V: T.Tensor((96, 64), dtype),
        R: T.Tensor((128, 64), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=threads):
            q, k, v = (T.alloc_shared(shape, dtype) for shape in ((128, 64), (32, 64), (32, 64)))
            s, p = T.alloc_fragment((128, 32), "float32"), T.alloc_fragment((128, 32), dtype)
            o = T.alloc_fragment((128, 64), "float32")
            T.copy(Q, q)
            T.clear(o)
            for i in T.Pipelined(3, num_stages=2):
                T.copy(K[i * 32 : i * 32 + 32, :], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                for a, b in T.Parallel(128, 32):
                    p[a, b] = T.max(s[a, b], -4.0) * 0.25
                T.copy(V[i * 32 : i * 32 + 32, :], v)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            T.copy(o, R)

    assert all("wgmma" in road for road in roads(main))
    q, k, v = (operand(rows, 64, dtype=dtype, seed=seed) for seed, rows in enumerate((128, 96, 96)))
    p = (np.maximum(wide(q) @ wide(k).T, -4) / 4).astype(q.dtype)
    agree(main, q, k, v, expected=wide(p) @ wide(v), targets=SM90A)


@pytest.mark.parametrize(
    ("m", "n", "k", "options"),
    [
        (64, 32, 16, {}),
        (64, 80, 32, {"tb": False}),
        (64, 96, 160, {"tb": False}),
        (64, 512, 16, {"threads": 256}),
        (64, 40, 32, {"dtype": "int8", "acc": "int32"}),
        (192, 24, 48, {"threads": 384}),
        (128, 96, 32, {"threads": 384}),
    ],
)
def test_shapes_that_warpgroups_share(m, n, k, options):
    check(m, n, k, **options)


def test_parts_of_shared_tiles_and_of_sums():
    @T.prim_func
    def main(
        A: T.Tensor((2, 64, 128), "float16"), B: T.Tensor((64, 128), "float16"),
        C: T.Tensor((64, 128), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((2, 64, 128), "float16"), T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((64, 128), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            for s in T.serial(2):
                T.gemm(a[s, :, 0:64], b[:, 0:64], c[:, 0:64], transpose_B=True)
                T.gemm(a[s, :, 64:128], b[:, 64:128], c[:, 64:128], transpose_B=True)
            T.copy(c, C)

    assert all("wgmma" in road for road in roads(main))
    a, b = operand(2, 64, 128), operand(64, 128, seed=1)
    x, y = wide(a).sum(0), wide(b)
    expected = np.concatenate([x[:, :64] @ y[:, :64].T, x[:, 64:] @ y[:, 64:].T], axis=1)
    agree(main, a, b, expected=expected, targets=SM90A)
