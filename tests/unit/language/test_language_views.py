"""Other shapes for one memory, transposed tiles and image columns, through the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from language_build import DYNAMIC, body, build, call

import tilec.language as T
from tilec.errors import SourceAssertionError, SourceValueError, UnsupportedError


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_groups_of_a_row_reduce_through_a_view():
    @T.prim_func
    def main(X: T.Tensor((4, 12), "float32"), Y: T.Tensor((4, 3), "float32"), Z: T.Tensor((4, 3), "float32")):
        with T.Kernel(1):
            x = T.alloc_fragment((4, 12), "float32")
            y, z = T.alloc_fragment((4, 3), "float32"), T.alloc_fragment((4, 3), "float32")
            T.copy(X, x)
            groups = T.reshape(x, (4, 3, 4))
            T.reduce_absmax(groups, y, dim=2)
            T.fill(z, 2)
            T.reduce_sum(groups, z, dim=2, clear=False)
            T.copy(y, Y)
            T.copy(z, Z)

    x = random(4, 12)
    y, z = np.zeros((4, 3), np.float32), np.zeros((4, 3), np.float32)
    call(build(main), {}, x, y, z)
    np.testing.assert_array_equal(y, np.abs(x.reshape(4, 3, 4)).max(2))
    np.testing.assert_allclose(z, 2 + x.reshape(4, 3, 4).sum(2), rtol=1e-5)


def test_views_copy_fill_and_store():
    @T.prim_func
    def main(X: T.Tensor((4, 6), "float32"), Y: T.Tensor((24,), "float32")):
        with T.Kernel(1):
            t = T.alloc_shared((24,), "float32")
            square = T.view(t, (4, 6))
            T.copy(X, square)
            T.fill(square[1, :], 7)
            for i in T.Parallel(6):
                square[2, i] = square[3, i] + 1
            T.copy(t, Y)

    x, y = random(4, 6), np.zeros(24, np.float32)
    call(build(main), {}, x, y)
    np.testing.assert_array_equal(y.reshape(4, 6), [x[0], np.full(6, 7), x[3] + 1, x[3]])


def test_whole_indices_of_a_split_leave_no_division():
    @T.prim_func
    def main(Y: T.Tensor((4, 12), "float32")):
        with T.Kernel(1):
            t = T.alloc_fragment((4, 12), "float32")
            for i, j, k in T.Parallel(4, 3, 4):
                T.reshape(t, (4, 3, 4))[i, j, k] = 1.0

    assert body(main)[2].strip() in ("t[i, j * 4 + k] = 1.0", "t[i, k + j * 4] = 1.0")


def test_an_alias_of_a_parameter_ends_where_its_shape_says():
    def factory(M, N):
        @T.prim_func
        def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
            with T.Kernel(T.ceildiv(M * N, 8)) as b:
                flat, out = (T.Tensor((M * N,), "float32", each.data) for each in (X, Y))
                t = T.alloc_fragment((8,), "float32")
                T.copy(flat[b * 8], t)
                for i in T.Parallel(8):
                    t[i] = t[i] * 2.0
                T.copy(t, out[b * 8])

        return main

    x, y = random(3, 5), np.zeros((3, 5), np.float32)
    call(build(factory, {"M": DYNAMIC, "N": 5}), {"M": 3, "N": 5}, x, y)
    np.testing.assert_array_equal(y, 2 * x)


def test_transposed_tiles():
    @T.prim_func
    def main(X: T.Tensor((2, 3, 5), "float32"), Y: T.Tensor((2, 5, 3), "float16")):
        with T.Kernel(1):
            x, y = T.alloc_shared((2, 3, 5), "float32"), T.alloc_shared((2, 5, 3), "float16")
            T.copy(X, x)
            T.transpose(x, y)
            T.copy(y, Y)

    x, y = random(2, 3, 5), np.zeros((2, 5, 3), np.float16)
    call(build(main), {}, x, y)
    np.testing.assert_array_equal(y, x.transpose(0, 2, 1).astype(np.float16))


@pytest.mark.parametrize(("stride", "dilation", "pad"), [(1, 1, 1), (2, 1, 0), (1, 2, 2)])
def test_columns_of_an_image_make_a_convolution(stride, dilation, pad):
    n, h, w, c, f, k = 2, 6, 5, 4, 3, 3
    oh, ow = ((size + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for size in (h, w))

    @T.prim_func
    def main(
        X: T.Tensor((n, h, w, c), "float32"),
        W: T.Tensor((k, k, c, f), "float32"),
        Y: T.Tensor((n, oh, ow, f), "float32"),
    ):
        with T.Kernel(T.ceildiv(n * oh * ow, 8)) as b:
            cols, taps = T.alloc_shared((8, 2), "float32"), T.alloc_shared((2, 4), "float32")
            acc = T.alloc_fragment((8, 4), "float32")
            weights = T.Tensor((k * k * c, f), "float32", W.data)
            out = T.Tensor((n * oh * ow, f), "float32", Y.data)
            T.clear(acc)
            for t in T.Pipelined(k * k * c // 2, num_stages=2):
                T.im2col(X, cols, b, t, k, stride, dilation, pad)
                T.copy(weights[t * 2, 0], taps)
                T.gemm(cols, taps, acc)
            T.copy(acc, out[b * 8, 0])

    x, weights = random(n, h, w, c), random(k, k, c, f)
    y = np.zeros((n, oh, ow, f), np.float32)
    call(build(main), {}, x, weights, y)
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    expected = np.zeros_like(y)
    for i in range(oh):
        for j in range(ow):
            rows = slice(i * stride, i * stride + dilation * (k - 1) + 1, dilation)
            columns = slice(j * stride, j * stride + dilation * (k - 1) + 1, dilation)
            expected[:, i, j] = np.einsum("nabc,abcf->nf", padded[:, rows, columns], weights)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (lambda A, t: T.reshape(t, (4, 5)), SourceAssertionError, "does not hold"),
        (lambda A, t: T.view(t, (32, 4), "bool"), UnsupportedError, "whole bytes"),
        (lambda A, t: T.transpose(t, t), SourceValueError, "trade"),
        (lambda A, t: T.im2col(A, t, 0, 0, 3, 1, 1, 1), SourceValueError, "divide the channels"),
        (lambda A, t: T.Tensor((4,), "float32", A), TypeError, "no memory"),
    ],
)
def test_wrong_views(use, kind, match):
    @T.prim_func
    def main(A: T.Tensor((1, 4, 4, 3), "float32")):
        with T.Kernel(1):
            use(A, T.alloc_shared((4, 8), "float32"))

    with pytest.raises(kind, match=match):
        build(main)
