"""The meaning of statements: small kernels against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from ir_samples import (
    F32,
    FALSE,
    I32,
    TRUE,
    buffer,
    control_kernel,
    dynamic,
    f32,
    fragment,
    i32,
    launch,
    load,
    loop,
    matmul_kernel,
    region,
    scale_kernel,
    shared,
    softmax_kernel,
    store,
    tensor,
    var,
)
from tvm import tirx

from tilec.errors import EvalError, InputError, UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.guards import Guard
from tilec.ir.interp.interpreter import run
from tilec.ir.interp.machine import register
from tilec.ir.interp.values import PATTERN
from tilec.ir.rules.verifier import verify

BX, I, J, K = var("bx"), var("i"), var("j"), var("k")  # noqa: E741


def _run(params, *body, grid=(1,), dims=(), values=None):
    """Runs one launch; ``params`` maps buffers to arrays."""
    tensors = tuple(tensor(buf, access="inout") for buf in params)
    kernel = ir.Kernel("k", tensors, tuple(dynamic(dim) for dim in dims), (launch(grid, [BX], *body),))
    verify(kernel)
    run(kernel, list(params.values()), values or {})


def _nan(*shape):
    return np.full(shape, np.nan, np.float32)


def _random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# Whole kernels


@pytest.mark.parametrize("n", [0, 16, 64, 80])
def test_scale_with_a_tail(n):
    x, y = _random(n), _nan(n)
    run(scale_kernel(), [x, 3.0, y], {"n": n})
    np.testing.assert_array_equal(y, x * np.float32(3))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("m", [1, 32, 37])
def test_matmul_with_tails(dtype, m):
    kind = getattr(ml_dtypes, dtype, None) or dtype
    a, b, c = _random(m, 40).astype(kind), _random(48, 40).astype(kind), _nan(m, 48)
    run(matmul_kernel(dtype), [a, b, c], {"M": m})
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-5, atol=1e-5)


def test_softmax_of_short_rows():
    x, y = _random(7, 9), _nan(7, 9)
    run(softmax_kernel(), [x, y], {"M": 7, "N": 9})
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-6)


def test_serial_control_flow():
    x, y = np.array([1, 2, 3, 4, -1, 7], np.int32), np.zeros(4, np.int32)
    run(control_kernel(), [x, y], {"n": 6})
    assert y.tolist() == [9, 3, 0, 0]


def test_several_launches_share_the_workspace():
    x, y, w = buffer("x", (8,)), buffer("y", (8,)), buffer("w", (8,), scope="global.workspace")
    i, b1, b2 = var("i"), var("b"), var("b")
    first = launch(
        [2], [b1], ir.Parallel((i,), (4,), (store(w, b1 * 4 + i, load(x, b1 * 4 + i) * f32(2.0)),))
    )
    second = launch([8], [b2], store(y, b2, load(w, i32(7) - b2)))
    kernel = ir.Kernel("k", (tensor(x), tensor(y)), (), (ir.Alloc(w), first, second))
    verify(kernel)
    xs, ys = _random(8), _nan(8)
    run(kernel, [xs, ys], {})
    np.testing.assert_array_equal(ys, 2 * xs[::-1])


def test_strided_arguments():
    n, lda = var("n"), var("lda")
    a, y = buffer("a", (n, 3), strides=(lda, 1)), buffer("y", (n, 3))
    body = ir.Copy(region(a, (0, n), (0, 3)), region(y, (0, n), (0, 3)))
    param = tensor(a, "n", "3", strides=("lda", "1"))
    kernel = ir.Kernel("k", (param, tensor(y)), (dynamic(n), dynamic(lda)), (launch([1], [BX], body),))
    whole, ys = _random(5, 8), _nan(5, 3)
    run(kernel, [whole[:, 2:5], ys], {"n": 5, "lda": 8})
    np.testing.assert_array_equal(ys, whole[:, 2:5])


# Out of range


def test_reads_outside_give_zero_and_writes_outside_are_dropped():
    x, y = buffer("x", (4,)), buffer("y", (4,))
    xs, ys = np.arange(1, 5, dtype=np.float32), _nan(4)
    _run({x: xs, y: ys}, ir.Parallel((I,), (12,), (store(y, I - 4, load(x, I - 5)),)))
    assert ys.tolist() == [0, 1, 2, 3]


def test_copies_clip_at_both_ends():
    x, y, t = buffer("x", (3, 3)), buffer("y", (3, 3)), fragment("t", (5, 4))
    xs, ys = _random(3, 3), _nan(3, 3)
    load_tile = ir.Copy(region(x, (-1, 5), (1, 4)), region(t))
    _run({x: xs, y: ys}, ir.Alloc(t), load_tile, ir.Copy(region(t), region(y, (-1, 5), (1, 4))))
    np.testing.assert_array_equal(ys[:, 1:], xs[:, 1:])
    assert np.isnan(ys[:, 0]).all()


def test_copy_entirely_outside_is_zero():
    x, y, t = buffer("x", (3,)), buffer("y", (4,)), fragment("t", (4,))
    ys = _nan(4)
    _run(
        {x: _random(3), y: ys},
        ir.Alloc(t),
        ir.Copy(region(x, (10, 4)), region(t)),
        ir.Copy(region(t), region(y)),
    )
    assert ys.tolist() == [0, 0, 0, 0]


def test_scalar_accesses_are_checked():
    x, y = buffer("x", (2,)), buffer("y", (2,))
    ys = _nan(2)
    _run({x: _random(2), y: ys}, store(y, 0, load(x, -1)), store(y, 2, f32(5.0)))
    np.testing.assert_array_equal(ys, [0, np.nan])


# Undefined contents


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float16", np.nan),
        (F32, np.nan),
        ("uint8", PATTERN),
        (I32, np.int32(np.uint32(0xA5A5A5A5).view(np.int32))),
    ],
)
def test_unwritten_tiles_hold_poison(dtype, expected):
    y, t = buffer("y", (2,), dtype), shared("t", (2,), dtype)
    ys = np.zeros(2, dtype)
    _run({y: ys}, ir.Alloc(t), ir.Copy(region(t), region(y)))
    np.testing.assert_array_equal(ys, np.full(2, expected, dtype))


def test_allocation_in_a_loop_is_undefined_each_trip():
    y, t = buffer("y", (3,)), fragment("t", (1,))
    body = (ir.Alloc(t), store(y, K, load(t, 0)), store(t, 0, f32(1.0)))
    ys = np.zeros(3, np.float32)
    _run({y: ys}, loop(K, 3, *body))
    assert np.isnan(ys).all()


def test_variables_start_at_zero_or_their_init():
    y, a, b = buffer("y", (2,), I32), buffer("a", (1,), I32, "local.var"), buffer("b", (1,), I32, "local.var")
    ys = np.full(2, -1, np.int32)
    _run({y: ys}, ir.Alloc(a), ir.Alloc(b, init=i32(7)), store(y, 0, load(a, 0)), store(y, 1, load(b, 0)))
    assert ys.tolist() == [0, 7]


# Parallel


def test_accumulation_into_one_element_counts_every_iteration():
    x, y, acc = buffer("x", (8, 4)), buffer("y", (3,)), fragment("acc", (3,))
    element = load(x, I, J)
    body = (
        store(acc, 0, load(acc, 0) + element),
        store(acc, 1, tirx.max(element, load(acc, 1))),
        store(acc, 2, load(acc, 2) + f32(1.0)),
    )
    loops = [ir.Parallel((I, J), (8, 4), (part,)) for part in body]
    xs, ys = _random(8, 4), _nan(3)
    start = ir.Fill(region(acc), f32(0.0))
    _run({x: xs, y: ys}, ir.Alloc(acc), start, *loops, ir.Copy(region(acc), region(y)))
    np.testing.assert_allclose(ys, [xs.sum(), max(xs.max(), 0), 32], rtol=1e-5)


def test_accumulation_along_one_axis():
    x, y, m = buffer("x", (4, 8)), buffer("y", (4,)), fragment("m", (4,))
    xs, ys = _random(4, 8), _nan(4)
    update = ir.Parallel((I, J), (4, 8), (store(m, I, tirx.max(load(m, I), load(x, I, J))),))
    start = ir.Fill(region(m), f32(float("-inf")))
    _run({x: xs, y: ys}, ir.Alloc(m), start, update, ir.Copy(region(m), region(y)))
    np.testing.assert_array_equal(ys, xs.max(1))


def test_bfloat16_accumulates_too():
    y, acc = buffer("y", (1,), "bfloat16"), fragment("acc", (1,), "bfloat16")
    one = tirx.const(1.0, "bfloat16")
    body = ir.Parallel((I,), (8,), (store(acc, 0, load(acc, 0) + one),))
    ys = np.zeros(1, ml_dtypes.bfloat16)
    zero = tirx.const(0.0, "bfloat16")
    _run({y: ys}, ir.Alloc(acc), ir.Fill(region(acc), zero), body, ir.Copy(region(acc), region(y)))
    assert float(ys[0]) == 8


def test_updates_that_are_no_plain_accumulation_run_one_by_one():
    x, y, best = buffer("x", (9,)), buffer("y", (1,)), fragment("best", (1,))
    better = tirx.GT(load(x, I), load(best, 0))
    body = ir.Parallel((I,), (9,), (ir.If(better, (store(best, 0, load(x, I)),)),))
    xs, ys = _random(9), _nan(1)
    _run({x: xs, y: ys}, ir.Alloc(best), store(best, 0, f32(-9.0)), body, ir.Copy(region(best), region(y)))
    assert ys[0] == xs.max()


def test_distinct_elements_by_arithmetic_are_no_accumulation():
    y = buffer("y", (12,))
    ys = np.arange(12, dtype=np.float32)
    place = I * 4 + J
    _run({y: ys}, ir.Parallel((I, J), (3, 4), (store(y, place, load(y, place) * load(y, place)),)))
    np.testing.assert_array_equal(ys, np.arange(12, dtype=np.float32) ** 2)


def test_coefficients_from_an_outer_loop_are_looked_at_every_time():
    y = buffer("y", (4,))
    ys = np.zeros(4, np.float32)
    _run({y: ys}, loop(K, 2, ir.Parallel((I,), (4,), (store(y, I * K, load(y, I * K) + f32(1.0)),))))
    assert ys.tolist() == [5, 1, 1, 1]


def test_iterations_have_their_own_temporaries():
    x, y = buffer("x", (6,), I32), buffer("y", (6,), I32)
    v, local = buffer("v", (1,), I32, "local.var"), buffer("tmp", (2,), I32, "local")
    body = (
        ir.Alloc(v, init=load(x, I)),
        ir.Alloc(local),
        loop(K, load(x, I), store(v, 0, load(v, 0) + K), store(local, tirx.floormod(K, i32(2)), K)),
        store(y, I, load(v, 0)),
    )
    xs, ys = np.array([0, 1, 5, 2, 3, 4], np.int32), np.zeros(6, np.int32)
    _run({x: xs, y: ys}, ir.Parallel((I,), (6,), body))
    assert ys.tolist() == [n + n * (n - 1) // 2 for n in xs]


def test_branches_breaks_and_continues_per_iteration():
    y = buffer("y", (8,), I32)
    v = buffer("v", (1,), I32, "local.var")
    body = (
        ir.If(tirx.EQ(tirx.floormod(I, i32(4)), i32(3)), (ir.Continue(),)),
        ir.Alloc(v),
        loop(
            K,
            10,
            ir.If(tirx.GE(K, I), (ir.Break(),)),
            ir.If(tirx.EQ(K, i32(1)), (ir.Continue(),)),
            store(v, 0, load(v, 0) + i32(1)),
        ),
        ir.While(tirx.LT(load(v, 0), i32(2)), (store(v, 0, load(v, 0) + i32(1)),)),
        store(y, I, load(v, 0)),
    )
    ys = np.full(8, -1, np.int32)
    _run({y: ys}, ir.Parallel((I,), (8,), body))
    assert ys.tolist() == [2, 2, 2, -1, 3, 4, 5, -1]


def test_run_time_extents_and_empty_loops():
    n = var("n")
    y = buffer("y", (n,))
    ys = np.zeros(5, np.float32)
    full = ir.Parallel((I,), (n,), (store(y, I, f32(1.0)),))
    empty = ir.Parallel((J,), (n - 5,), (store(y, J, f32(2.0)),))
    _run({y: ys}, full, empty, dims=(n,), values={"n": 5})
    assert ys.tolist() == [1] * 5


def test_negative_steps():
    y = buffer("y", (4,), I32)
    v = buffer("v", (1,), I32, "local.var")
    count = ir.For("serial", K, i32(6), i32(-1), i32(-2), (store(v, 0, load(v, 0) * 10 + K),))
    ys = np.zeros(4, np.int32)
    _run({y: ys}, ir.Alloc(v), count, store(y, 0, load(v, 0)))
    assert ys[0] == 6420


# Tile statements


def test_gemm_transposes_clears_and_accumulates():
    a, b, c = buffer("a", (4, 3)), buffer("b", (5, 4)), buffer("c", (3, 5))
    xa, xb, xc = _random(4, 3), _random(5, 4), np.ones((3, 5), np.float32)
    for clear, start in ((TRUE, 0), (FALSE, 1)):
        out = xc.copy()
        _run({a: xa, b: xb, c: out}, ir.Gemm(region(a), region(b), region(c), True, True, clear))
        np.testing.assert_allclose(out, start + xa.T @ xb.T, rtol=1e-5, atol=1e-6)


def test_int8_gemm_is_exact():
    a, b, c = buffer("a", (2, 300), "int8"), buffer("b", (300, 2), "int8"), buffer("c", (2, 2), I32)
    rng = np.random.default_rng(1)
    xa, xb = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((2, 300), (300, 2)))
    xc = np.zeros((2, 2), np.int32)
    _run({a: xa, b: xb, c: xc}, ir.Gemm(region(a), region(b), region(c), False, False, FALSE))
    np.testing.assert_array_equal(xc, xa.astype(np.int64) @ xb.astype(np.int64))


@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("sum", lambda x: x.sum(1)),
        ("max", lambda x: x.max(1)),
        ("min", lambda x: x.min(1)),
        ("absmax", lambda x: np.abs(x).max(1)),
    ],
)
def test_reductions(kind, reference, clear):
    x, y = buffer("x", (4, 6)), buffer("y", (4,))
    xs, ys = _random(4, 6), np.full(4, -5, np.float32)
    old = ys.copy()
    _run({x: xs, y: ys}, ir.Reduce(kind, region(x), region(y), 1, clear))
    expected = reference(xs)
    if not clear:
        expected = expected + old if kind == "sum" else reference(np.concatenate([xs, old[:, None]], 1))
    np.testing.assert_allclose(ys, expected, rtol=1e-6)


def test_extrema_ignore_nan_unless_told():
    x, y = buffer("x", (2, 2)), buffer("y", (2,))
    xs = np.array([[np.nan, 1], [np.nan, np.nan]], np.float32)
    ys = _nan(2)
    _run({x: xs, y: ys}, ir.Reduce("max", region(x), region(y), 1, True))
    assert ys.tolist() == [1, -np.inf]
    _run({x: xs, y: ys}, ir.Reduce("max", region(x), region(y), 1, True, True))
    assert np.isnan(ys).all()


def test_copy_drops_and_adds_axes_of_one():
    x, y = buffer("x", (2, 4, 1, 3)), buffer("y", (4, 3), "float16")
    xs, ys = _random(2, 4, 1, 3), np.zeros((4, 3), np.float16)
    _run({x: xs, y: ys}, ir.Copy(region(x, (1, 1), (0, 4), (0, 1), (0, 3)), region(y)))
    np.testing.assert_array_equal(ys, xs[1, :, 0].astype(np.float16))


# Errors and extension


def test_assumptions_are_checked():
    n = var("n")
    y = buffer("y", (n,))
    fact = ir.Assume(tirx.EQ(tirx.floormod(n, i32(4)), i32(0)))
    _run({y: _nan(8)}, fact, dims=(n,), values={"n": 8})
    with pytest.raises(EvalError, match="n % 4 == 0"):
        _run({y: _nan(6)}, fact, dims=(n,), values={"n": 6})


def test_arguments_are_checked():
    x, y = _random(16), _nan(16)
    with pytest.raises(InputError, match="n = 17 breaks the guard %16"):
        run(scale_kernel(), [x, 1.0, y], {"n": 17})
    with pytest.raises(InputError, match="takes 3 arguments, got 2"):
        run(scale_kernel(), [x, y], {"n": 16})
    with pytest.raises(InputError, match="dimension n has no value"):
        run(scale_kernel(), [x, 1.0, y], {})
    with pytest.raises(InputError, match=r"parameter x has shape \(16,\), got \(8,\)"):
        run(scale_kernel(), [x[:8], 1.0, y], {"n": 16})
    with pytest.raises(InputError, match="parameter y takes an array of float32, got float64"):
        run(scale_kernel(), [x, 1.0, y.astype(np.float64)], {"n": 16})


def test_pinned_dims_have_their_value():
    y = buffer("y", (4,))
    kernel = ir.Kernel("k", (tensor(y),), (ir.Dim("n", None, Guard(eq=4)),), (launch([1], [BX]),))
    run(kernel, [_nan(4)], {})
    with pytest.raises(InputError, match="n = 5 breaks the guard 4"):
        run(kernel, [_nan(4)], {"n": 5})


def test_lowered_nodes_register_their_meaning():
    class Doubling(ir.Stmt):
        """A node of lowering."""

    y = buffer("y", (2,))
    kernel = ir.Kernel("k", (tensor(y),), (), (launch([1], [BX], Doubling()),))
    with pytest.raises(UnsupportedError, match="Doubling"):
        run(kernel, [_nan(2)], {})

    @register(Doubling)
    def _double(machine, stmt, mask):
        machine.buffer(y).array[...] *= 2

    ys = np.ones(2, np.float32)
    run(kernel, [ys], {})
    assert ys.tolist() == [2, 2]
