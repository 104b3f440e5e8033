"""Memory under another shape or dtype: T.reshape, T.view, T.Tensor(shape, dtype, buffer.data)."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, build

import tilec.language as T
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.errors import SourceAssertionError, UnsupportedError
from tilec.language.frontend.elaborate import elaborate
from tilec.manifest.guards import parse_guard
from tilec.targets import parse_target


def numbers(*shape, dtype="float32"):
    return np.random.default_rng(0).integers(0, 99, shape).astype(dtype)


def test_other_shapes_of_shared_tiles_fragments_tensors_and_threads_arrays():
    @T.prim_func
    def main(
        A: T.Tensor((4, 24), "float32"),
        B: T.Tensor((8, 12), "float32"),
        C: T.Tensor((4, 24), "float32"),
        D: T.Tensor((4, 6), "float32"),
        E: T.Tensor((4, 4, 6), "float32"),
        F: T.Tensor((2, 4), "float32"),
    ):
        with T.Kernel(1, threads=64):
            s, f = T.alloc_shared((4, 24), "float32"), T.alloc_fragment((4, 24), "float32")
            T.copy(A, s)
            T.copy(A, f)
            T.copy(T.reshape(s, (8, 12)), B)
            w = T.view(f, (4, 4, 6))
            for i, j, k in T.Parallel(4, 4, 6):
                w[i, j, k] *= 2
            T.copy(f, C)
            o = T.alloc_fragment((4, 6), "float32")
            T.reduce_sum(w, o, dim=1)
            T.copy(o, D)
            T.copy(T.Tensor((4, 4, 6), "float32", A.data), E)
            own = T.alloc_local((8,), "float32")
            for i in T.serial(8):
                own[i] = A[0, i]
            T.copy(T.reshape(own, (2, 4)), F)

    a = numbers(4, 24)
    agree(main, a, expected=[a.reshape(8, 12), a * 2, 2 * a.reshape(4, 4, 6).sum(1), a.reshape(4, 4, 6),
                             a[0, :8].reshape(2, 4)])  # fmt: skip


def test_bytes_as_wider_elements_and_back():
    @T.prim_func
    def main(
        A: T.Tensor((8, 16), "uint8"),
        B: T.Tensor((8, 4), "int32"),
        C: T.Tensor((8, 8), "uint16"),
        D: T.Tensor((8, 16), "uint8"),
        E: T.Tensor((32,), "uint32"),
    ):
        with T.Kernel(1, threads=64):
            s, f = T.alloc_shared((8, 16), "uint8"), T.alloc_fragment((8, 4), "int32")
            T.copy(A, s)
            T.copy(T.view(s, (8, 4), "int32"), B)
            T.copy(T.view(s, dtype="uint16"), C)
            T.copy(T.Tensor((8, 4), "int32", A.data), f)
            T.copy(f, T.view(D, (8, 4), "int32"))
            T.copy(T.Tensor((32,), "uint32", s.data), E)

    a = numbers(8, 16, dtype="uint8") * 2
    agree(main, a, expected=[a.view("int32"), a.view("uint16"), a, a.view("uint32").reshape(-1)])


def test_wide_elements_as_bytes_and_the_bits_of_floats():
    @T.prim_func
    def main(
        A: T.Tensor((4, 8), "float32"),
        B: T.Tensor((4, 32), "uint8"),
        C: T.Tensor((4, 8), "uint32"),
        D: T.Tensor((4, 16), "float16"),
    ):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((4, 8), "float32")
            T.copy(A, s)
            T.copy(T.view(s, dtype="uint8"), B)
            T.copy(T.view(s, dtype="uint32"), C)
            half = T.view(s, dtype="float16")
            for i in T.serial(4):
                for j in T.Parallel(16):
                    half[i, j] = i * 16 + j
            T.copy(half, D)

    a = numbers(4, 8) * np.float32(1.37)
    agree(main, a, expected=[a.view("uint8"), a.view("uint32"), np.arange(64).reshape(4, 16)])


def test_wide_elements_of_bytes_that_a_store_also_reads():
    @T.prim_func
    def main(A: T.Tensor((64,), "uint8"), B: T.Tensor((16,), "uint32"), C: T.Tensor((32,), "float16")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((64,), "uint8")
            T.copy(A, s)
            words, numbers_there = T.view(s, (16,), "uint32"), T.view(s, (16,), "float32")
            for i in T.Parallel(16):
                words[i] = (words[i] << T.uint32(9)) ^ T.uint32(0x01020304)
            T.copy(words, B)
            for i in T.Parallel(16):
                numbers_there[i] = T.cast(i + 1, "float32")
                numbers_there[i] *= 1.37
            for i in T.Parallel(16):
                C[2 * i] = numbers_there[i]
                C[2 * i + 1] = -numbers_there[i]

    a = np.random.default_rng(0).integers(0, 256, 64).astype("uint8")
    c = np.arange(1, 17, dtype="float32") * np.float32(1.37)
    words = (a.view("uint32") << np.uint32(9)) ^ np.uint32(0x01020304)
    agree(main, a, expected=[words, np.stack([c, -c], 1).reshape(-1)])


def test_an_alias_that_is_larger_than_its_memory_reads_zeros_and_drops_writes():
    @T.prim_func
    def main(A: T.Tensor((3, 5), "float32"), B: T.Tensor((3, 5), "float32"), C: T.Tensor((20,), "float32")):
        with T.Kernel(1, threads=32):
            a, b = T.Tensor((20,), "float32", A.data), T.Tensor((20,), "float32", B.data)
            for i in T.Parallel(20):
                C[i] = a[i]
                b[i] = a[i] + 1

    a = numbers(3, 5)
    agree(main, a, expected=[a + 1, np.r_[a.reshape(-1), np.zeros(5)]])


def test_scans_and_reductions_of_views():
    @T.prim_func
    def main(A: T.Tensor((24,), "float32"), B: T.Tensor((24,), "float32"), C: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            s, top = T.alloc_shared((24,), "float32"), T.alloc_fragment((4,), "float32")
            T.copy(A, s)
            rows = T.reshape(s, (4, 6))
            T.reduce_max(rows, top, dim=1, nan_propagate=True)
            T.cumsum(rows, dim=1)
            T.copy(s, B)
            T.copy(top, C)

    a = numbers(24)
    a[7] = np.nan
    rows = a.reshape(4, 6)
    agree(main, a, expected=[rows.cumsum(1).reshape(-1), rows.max(1)])


def test_rows_of_a_view_keep_the_index_of_the_last_axis():
    """So that accesses are vectors where rows are whole numbers of them, whatever the extent is."""
    S, N = T.dynamic("S, N")

    @T.prim_func
    def main(X: T.Tensor((2, S, N), "float16"), Y: T.Tensor((2, S, N), "float16")):
        with T.Kernel(T.ceildiv(N, 256), 2 * S, threads=32) as (bx, by):
            x, y = T.reshape(X, (2 * S, N)), T.reshape(Y, (2 * S, N))
            for j in T.Parallel(256):
                y[by, bx * 256 + j] = x[by, bx * 256 + j] + T.float16(1)

    x = numbers(2, 5, 264, dtype="float16")
    agree(main, x, expected=x + 1)
    made = elaborate(main, name="k", dims={"N": parse_guard("%8")}, args={}, config={}, open_dims=True)
    target = parse_target("sm_90a")
    (road,) = lower_kernel(lower(made, target), target).launches[0].roads
    assert road.kind == "vectors", road


def views(use):
    @T.prim_func
    def main(A: T.Tensor((4, 6), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((4, 6), "float32")
            T.clear(tile)
            use(tile)

    return main


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (lambda t: T.reshape(t, (5, 5)), SourceAssertionError, r"\(4, 6\) and dtype float32 does not hold"),
        (lambda t: T.view(t, (4, 6), "float16"), SourceAssertionError, "keep the number of bits"),
        (lambda t: T.view(t, (96,), "bool"), UnsupportedError, "as bool"),
    ],
)
def test_wrong_views(use, kind, match):
    with pytest.raises(kind, match=match) as caught:
        build(views(use))
    assert caught.value.place.file == __file__


@pytest.mark.parametrize("channels", [8, 6])
def test_taps_of_an_image_and_flat_weights_whose_rows_end_in_a_tile(channels):
    """A convolution of 1 x 3 whose K is no multiple of its tile; weights are (taps, channels, filters)."""
    rows, taps, filters = 40, 3, 24
    deep = taps * channels

    @T.prim_func
    def main(
        X: T.Tensor((rows, channels), "float16"),
        W: T.Tensor((taps, channels, filters), "float16"),
        Y: T.Tensor((rows, filters), "float32"),
    ):
        with T.Kernel(1, threads=128):
            x, w = T.alloc_shared((64, 16), "float16"), T.alloc_shared((16, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            flat = T.Tensor((deep, filters), "float16", W.data)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(deep, 16), num_stages=2):
                for i, j in T.Parallel(64, 16):
                    tap = (k * 16 + j) // channels
                    row = i + tap - 1
                    inside = (row >= 0) and (row < rows) and (tap < taps)
                    x[i, j] = T.if_then_else(inside, X[row, (k * 16 + j) % channels], 0)
                T.copy(flat[k * 16, 0], w)
                T.gemm(x, w, acc)
            T.copy(acc, Y[0, 0])

    rng = np.random.default_rng(3)
    shapes = ((rows, channels), (taps, channels, filters))
    x, w = (rng.integers(-4, 5, shape).astype("float16") for shape in shapes)
    wide = np.pad(x, ((1, 1), (0, 0))).astype("float32")
    expected = sum(wide[tap : tap + rows] @ w[tap].astype("float32") for tap in range(taps))
    agree(main, x, w, expected=expected, targets=("cpu", "sm_80", "sm_90a", "gfx942"))


def test_buffers_without_axes_are_elements_like_others():
    Number = T.Tensor((), "float32")

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), S: Number, B: T.Tensor((8,), "float32"), C: Number, D: Number):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((), "float32")
            T.copy(S, s)
            flat = T.reshape(s, (1,))
            for i in T.Parallel(8):
                B[i] = A[i] * s[()] + S[()] - flat[0]
                T.atomic_add(C[()], A[i])
            D[()] = T.reshape(flat, ())[()]

    a, three = numbers(8), np.array(3, np.float32)
    agree(main, a, three, np.array(1, np.float32), expected=[a * 3, a.sum() + 1, three])
