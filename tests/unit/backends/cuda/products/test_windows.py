"""Convolutions on sm_90a: which loops are windows or matrices for TMA, which are not and why, forms."""

from __future__ import annotations

from pathlib import Path

import pytest
from told import no_roles, told

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.matmul.nodes import MatrixView, WindowCopy
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.nodes import walk
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[5] / "examples" / "kernels"
SM90A = parse_target("sm_90a")
SIZES = {**dict.fromkeys("NHW", Guard()), "C": Guard(eq=128), "F": Guard(eq=256)}


def conv2d(dims=None, **args):
    """A kernel of examples/kernels/conv.py with a tile of 128 x 256."""
    entry = load_entry("conv.py:conv2d", KERNELS)
    return elaborate(entry, name="conv2d", dims={**SIZES, **(dims or {})}, args=args, config={"bN": 256})


def assigned(kernel):
    """The last launch with roles, or with the reason why it has none."""
    return lower(kernel, SM90A, until="assign_roles").launches[-1]


def window(kernel):
    """The window that a kernel's image is walked over by."""
    launch = assigned(kernel)
    assert launch.strategy is not None, no_roles(launch)
    return next(stmt.window for stmt in walk(launch.body) if isinstance(stmt, WindowCopy))


@pytest.mark.parametrize("stage", ["assign_roles", "select_tma"])
def test_forms_of_a_convolution(golden, stage):
    golden(format_kernel(lower(conv2d(stride=2), SM90A, until=stage)))


@pytest.mark.parametrize(
    ("args", "lower", "upper"),
    [
        ({}, -1, -1),
        ({"pad": 0}, 0, -2),
        ({"R": 5, "pad": 2}, -2, -2),
        ({"pad": 3, "dilation": 2}, -3, -1),
        ({"stride": 2}, -1, -1),
    ],
)
def test_corners_follow_from_padding_and_taps(args, lower, upper):
    found = window(conv2d(**args))
    steps = args.get("stride", 1)
    assert (found.lower, found.upper, found.steps) == ((lower,) * 2, (upper,) * 2, (steps,) * 2)


def test_windows_of_known_sizes_end_at_their_last_place():
    sizes = {"H": Guard(eq=56), "W": Guard(eq=57)}
    assert window(conv2d(sizes, stride=4, pad=0)).upper == (-3, -4)


def test_one_tap_is_a_matrix():
    launch = assigned(conv2d(R=1, pad=0))
    assert launch.strategy is not None
    views = {str(stmt.root.name): stmt.view for stmt in launch.body if isinstance(stmt, MatrixView)}
    assert sorted(views) == ["K", "X", "Y"]
    assert int(views["X"].shape[1]) == 128
    assert not any(isinstance(stmt, WindowCopy) for stmt in walk(launch.body))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"pad": 129}, "X is gathered: padding of 129 and 127 pixels is beyond -128 to 127"),
        ({"dilation": 128}, "X is gathered: taps reach over more than 255 pixels"),
        ({"stride": 9}, "X is gathered: a stride of 9 is more than 8"),
    ],
)
def test_windows_that_tma_lacks_say_why(args, said):
    launch = assigned(conv2d(**args))
    assert launch.strategy is None
    assert said in str(no_roles(launch))
    assert said in " ".join(told(to_tir(lower(conv2d(**args), SM90A), SM90A).launches[0]))


