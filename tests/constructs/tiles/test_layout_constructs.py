"""Layout objects and annotations: what they say of themselves, and that they change no result."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, build

import tilec
import tilec.language as T
from tilec import layout as layouts
from tilec.errors import SourceAssertionError, SourceTypeError, SourceValueError, UnsupportedError


def test_a_layout_maps_indices_and_knows_its_sizes():
    made = T.Layout((4, 8), lambda i, j: (j // 2, i * 2 + j % 2))
    assert made.get_input_shape() == [4, 8]
    assert made.get_output_shape() == [4, 8]
    assert made.map_forward_index([3, 5]) == [2, 7]
    assert len(made.index) == 2
    assert made.inverse().map_forward_index([2, 7]) == [3, 5]
    assert made.is_equal(T.Layout((4, 8), lambda i, j: [j >> 1, (i << 1) + (j & 1)]))
    assert not made.is_equal(T.Layout((4, 8), lambda i, j: (i, j)))
    assert T.Layout((4, 8)).map_forward_index([1, 2]) == [10]
    twice = made.repeat(0, 2)
    assert twice.get_input_shape() == [8, 8]
    assert twice.map_forward_index([7, 5]) == [1, 2, 7]
    assert tilec.Layout is T.Layout


def test_a_layout_without_an_inverse_and_wrong_indices():
    with pytest.raises(SourceValueError, match="has no inverse"):
        T.Layout((4,), lambda i: i // 2).inverse()
    with pytest.raises(SourceValueError, match="takes as many indices"):
        T.Layout((4,)).map_forward_index([1, 2])


def test_fragments_map_to_threads_and_registers():
    made = T.Fragment((8, 8), lambda i, j: (i * 4 + j // 2, j % 2))
    assert made.get_thread_size() == 32
    assert made.get_output_shape() == [2]
    assert made.map_forward_thread([3, 5]) == 14
    assert made.map_forward_index([3, 5]) == [1]
    assert made.is_equal(layouts.make_gemm_fragment_8x8())
    assert not made.is_equal(layouts.make_gemm_fragment_8x8_transposed())
    split = T.Fragment(
        (8, 8), forward_thread_fn=lambda i, j: i * 4 + j // 2, forward_index_fn=lambda i, j: j % 2
    )
    assert made.is_equal(split)
    assert made.thread is not None

    wide = made.repeat([2, 1])
    assert wide.shape == (16, 8)
    assert (wide.get_thread_size(), wide.map_forward_index([11, 5])) == (32, [3])
    more = made.repeat([1, 2], repeat_on_thread=True)
    assert (more.get_thread_size(), more.map_forward_thread([3, 13])) == (64, 46)
    first, last = made.repeat([2, 2]), made.repeat([2, 2], lower_dim_first=False)
    assert (first.map_forward_index([8, 0]), last.map_forward_index([8, 0])) == ([4], [2])


def test_copies_of_fragments():
    made = T.Fragment((8,), lambda i, rep: (i + 8 * rep, 0), replicate=4)
    assert made.get_thread_size() == 32
    assert [made.map_forward_thread([3], rep) for rep in range(4)] == [3, 11, 19, 27]
    once = T.Fragment((8,), lambda i: (i, 0))
    assert once.replicate(4).is_equal(made)
    assert made.condense_rep_var() is made
    useless = T.Fragment((8,), lambda i, rep: (i, 0), replicate=4)
    assert useless.condense_rep_var().is_equal(once)


def tiles(use, dtype="float16", shape=(16, 64)):
    @T.prim_func
    def main(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=32):
            s, f = T.alloc_shared(shape, dtype), T.alloc_fragment(shape, dtype)
            use(A, s, f)
            T.copy(A, s)
            T.copy(s, f)
            T.copy(f, B)

    return main


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (layouts.make_swizzled_layout, 64),
        (layouts.make_wgmma_swizzled_layout, 32),
        (layouts.make_full_bank_swizzled_layout, 64),
        (layouts.make_half_bank_swizzled_layout, 32),
        (layouts.make_quarter_bank_swizzled_layout, 16),
        (layouts.make_linear_layout, 20),
        (layouts.make_volta_swizzled_layout, 64),
        (T.make_mma_swizzle_layout, 64),
    ],
)
def test_builders_give_every_element_a_place_of_its_own(make, columns):
    found = []
    build(tiles(lambda A, s, f: found.append(make(s)), shape=(16, columns)))
    (made,) = found
    places = {tuple(made.map_forward_index([i, j])) for i in range(16) for j in range(columns)}
    assert len(places) == 16 * columns


def test_a_full_swizzle_spreads_a_column_over_all_banks():
    found = []
    build(tiles(lambda A, s, f: found.append(layouts.make_full_bank_swizzled_layout(s))))
    assert [found[0].map_forward_index([row, 0])[1] // 8 for row in range(8)] == list(range(8))
    assert T.get_swizzle_layout(3, 0, 64, "float16") == (3, 24)


def test_a_replicated_fragment_is_whole_in_every_thread():
    found = []
    build(
        tiles(
            lambda A, s, f: found.append(layouts.make_fully_replicated_layout_fragment(f, 32)), shape=(2, 4)
        )
    )
    (made,) = found
    assert made.get_thread_size() == 32
    assert made.map_forward_index([1, 3]) == [7]
    assert [made.map_forward_thread([1, 3], rep) for rep in (0, 31)] == [0, 31]


def test_layouts_change_no_result():
    @T.prim_func
    def main(A: T.Tensor((16, 64), "float16"), B: T.Tensor((16, 64), "float16")):
        with T.Kernel(1, threads=32):
            s, t, u = (T.alloc_shared((16, 64), "float16") for _ in range(3))
            f = T.alloc_fragment((16, 64), "float16")
            T.annotate_layout({
                s: layouts.make_swizzled_layout(s),
                t: T.Layout((16, 64), lambda i, j: j * 16 + i),
                u: lambda i, j: (j, i),
                f: T.Fragment((16, 64), lambda i, j: (j % 32, i * 2 + j // 32)),
            })  # fmt: skip
            T.annotate_padding({s: 8})
            T.copy(A, s)
            T.copy(s, t)
            T.copy(t, u)
            T.copy(u, f)
            for i, j in T.Parallel(16, 64, loop_layout=T.Fragment((16, 64), lambda i, j: (j % 32, i))):
                f[i, j] = f[i, j] * 2
            T.copy(f, B, loop_layout=T.Fragment((16, 64), lambda i, j: (j % 32, i)))

    a = np.arange(1024, dtype=np.float16).reshape(16, 64)
    agree(main, a, expected=a * 2)


def test_layouts_of_tensors_may_have_runtime_extents():
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n, 8), "float32"), Y: T.Tensor((n, 8), "float32")):
        with T.Kernel(T.ceildiv(n, 16), threads=32) as bx:
            s = T.alloc_shared((16, 8), "float32")
            turned = T.Layout(X.shape, lambda i, j: [i // 8, j, i % 8])
            T.annotate_layout({X: turned, s: turned})
            T.copy(X[bx * 16, 0], s)
            T.copy(s, Y[bx * 16, 0])

    x = np.arange(20 * 8, dtype=np.float32).reshape(20, 8)
    agree(main, x, expected=x)
    with pytest.raises(SourceValueError, match="in a layout is not known while building"):
        T.Layout((n, 8), lambda i, j: [i, j]).get_output_shape()


@pytest.mark.parametrize("order", ["row", "column", "mlx"])
def test_walks_over_the_grid_change_no_result(order):
    @T.prim_func
    def main(B: T.Tensor((5, 7), "int32")):
        with T.Kernel(7, 5, threads=32) as (bx, by):
            B[by, bx] = by * 7 + bx
            T.use_swizzle(panel_size=2, order=order)

    agree(main, expected=np.arange(35).reshape(5, 7))


def test_hints_of_launches_change_no_result():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            T.annotate_l2_hit_ratio({A: 0.5})
            T.annotate_min_blocks_per_sm(2)
            T.annotate_restrict_buffers(A, B)
            T.use_swizzle(10, enable=False)
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[bx * 32 + i] + 1

    a = np.arange(64, dtype=np.float32)
    agree(main, a, expected=a + 1)


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (lambda A, s, f: T.annotate_layout({s: 5}), SourceValueError, "the layout of .* is 5"),
        (lambda A, s, f: T.annotate_layout({f: T.Layout((16, 64))}), SourceAssertionError, "is a fragment"),
        (lambda A, s, f: T.annotate_layout({"s": T.Layout((4,))}), SourceTypeError, "takes buffers, not str"),
        (lambda A, s, f: T.annotate_l2_hit_ratio({s: 0.5}), SourceAssertionError, "not in global memory"),
        (lambda A, s, f: T.annotate_min_blocks_per_sm(0), SourceValueError, "positive number of blocks"),
        (lambda A, s, f: T.use_swizzle(4, order="diagonal"), SourceValueError, "'diagonal' does not exist"),
        (lambda A, s, f: T.Fragment((4,)), SourceValueError, "takes forward_fn"),
        (lambda A, s, f: T.Parallel(4, 4, loop_layout=T.Fragment((4,), lambda i: (i, 0))), SourceValueError,
         "over 2 axes"),
        (lambda A, s, f: layouts.make_half_bank_swizzled_layout(T.alloc_shared((4, 20), "float16")),
         SourceValueError, "40 bytes, no multiple of 64"),
        (lambda A, s, f: layouts.make_tcgen05mma_swizzled_layout(s), UnsupportedError,
         "leave the layout out"),
    ],
)  # fmt: skip
def test_wrong_annotations_name_the_line(use, kind, match):
    with pytest.raises(kind, match=match) as caught:
        build(tiles(use))
    assert caught.value.place.file == __file__
