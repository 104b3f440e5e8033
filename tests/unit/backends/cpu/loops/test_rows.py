"""Kernels of rows: loops over them stay loops, and the next row is asked for, inside of the tensor or not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tvm import sym

import tilec
import tilec.language as T
from tilec.backends.cpu.codegen import objects
from tilec.backends.cpu.nodes import AskAhead
from tilec.backends.cpu.products.tir import SECOND
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.exprs import int_value
from tilec.ir.guards import Guard
from tilec.ir.nodes import Block, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.lowering.analysis.accesses import inlined, values_of
from tilec.targets import parse_target

sys.path.insert(0, str(Path(__file__).parents[5] / "examples/kernels"))
from norm import layernorm, layernorm_reference


def assembly(columns: int, target: str) -> str:
    dims = {"M": Guard(), "N": Guard(eq=columns), "ldx": Guard()}
    kernel = elaborate(layernorm, name="kernel", dims=dims, args={}, config={"reread": True})
    code = parse_target(target)
    return objects.assembly(to_tir(lower(kernel, code), code), code, "kernel")


@pytest.mark.parametrize(("columns", "target"), [(1024, "x86-64-v4"), (768, "x86-64-v3"), (1024, "aarch64")])
def test_rows_longer_than_the_registers_stay_in_loops(columns, target):
    text = assembly(columns, target)
    assert text.count("\n") < 600
    assert "prefetch" in text or "prfm" in text


def test_rows_that_fit_the_registers_are_written_out():
    assert assembly(384, "x86-64-v4").count("vmovups") > 3 * 384 // 16


def test_rows_longer_than_a_page_are_left_to_the_prefetchers():
    assert "prefetch" not in assembly(2048, "x86-64-v4")


@pytest.mark.parametrize("shape", [(1, 1024), (9, 1024), (9, 1023), (3, 1500), (2, 5)])
def test_the_next_row_need_not_exist(shape):
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    gain, bias = (np.linspace(low, 1, shape[1], dtype=np.float32) for low in (0.5, -1))
    made = layernorm(x, gain, bias, reread=True)
    np.testing.assert_allclose(made, layernorm_reference(x, gain, bias), rtol=1e-4, atol=1e-4)


@tilec.jit
def sums_by_hand(X, threads=32):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((M, threads), T.float32)
    with T.Kernel(M, threads=threads) as row:
        thread = T.get_thread_binding()
        total = T.alloc_var(T.float32)
        total = 0.0
        for step in T.serial(T.ceildiv(N, threads)):
            if step * threads + thread < N:
                total += X[row, step * threads + thread]
        Y[row, thread] = total / X[row, thread]
    return Y


def test_elements_that_a_loop_inside_chooses_are_not_asked_for():
    x = np.random.default_rng(2).uniform(1, 2, (3, 70)).astype(np.float32)
    padded = np.concatenate([x, np.zeros((3, 26), np.float32)], axis=1)
    expected = padded.reshape(3, 3, 32).sum(axis=1) / x[:, :32]
    np.testing.assert_allclose(sums_by_hand(x), expected, rtol=1e-6)


@tilec.jit
def picked_rows(X, ids):
    M, N, K = T.const("M N K")
    X: T.Tensor[[M, N], T.float32]
    ids: T.Tensor[[K], T.int32]
    Y = T.empty((K, N), T.float32)
    with T.Kernel(K, threads=32) as b:
        row = ids[b]
        squares = T.alloc_fragment((N,), T.float32)
        total = T.alloc_fragment((1,), T.float32)
        for j in T.Parallel(N):
            squares[j] = X[row, j] * X[row, j]
        T.reduce_sum(squares, total)
        for j in T.Parallel(N):
            Y[b, j] = X[row, j] * total[0]
    return Y


def test_rows_that_are_looked_up_are_not_asked_for():
    dims = {"M": Guard(), "N": Guard(eq=64), "K": Guard()}
    target = parse_target("x86-64-v4")
    lowered = lower(elaborate(picked_rows, name="kernel", dims=dims, args={}, config={}), target)
    assert not [stmt for stmt in walk(lowered.body) if isinstance(stmt, AskAhead)]
    x, ids = np.random.default_rng(4).standard_normal((40, 64), dtype=np.float32), np.array([3, 5, 39], "i4")
    expected = x[ids] * (x[ids] ** 2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(picked_rows(x, ids), expected, rtol=1e-5)


@tilec.jit
def weighted_by_hand(W, X, width=64):
    K, N = T.const("K N")
    W: T.Tensor[[K, N], T.float32]
    X: T.Tensor[[K], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(1, threads=32):
        total = T.alloc_fragment((width,), T.float32)
        T.clear(total)
        for k in T.serial(K):
            for block in T.serial(T.ceildiv(N, width)):
                for i in T.Parallel(width // 4):
                    for j in T.serial(4):
                        total[4 * i + j] += X[k] * W[k, block * width + 4 * i + j]
        for i in T.Parallel(width):
            Y[i] = total[i]
    return Y


def test_weights_that_a_loop_inside_chooses_are_not_asked_for():
    random = np.random.default_rng(3)
    w, x = random.uniform(1, 2, (9, 64)).astype(np.float32), random.uniform(1, 2, 9).astype(np.float32)
    np.testing.assert_allclose(weighted_by_hand(w, x), x @ w, rtol=1e-5)


@tilec.jit
def dots_by_hand(W, X, width=64):
    N, K = T.const("N K")
    W: T.Tensor[[N, K], T.float32]
    X: T.Tensor[[K], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(1, threads=32):
        for row in T.serial(N):
            total, result = T.alloc_fragment((width,), T.float32), T.alloc_fragment((1,), T.float32)
            T.clear(total)
            for block in T.serial(K // width):
                for i in T.Parallel(width):
                    total[i] += X[block * width + i] * W[row, block * width + i]
            T.reduce_sum(total, result)
            Y[row] = result[0]
    return Y


def rows_later(asked: AskAhead, body: Block) -> int | None:
    """How many rows behind the one at hand the row is that is asked for, where that is known."""
    apart = inlined(asked.ahead[0] - asked.indices[0], values_of(walk(body)))
    return int_value(sym.Analyzer().simplify(apart))


@pytest.mark.parametrize(("columns", "rows"), [(1024, 8), (1088, 8), (16384, 1)])
def test_weights_that_are_read_once_are_asked_for_32_kb_ahead(columns: int, rows: int):
    dims = {"N": Guard(), "K": Guard(eq=columns)}
    lowered = lower(
        elaborate(dots_by_hand, name="kernel", dims=dims, args={}, config={}), parse_target("x86-64-v4")
    )
    (asked,) = (stmt for stmt in walk(lowered.body) if isinstance(stmt, AskAhead))
    assert asked.near == SECOND
    assert rows_later(asked, lowered.body) == rows
    random = np.random.default_rng(3)
    w, x = random.uniform(1, 2, (9, columns)).astype(np.float32), random.uniform(1, 2, columns)
    np.testing.assert_allclose(dots_by_hand(w, x.astype(np.float32)), w @ x, rtol=1e-4)


@tilec.jit
def scaled_dots(W, S, X, width=64):
    N, K, G = T.const("N K G")
    W: T.Tensor[[N, K], T.float32]
    S: T.Tensor[[N, G], T.float32]
    X: T.Tensor[[K], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(1, threads=32):
        for row in T.serial(N):
            total, result = T.alloc_fragment((width,), T.float32), T.alloc_fragment((1,), T.float32)
            T.clear(total)
            for block in T.serial(K // width):
                for i in T.Parallel(width):
                    total[i] += X[block * width + i] * W[row, block * width + i] * S[row, block]
            T.reduce_sum(total, result)
            Y[row] = result[0]
    return Y


def test_short_rows_beside_long_ones_are_asked_for_no_earlier_than_these():
    dims = {"N": Guard(), "K": Guard(eq=2048), "G": Guard(eq=32)}
    kernel = elaborate(scaled_dots, name="kernel", dims=dims, args={}, config={})
    lowered = lower(kernel, parse_target("x86-64-v4"))
    asked = [stmt for stmt in walk(lowered.body) if isinstance(stmt, AskAhead)]
    later = {stmt.buffer.name: rows_later(stmt, lowered.body) for stmt in asked}
    assert later == {"W": 4, "S": 4}