def unrolled(N, H, W, C, F, bK=64, split=True, extra=True):
    """Three taps a side; each column of a tile finds its own. Without ``split`` a block has one line of one
    image; without ``extra`` a condition leaves out more than what lies outside."""

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), "float16"),
        K: T.Tensor((F, 9 * C), "float16"),
        Y: T.Tensor((N * H * W, F), "float16"),
    ):
        with T.Kernel(T.ceildiv(N * H * W, 128), threads=256) as by:
            a, b = T.alloc_shared((128, bK), "float16"), T.alloc_shared((64, bK), "float16")
            acc = T.alloc_fragment((128, 64), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(9 * C, bK), num_stages=2):
                for i, j in T.Parallel(128, bK):
                    k, m = ko * bK + j, by * 128 + i
                    y, x = m % (H * W) // W + k // C // 3 - 1, (m % W if split else m % 128) + k // C % 3 - 1
                    a[i, j] = T.if_then_else((x >= 0) if extra else (x > 0), X[m // (H * W), y, x, k % C], 0)
                T.copy(K[0, ko * bK], b)
                T.gemm(a, b, acc, transpose_B=True)
            T.copy(acc, Y[by * 128, 0])

    return main


@pytest.mark.parametrize(
    ("channels", "args", "condition", "remedy"),
    [
        (Guard(eq=96), {}, "the 64 columns of a tile are not known to be channels of one tap", '"%64"'),
        (Guard(), {}, "the 64 columns of a tile are not known to be channels of one tap", '"%64"'),
        (Guard(div=64), {"split": False}, "its pixels are not counted through rows", "m % OW"),
        (Guard(div=64), {"extra": False}, "its condition says more than that indices lie", "leave it out"),
    ],
)
def test_taps_inside_of_a_tile_name_the_condition_that_they_miss(channels, args, condition, remedy):
    dims = {**SIZES, "C": channels}
    launch = assigned(elaborate(unrolled, name="unrolled", dims=dims, args=args, config={}))
    (road,) = (road for road in launch.roads if road.loss is not None)
    assert f"X is gathered: {condition}" in road.loss.condition
    assert remedy in road.loss.remedy
    assert "for i, j in T.Parallel(128, bK)" in Path(__file__).read_text().splitlines()[road.line - 1]


@pytest.mark.parametrize("channels", [Guard(eq=64), Guard(div=64)])
def test_taps_inside_of_a_tile_are_one_where_the_tile_divides_the_channels(channels):
    assert window(elaborate(unrolled, name="unrolled", dims={**SIZES, "C": channels}, args={}, config={}))


def test_pixels_that_are_not_counted_through_all_images_are_no_window():
    def rows(N, H, W, C, F):
        @T.prim_func
        def main(
            X: T.Tensor((N, H, W, C), "float16"),
            K: T.Tensor((F, 9 * C), "float16"),
            Y: T.Tensor((N, H, W, F), "float16"),
        ):
            with T.Kernel(T.ceildiv(W, 128), H, N, threads=256) as (bx, y, n):
                a, b = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 64), "float16")
                acc = T.alloc_fragment((128, 64), "float32")
                T.clear(acc)
                for k in T.Pipelined(9 * C // 64, num_stages=2):
                    for p, q in T.Parallel(128, 64):
                        tap = k * 64 // C
                        a[p, q] = X[n, y + tap // 3 - 1, bx * 128 + p + tap % 3 - 1, k * 64 % C + q]
                    T.copy(K[0, k * 64], b)
                    T.gemm(a, b, acc, transpose_B=True)
                T.copy(acc, Y[n, y, bx * 128, 0])

        return main

    kernel = elaborate(rows, name="rows", dims=SIZES, args={}, config={})
    assert not any(isinstance(stmt, WindowCopy) for stmt in walk(assigned(kernel).body))


def test_an_image_that_the_launch_writes_is_no_window():
    def in_place(N, H, W, C=64):
        @T.prim_func
        def main(X: T.Tensor((N, H, W, C), "float16"), K: T.Tensor((C, 9 * C), "float16")):
            with T.Kernel(T.ceildiv(N * H * W, 128), threads=256) as b:
                a, w = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 64), "float16")
                acc = T.alloc_fragment((128, 64), "float32")
                out = T.Tensor((N * H * W, C), "float16", X.data)
                T.clear(acc)
                for k in T.Pipelined(9, num_stages=2):
                    T.im2col(X, a, b, k, 3, 1, 1, 1)
                    T.copy(K[0, k * 64], w)
                    T.gemm(a, w, acc, transpose_B=True)
                T.copy(acc, out[b * 128, 0])

        return main

    kernel = elaborate(in_place, name="in_place", dims=dict.fromkeys("NHW", Guard()), args={}, config={})
    assert assigned(kernel).strategy is None


def test_code_has_the_instruction():
    text = cuda.source(to_tir(lower(conv2d(), SM90A), SM90A), SM90A, "k")
    assert "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier" in text


def test_a_load_of_columns_does_not_wait_for_quotients_of_its_trip():
    text = cuda.source(to_tir(lower(conv2d({"C": Guard(div=64)}), SM90A), SM90A), SM90A, "conv")
    trip = text.rsplit("__global__", 1)[1]
    trip = trip[trip.index("int part_of_trip") :]
    loads = trip[trip.index("mbarrier_wait") : trip.index("_ptr_1[0] + 1")]
    assert "im2col" in loads
    assert " % C" not in loads
    assert " / C" not in loads
