"""Reductions and scans: kinds, memories, axes, ranks, regions, dtypes, NaN; deferred ones; any and all."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from agree import agree, build
from breadth import diagonal, parametrized

import tilec.language as T
from tilec.errors import SourceValueError

#: Code of both GPU targets is the same where no launch has warp roles.
GENERAL = ("cpu", "sm_80")
ALLOC = {"shared": T.alloc_shared, "fragment": T.alloc_fragment, "local": T.alloc_local}
REDUCED = {
    "sum": lambda x, axis: x.sum(axis),
    "abssum": lambda x, axis: np.abs(x).sum(axis),
    "max": lambda x, axis: x.max(axis),
    "min": lambda x, axis: x.min(axis),
    "absmax": lambda x, axis: np.abs(x).max(axis),
    "bitand": lambda x, axis: np.bitwise_and.reduce(x, axis=axis),
    "bitor": lambda x, axis: np.bitwise_or.reduce(x, axis=axis),
    "bitxor": lambda x, axis: np.bitwise_xor.reduce(x, axis=axis),
}
JOINED = {
    "sum": np.add,
    "abssum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "absmax": lambda old, new: np.maximum(np.abs(old), new),
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
}


def numbers(*shape, dtype="float32", seed=0):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    low = 0 if kind.kind == "u" else -9
    return np.random.default_rng(seed).integers(low, 10, shape).astype(kind)


def exact(array):
    return array if array.dtype.kind in "iu" else array.astype(np.float64)


def reduction(kinds, shape, out, axis, dtype, memories, clear, threads=64):
    """One result per kind."""
    count = len(kinds)

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Old: T.Tensor(out, dtype), Y: T.Tensor((count, *out), dtype)):
        with T.Kernel(1, threads=threads):
            x, y = ALLOC[memories[0]](shape, dtype), ALLOC[memories[1]](out, dtype)
            T.copy(X, x)
            for at, kind in enumerate(kinds):
                T.copy(Old, y)
                T.reduce(x, y, kind, axis, clear)
                T.copy(y, Y[(at, *[0] * len(out))])

    return main


def check(
    kinds, shape, axis, dtype="float32", memories=("fragment", "fragment"), clear=True, keep=False, **more
):
    out = [extent for at, extent in enumerate(shape) if keep or at != axis % len(shape)] or [1]
    if keep:
        out[axis] = 1
    x, old = numbers(*shape, dtype=dtype), numbers(*out, dtype=dtype, seed=1)
    found = [REDUCED[kind](exact(x), axis).reshape(out) for kind in kinds]
    kept = [JOINED[kind](exact(old), new) for kind, new in zip(kinds, found, strict=True)]
    kernel = reduction(kinds, shape, tuple(out), axis, dtype, memories, clear, **more)
    agree(kernel, x, old, expected=np.stack(found if clear else kept), targets=GENERAL)


FLOATS = ("sum", "abssum", "max", "min", "absmax")


DTYPES = ("float32", "float16", "bfloat16", "float64")


@parametrized(
    ("dtype", "clear"),
    [(dtype, clear) for dtype in DTYPES for clear in (True, False)],
    fast=diagonal(DTYPES, (True, False)),
)
def test_every_kind_of_floats(dtype, clear):
    check(FLOATS, (6, 20), 1, dtype, clear=clear)


@pytest.mark.parametrize(
    ("dtype", "clear"), [("float8_e4m3fn", False), ("float8_e4m3fn", True), ("float8_e5m2", False)]
)
def test_extremes_of_8_bit_floats(dtype, clear):
    check(("max", "min", "absmax"), (6, 20), 1, dtype, ("shared", "fragment"), clear)


@parametrized("dtype", ["int32", "uint8", "int8", "int64", "uint32"], fast=["uint8", "int8", "int64"])
def test_every_kind_of_integers(dtype):
    check(
        ("max", "min", "absmax", "bitand", "bitor", "bitxor"),
        (6, 20),
        -1,
        dtype,
        ("fragment", "shared"),
        False,
    )


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_the_lowest_integer_has_no_magnitude(dtype):
    """Its magnitude wraps around in its type, and counts as what it is there: less than any other."""
    lowest = np.iinfo(dtype).min

    @T.prim_func
    def main(X: T.Tensor((2, 20), dtype), Y: T.Tensor((2,), dtype)):
        with T.Kernel(1, threads=32):
            x, y = T.alloc_fragment((2, 20), dtype), T.alloc_fragment((2,), dtype)
            T.copy(X, x)
            T.reduce_absmax(x, y, dim=1)
            T.copy(y, Y)

    x = np.full((2, 20), -7, dtype)
    x[0, 3], x[1, 5:7] = lowest, (lowest, lowest + 1)
    agree(main, x, expected=np.array([7, np.iinfo(dtype).max], dtype))


@pytest.mark.parametrize(
    "memories", [("shared", "shared"), ("shared", "fragment"), ("fragment", "shared"), ("local", "local")]
)
def test_both_axes_in_every_memory(memories):
    check(("sum", "max"), (6, 20), 0, memories=memories, clear=False)
    check(("sum", "min"), (6, 20), 1, memories=memories, keep=True)


@pytest.mark.parametrize(
    ("shape", "axis", "keep"),
    [((40,), 0, False), ((5, 6, 7), 1, False), ((5, 6, 7), 0, True), ((3, 4, 5, 6), 2, False)],
)
def test_ranks_one_to_four(shape, axis, keep):
    check(("sum", "absmax"), shape, axis, keep=keep, clear=False, threads=128)


@pytest.mark.parametrize("axis", [0, 1])
def test_axes_longer_than_a_block(axis):
    check(("sum",), (300, 1)[:: 1 if axis == 0 else -1], axis, threads=256)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_nan_is_ignored_unless_it_is_to_spread(dtype):
    @T.prim_func
    def main(X: T.Tensor((6, 20), dtype), Y: T.Tensor((6, 6), dtype)):
        with T.Kernel(1, threads=64):
            x, y = T.alloc_fragment((6, 20), dtype), T.alloc_fragment((6,), dtype)
            T.copy(X, x)
            for at, spread in enumerate((False, True)):
                T.reduce_max(x, y, dim=1, nan_propagate=spread)
                T.copy(y, Y[3 * at, 0:6])
                T.reduce_min(x, y, dim=1, nan_propagate=spread)
                T.copy(y, Y[3 * at + 1, 0:6])
                T.reduce_absmax(x, y, dim=1, nan_propagate=spread)
                T.copy(y, Y[3 * at + 2, 0:6])

    x = numbers(6, 20, dtype=dtype)
    x[1, 3] = np.nan
    x[4, :] = np.nan
    z = x.astype(np.float32)
    ignoring = [np.fmax.reduce(z, 1, initial=-np.inf), np.fmin.reduce(z, 1, initial=np.inf),
                np.fmax.reduce(np.abs(z), 1, initial=0)]  # fmt: skip
    agree(main, x, expected=np.stack([*ignoring, z.max(1), z.min(1), np.abs(z).max(1)]))


def test_regions_with_and_without_their_axes_of_one():
    @T.prim_func
    def main(
        X: T.Tensor((2, 8, 20), "float32"), Y: T.Tensor((4, 8), "float32"), Z: T.Tensor((8,), "float32")
    ):
        with T.Kernel(1, threads=64):
            s, f = T.alloc_shared((2, 8, 20), "float32"), T.alloc_fragment((2, 8, 20), "float32")
            y, z = T.alloc_shared((4, 8), "float32"), T.alloc_fragment((8,), "float32")
            T.copy(X, s)
            T.copy(X, f)
            T.clear(y)
            T.reduce_sum(s[1, :, 0:10], z, dim=-1)
            T.reduce_sum(f[0, :, 5:9], z, dim=2, clear=False)
            for k in T.serial(2):
                T.reduce_max(f[k, :, :], y[k, :], dim=-1)
            T.reduce_min(s[0:1, 2:6, :], y[2:3, 2:6], dim=-1, batch=2)
            T.copy(y, Y)
            T.copy(z, Z)

    x = numbers(2, 8, 20)
    y = np.zeros((4, 8))
    y[:2], y[2, 2:6] = x.max(-1), x[0, 2:6].min(-1)
    agree(main, x, expected=[y, x[1, :, :10].sum(-1) + x[0, :, 5:9].sum(-1)])


def test_a_threads_own_elements_into_a_variable_and_inside_of_a_loop():
    @T.prim_func
    def main(X: T.Tensor((13, 4), "float32"), Y: T.Tensor((2,), "float32"), Z: T.Tensor((13,), "float32")):
        with T.Kernel(1, threads=32):
            own, v = T.alloc_local((13,), "float32"), T.alloc_var("float32")
            T.clear(own)
            T.copy(X[0, 0:4], own[0:4])
            T.reduce_sum(own, v, dim=0)
            Y[0] = v
            T.reduce_max(own, v, dim=0, clear=False)
            Y[1] = v
            for i in T.Parallel(13):
                row, total = T.alloc_local((4,), "float32"), T.alloc_local((1,), "float32")
                T.copy(X[i, 0:4], row)
                T.reduce_sum(row, total, dim=0)
                Z[i] = total[0]

    x = numbers(13, 4)
    total = x[0].sum()
    agree(main, x, expected=[[total, max(total, x[0].max(), 0)], x.sum(1)])


def test_the_wider_result_accumulates():
    @T.prim_func
    def main(X: T.Tensor((4, 64), "float16"), Y: T.Tensor((4,), "float32"), Z: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            x, c = T.alloc_fragment((4, 64), "float16"), T.alloc_fragment((4, 64), "int8")
            y, z = T.alloc_fragment((4,), "float32"), T.alloc_fragment((4,), "int32")
            T.copy(X, x)
            T.copy(X, c)
            T.reduce_sum(x, y)
            T.reduce_sum(c, z)
            T.copy(y, Y)
            T.copy(z, Z)

    x = np.full((4, 64), 100, np.float16)
    agree(main, x, expected=[np.full(4, 6400), np.full(4, 6400)])


SCANS = {"sum": (T.cumsum, np.cumsum), "max": (T.cummax, np.maximum.accumulate)}


@parametrized(
    ("memory", "kind"),
    [(memory, kind) for memory in ("shared", "fragment") for kind in SCANS],
    fast=diagonal(("shared", "fragment"), list(SCANS)),
)
def test_scans_of_both_axes_in_both_directions(memory, kind):
    op, reference = SCANS[kind]

    @T.prim_func
    def main(X: T.Tensor((6, 20), "float32"), Y: T.Tensor((4, 6, 20), "float32")):
        with T.Kernel(1, threads=64):
            x, y = ALLOC[memory]((6, 20), "float32"), T.alloc_fragment((6, 20), "float32")
            T.copy(X, x)
            op(x, y, 1)
            T.copy(y, Y[0, 0:6, 0:20])
            op(x, y, dim=1, reverse=True)
            T.copy(y, Y[1, 0:6, 0:20])
            op(x, y, dim=-2, reverse=True)
            T.copy(y, Y[2, 0:6, 0:20])
            op(x)
            T.copy(x, Y[3, 0:6, 0:20])

    x = numbers(6, 20)
    back = [np.flip(reference(np.flip(x, axis), axis=axis), axis) for axis in (1, 0)]
    agree(main, x, expected=np.stack([reference(x, axis=1), *back, reference(x, axis=0)]))


@pytest.mark.parametrize("shape", [(300,), (3, 4, 5), (2, 3, 4, 5)])
def test_scans_of_other_ranks(shape):
    @T.prim_func
    def main(X: T.Tensor(shape, "int32"), Y: T.Tensor(shape, "int32"), Z: T.Tensor(shape, "int32")):
        with T.Kernel(1, threads=64):
            x = T.alloc_shared(shape, "int32")
            T.copy(X, x)
            T.cumsum(x, dim=-1, reverse=True)
            T.copy(x, Y)
            T.cummax(x, dim=0)
            T.copy(x, Z)

    x = numbers(*shape, dtype="int32")
    y = np.flip(np.cumsum(np.flip(x, -1), axis=-1), -1)
    agree(main, x, expected=[y, np.maximum.accumulate(y, axis=0)])


def test_scans_of_regions_and_into_a_wider_dtype():
    @T.prim_func
    def main(
        X: T.Tensor((2, 8, 20), "float16"), Y: T.Tensor((2, 8, 20), "float16"),
        Z: T.Tensor((8, 20), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=64):
            s, f = T.alloc_shared((2, 8, 20), "float16"), T.alloc_fragment((8, 20), "float16")
            wide = T.alloc_fragment((8, 20), "float32")
            T.copy(X, s)
            T.copy(X[0, :, :], f)
            T.cumsum(s[1, 2:6, 0:9], dim=2)
            T.cumsum(s[0, :, :], dim=1)
            T.copy(s, Y)
            T.cumsum(f, wide, dim=1)
            T.copy(wide, Z)

    x = numbers(2, 8, 20, dtype="float16")
    y = x.astype(np.float64)
    y[1, 2:6, :9], y[0] = y[1, 2:6, :9].cumsum(1), y[0].cumsum(0)
    agree(main, x, expected=[y, x[0].astype(np.float64).cumsum(1)])


@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_deferred_reductions_count_every_iteration_once(op):
    @T.prim_func
    def main(X: T.Tensor((6, 20), "float32"), Y: T.Tensor((6,), "float32"), Z: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=64):
            acc, y = T.alloc_reducer((6,), "float32", op=op), T.alloc_fragment((6,), "float32")
            T.reducer_init(acc)
            for i, j in T.Parallel(6, 20):
                T.reducer_update(acc[i], X[i, j])
            T.finalize_reducer(acc, y)
            T.copy(y, Y)
            old = T.alloc_reducer((1,), "float32", op, replication="all")
            T.fill(old, 0)
            for i, j in T.Parallel(6, 20):
                if op == "sum":
                    old[0] += X[i, j]
                elif op == "max":
                    old[0] = T.max(old[0], X[i, j])
                else:
                    old[0] = T.min(old[0], X[i, j])
            T.finalize_reducer(old)
            Z[0] = old[0]

    x = numbers(6, 20)
    rows = REDUCED[op](x, 1)
    agree(main, x, expected=[rows, [JOINED[op](0, REDUCED[op](rows, 0))]])


def test_any_and_all_of_tiles_regions_and_threads_arrays():
    @T.prim_func
    def main(A: T.Tensor((3, 20), "int32"), M: T.Tensor((3, 20), "bool"), B: T.Tensor((3, 4), "int32")):
        with T.Kernel(3, threads=64) as bx:
            s, m, own = (
                T.alloc_shared((20,), "int32"),
                T.alloc_shared((3, 20), "bool"),
                T.alloc_local((4,), "int32"),
            )
            T.copy(A[bx, :], s)
            T.copy(M, m)
            T.copy(A[bx, 0:4], own)
            if T.any_of(s):
                B[bx, 0] = 1
            else:
                B[bx, 0] = 0
            B[bx, 1] = T.if_then_else(T.all_of(s), 1, 0)
            B[bx, 2] = T.any_of(m[bx, 2:7])
            B[bx, 3] = T.all_of(own)

    a, m = np.random.default_rng(0).integers(0, 2, (3, 20)).astype(np.int32), np.zeros((3, 20), bool)
    a[0], a[1], m[1, 3], m[2, 7] = 0, 1, True, True
    agree(main, a, m, expected=np.stack([a.any(1), a.all(1), m[:, 2:7].any(1), a[:, :4].all(1)], 1))


def test_a_loop_that_ends_when_no_element_is_left():
    @T.prim_func
    def main(A: T.Tensor((20,), "int32"), N: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=64):
            s, n = T.alloc_shared((20,), "int32"), T.alloc_var("int32")
            T.copy(A, s)
            while T.any_of(s):
                for i in T.Parallel(20):
                    s[i] = T.max(s[i] - 1, 0)
                n += 1
            N[0] = n

    a = np.random.default_rng(0).integers(0, 5, 20).astype(np.int32)
    agree(main, a, expected=[a.max()])


def tiles(use):
    @T.prim_func
    def main(A: T.Tensor((4, 6), "float32")):
        with T.Kernel(1, threads=32):
            x, y, z = (
                T.alloc_fragment((4, 6), "float32"),
                T.alloc_fragment((4,), "float32"),
                T.alloc_shared((4, 6), "float32"),
            )
            T.clear(x)
            T.clear(z)
            use(A, x, y, z)

    return main


@pytest.mark.parametrize(
    ("use", "match"),
    [
        (lambda A, x, y, z: T.reduce_sum(x, y, dim=0), r"must be \(6,\) or \(1, 6\)"),
        (lambda A, x, y, z: T.reduce_sum(A, y, dim=1), "A is in global memory"),
        (lambda A, x, y, z: T.reduce_sum(x, y, dim=2), "dim=2 is out of range"),
        (lambda A, x, y, z: T.reduce_bitor(x, y, dim=1), "only integers have bits"),
        (lambda A, x, y, z: T.reduce_max(x, y, dim=1, batch=0), "batch=0 is not positive"),
        (lambda A, x, y, z: T.reduce(x, y, "mean", 1, True), "'mean' is no reduction"),
        (lambda A, x, y, z: T.reduce_max(x, T.alloc_fragment((4,), "bool"), dim=1), "is bool"),
        (lambda A, x, y, z: T.cummax(T.alloc_shared((4, 6), "bool"), dim=1), "is bool"),
        (lambda A, x, y, z: T.cumsum(x, y), "has shape"),
        (lambda A, x, y, z: T.cumsum(x, dim=3), "dim=3 is out of range"),
        (lambda A, x, y, z: T.any_of(z[0:2, 0:2]), "along its last axis"),
    ],
)
def test_wrong_reductions_name_the_line(use, match):
    with pytest.raises(SourceValueError, match=match) as caught:
        build(tiles(use))
    assert caught.value.place.file == __file__


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.bfloat16])
def test_running_sums_of_small_floats_are_rounded_once(kind):
    """Sums that a loop of the author's makes are rounded after each trip."""
    dtype = np.dtype(kind).name

    @T.prim_func
    def main(X: T.Tensor((8, 64), dtype), Y: T.Tensor((8, 64), dtype), Z: T.Tensor((8,), dtype)):
        with T.Kernel(1, threads=32):
            s, total = T.alloc_shared((8, 64), dtype), T.alloc_fragment((8,), dtype)
            T.copy(X, s)
            T.clear(total)
            for i in T.Parallel(8):
                for j in T.serial(64):
                    total[i] += s[i, j]
            T.copy(total, Z)
            T.cumsum(s, dim=1)
            T.copy(s, Y)

    x = (np.random.default_rng(4).integers(0, 17, (8, 64)) / 16).astype(kind)
    expected = x.astype(np.float32).cumsum(1).astype(kind)
    made, sums = agree(main, x, rtol=0.02 if dtype == "bfloat16" else 0, atol=0)
    assert np.array_equal(made, expected)
    if dtype != "bfloat16":
        assert sums.astype(np.float32).max() <= 32, "no larger sum changes by less than a half"


def test_any_of_a_row_in_an_iteration():
    @T.prim_func
    def kernel(A: T.Tensor((16, 64), "float32"), B: T.Tensor((16, 64), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((16, 64), "float32")
            T.copy(A, s)
            for i, j in T.Parallel(16, 64):
                B[i, j] = 1.0 if T.any_of(s[i, 0:3]) else 2.0

    a = np.random.default_rng(0).integers(-1, 2, (16, 64)).astype(np.float32)
    want = np.where(a[:, :3].any(1, keepdims=True), 1, 2).astype(np.float32) * np.ones_like(a)
    agree(kernel, a, expected=want)
