"""Convolutions by TMA's im2col form on the emulator: against the interpreter, and with faults planted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from emulated import SM80, SM90A, Beside, kernel_of, replacing, with_args
from tvm import tirx

import tilec.language as T
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.errors import EmulationError
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate

SMALL = {"bM": 64, "bN": 64, "threads": 128, "num_stages": 2}
CHANNELS = {"C": Guard(eq=64), "F": Guard(eq=72)}
IMAGES = {**dict.fromkeys("NHW", Guard()), **CHANNELS}
PIXELS = {"N": 2, "H": 5, "W": 7, "C": 64, "F": 72}


def oblong(N, H, W, C, F, taps, steps, pads, spread, dtype="float16"):
    """Filters (R, S, C, F) with sizes, strides, padding and dilation of their own along each axis."""
    (R, S), (sh, sw), (ph, pw), (dh, dw) = taps, steps, pads, spread
    OH, OW = (H + 2 * ph - dh * (R - 1) - 1) // sh + 1, (W + 2 * pw - dw * (S - 1) - 1) // sw + 1

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), dtype), K: T.Tensor((R, S, C, F), dtype), Y: T.Tensor((N, OH, OW, F), dtype)
    ):
        with T.Kernel(T.ceildiv(F, 64), T.ceildiv(N * OH * OW, 64), threads=128) as (bx, by):
            a, b = T.alloc_shared((64, 64), dtype), T.alloc_shared((64, 64), dtype)
            acc = T.alloc_fragment((64, 64), "float32")
            filters = T.Tensor((R * S * C, F), dtype, K.data)
            out = T.Tensor((N * OH * OW, F), dtype, Y.data)
            T.clear(acc)
            for k in T.Pipelined(R * S * C // 64, num_stages=2):
                for p, q in T.Parallel(64, 64):
                    m, tap = by * 64 + p, k * 64 // C
                    y, x = m // OW % OH * sh + tap // S * dh - ph, m % OW * sw + tap % S * dw - pw
                    a[p, q] = X[m // (OH * OW), y, x, k * 64 % C + q]
                T.copy(filters[k * 64, bx * 64], b)
                T.gemm(a, b, acc)
            T.copy(acc, out[by * 64, bx * 64])

    return main


def unrolled(N, H, W, C, F, bK=64, stride=1):
    """Three taps a side; each column of a tile finds its own: it is a row of the unrolled filter."""
    OH, OW = (H - 1) // stride + 1, (W - 1) // stride + 1

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), "float16"),
        K: T.Tensor((F, 9 * C), "float16"),
        Y: T.Tensor((N * OH * OW, F), "float16"),
    ):
        with T.Kernel(T.ceildiv(F, 64), T.ceildiv(N * OH * OW, 64), threads=128) as (bx, by):
            a, b = T.alloc_shared((64, bK), "float16"), T.alloc_shared((64, bK), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(9 * C, bK), num_stages=2):
                for i, j in T.Parallel(64, bK):
                    k, m = ko * bK + j, by * 64 + i
                    y, x = m % (OH * OW) // OW * stride + k // C // 3 - 1, m % OW * stride + k // C % 3 - 1
                    inside = (y >= 0) and (x >= 0) and (y < H) and (x < W)
                    a[i, j] = T.if_then_else(inside, X[m // (OH * OW), y, x, k % C], 0)
                T.copy(K[bx * 64, ko * bK], b)
                T.gemm(a, b, acc, transpose_B=True)
            T.copy(acc, Y[by * 64, bx * 64])

    return main


def volume(N, D, H, W, C, F, stride, dtype="float16"):
    """Cubes of three taps, one pixel of padding."""
    OD, OH, OW = ((size - 1) // stride + 1 for size in (D, H, W))

    @T.prim_func
    def main(
        X: T.Tensor((N, D, H, W, C), dtype),
        K: T.Tensor((F, 3, 3, 3, C), dtype),
        Y: T.Tensor((N, OD, OH, OW, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, 64), T.ceildiv(N * OD * OH * OW, 64), threads=128) as (bx, by):
            a, b = T.alloc_shared((64, 64), dtype), T.alloc_shared((64, 64), dtype)
            acc = T.alloc_fragment((64, 64), "float32")
            filters = T.Tensor((F, 27 * C), dtype, K.data)
            out = T.Tensor((N * OD * OH * OW, F), dtype, Y.data)
            T.clear(acc)
            for k in T.Pipelined(27 * C // 64, num_stages=2):
                for p, q in T.Parallel(64, 64):
                    m, tap = by * 64 + p, k * 64 // C
                    z = m // (OW * OH) % OD * stride + tap // 9 - 1
                    y, x = m // OW % OH * stride + tap // 3 % 3 - 1, m % OW * stride + tap % 3 - 1
                    a[p, q] = X[m // (OD * OH * OW), z, y, x, k * 64 % C + q]
                T.copy(filters[bx * 64, k * 64], b)
                T.gemm(a, b, acc, transpose_B=True)
            T.copy(acc, out[by * 64, bx * 64])

    return main


def check(kernel, dims):
    """The kernel uses the form, and is right."""
    launch = lower(kernel, SM90A, until="assign_roles").launches[0]
    assert launch.strategy is not None, launch.roads
    lowered = lower_kernel(lower(kernel, SM90A), SM90A, marks=True)
    assert any(found.window for found in lowered.launches[0].tensor_maps)
    assert Beside(kernel, SM90A).run(dims) == []


def conv2d(**args):
    return kernel_of("conv.py:conv2d", IMAGES, args, **SMALL)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"stride": 2},
        {"dilation": 2, "pad": 2, "activation": "silu"},
        {"R": 2, "pad": 0, "dtype": "bfloat16"},
    ],
    ids=str,
)
def test_images(args):
    check(conv2d(**args), PIXELS)


@pytest.mark.parametrize("args", [{}, {"stride": 2}], ids=str)
def test_channels_of_the_call(args):
    sizes = {**dict.fromkeys("NHW", Guard()), "C": Guard(div=64), "F": Guard(div=8)}
    check(kernel_of("conv.py:conv2d", sizes, args, **SMALL), {**PIXELS, "C": 128})


def test_lines():
    kernel = kernel_of("conv.py:conv1d", {"N": Guard(), "L": Guard(), **CHANNELS}, {"stride": 2}, **SMALL)
    check(kernel, {"N": 3, "L": 50, "C": 64, "F": 72})


@pytest.mark.parametrize(
    ("taps", "steps", "pads", "spread"),
    [((3, 1), (1, 2), (2, 0), (2, 1)), ((2, 4), (3, 1), (0, 3), (1, 2))],
)
def test_axes_that_differ(taps, steps, pads, spread):
    args = {"taps": taps, "steps": steps, "pads": pads, "spread": spread}
    check(elaborate(oblong, name="oblong", dims=IMAGES, args=args, config={}), {**PIXELS, "H": 9, "W": 8})


def test_volumes():
    dims = {**IMAGES, "D": Guard(), "H": Guard(eq=5), "W": Guard(eq=4)}
    kernel = elaborate(volume, name="volume", dims=dims, args={"stride": 2}, config={})
    check(kernel, {**PIXELS, "D": 4, "H": 5, "W": 4})


@pytest.mark.parametrize(
    ("channels", "stride"), [(Guard(eq=64), 2), (Guard(div=64), 1)], ids=["pinned", "of the call"]
)
def test_taps_from_the_columns_of_a_tile(channels, stride):
    dims = {**IMAGES, "C": channels, "F": Guard(div=8)}
    kernel = elaborate(unrolled, name="unrolled", dims=dims, args={"stride": stride}, config={})
    check(kernel, PIXELS if channels.eq else {**PIXELS, "C": 128})


def test_what_tma_cannot_walk_over_is_gathered():
    kernel = conv2d(stride=9, pad=4)
    launch = lower(kernel, SM90A, until="assign_roles").launches[0]
    assert "X is gathered: a stride of 9 is more than 8" in str(launch.roads)
    few = {**PIXELS, "N": 1, "H": 3}
    assert Beside(kernel, SM90A).run(few) == []
    assert Beside(conv2d(), SM80).run(few) == []


# ---- faults ----


def moved(by: int):
    """The tap of the first loads along the innermost axis, moved."""

    def change(stmt):
        def args(old):
            return [*old[:7], old[7] + tirx.const(by, "uint16"), *old[8:]]

        return with_args(stmt, args)

    return replacing(conv2d(), SM90A, "im2col", change)


def with_window(**changes):
    """The kernel with another window in its tensor map."""
    lowered = lower_kernel(lower(conv2d(), SM90A), SM90A, marks=True)
    (launch,) = lowered.launches
    image, *others = launch.tensor_maps
    image = replace(image, window=replace(image.window, **changes))
    return replace(lowered, launches=(replace(launch, tensor_maps=(image, *others)),))


def failure(lowered) -> str:
    with pytest.raises(EmulationError) as found:
        Beside(conv2d(), SM90A, lowered=lowered).run(PIXELS)
    return str(found.value)


def test_wrong_offset_of_a_tap():
    assert Beside(conv2d(), SM90A, lowered=moved(1)).run(PIXELS) != []
    assert "has no place in 8 bits" in failure(moved(300))


def test_wrong_corner_of_a_window():
    assert "lies outside of the window" in failure(with_window(lower=(0, -1)))
    assert Beside(conv2d(), SM90A, lowered=with_window(upper=(0, -1))).run(PIXELS) != []
    assert "has no pixel" in failure(with_window(upper=(-9, -1)))
    assert "beyond -128 to 127" in failure(with_window(lower=(-129, -1)))


def test_wrong_step_of_a_window():
    assert Beside(conv2d(), SM90A, lowered=with_window(steps=(2, 1))).run(PIXELS) != []
    assert "not 1 to 8" in failure(with_window(steps=(9, 1)))


def test_map_of_another_form():
    lowered = with_window()
    (launch,) = lowered.launches
    image, *others = launch.tensor_maps
    boxes = replace(image, box=(64, 8, 8, 1), window=None)
    made = replace(lowered, launches=(replace(launch, tensor_maps=(boxes, *others)),))
    assert "was not encoded for it" in failure(made)
