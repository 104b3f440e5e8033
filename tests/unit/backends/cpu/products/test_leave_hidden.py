"""Products that leave out what a mask hides behind a column of each row, beside the interpreter."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from compiled import Library, numpy_type

import tilec.language as T
from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.interp import interpreter
from tilec.ir.nodes import Kernel, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

BLOCK_M, BLOCK_N, WIDTH = 40, 32, 32
#: What keys behind those that a query sees weigh, as exponents.
HIDDEN = {"behind": float("-inf"), "before": float("-inf"), "seldom": -3.0, "tested": float("-inf")}
HIDDEN["either"] = float("-inf")
TYPES = {"float32": "x86-64-v3", "bfloat16": "x86-64-v4+avx512bf16"}
CASES = [*((form, "float32") for form in HIDDEN), ("behind", "bfloat16")]
#: Queries and keys; the last query sees the last key.
SHAPES = ((70, 70), (30, 100), (100, 37))


def weighted(M, N, form="behind", dtype="float32"):
    """out = exp2(Q K^T, those seen) V; ``form``: when the mask is made, and whether it hides all."""

    @T.prim_func
    def main(
        Q: T.Tensor((M, WIDTH), dtype),
        K: T.Tensor((N, WIDTH), dtype),
        V: T.Tensor((N, WIDTH), dtype),
        out: T.Tensor((M, WIDTH), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, BLOCK_M)) as b:
            q = T.alloc_shared((BLOCK_M, WIDTH), dtype)
            k, v = T.alloc_shared((BLOCK_N, WIDTH), dtype), T.alloc_shared((BLOCK_N, WIDTH), dtype)
            s, o = (
                T.alloc_fragment((BLOCK_M, BLOCK_N), "float32"),
                T.alloc_fragment((BLOCK_M, WIDTH), "float32"),
            )
            p = T.alloc_fragment((BLOCK_M, BLOCK_N), dtype)
            T.copy(Q[b * BLOCK_M, 0], q)
            T.clear(o)
            for n in T.Pipelined(T.ceildiv(N, BLOCK_N), num_stages=2):
                T.copy(K[n * BLOCK_N, 0], k)
                T.copy(V[n * BLOCK_N, 0], v)
                if form == "before":
                    for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                        seen = b * BLOCK_M + i + N - M >= n * BLOCK_N + j
                        s[i, j] = T.if_then_else(seen, 0, -T.infinity("float32"))
                    T.gemm(q, k, s, transpose_B=True)
                elif form == "either":
                    if n * BLOCK_N + BLOCK_N > b * BLOCK_M + N - M:
                        for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                            seen = b * BLOCK_M + i + N - M >= n * BLOCK_N + j
                            s[i, j] = T.if_then_else(seen, 0, -T.infinity("float32"))
                    else:
                        T.clear(s)
                    T.gemm(q, k, s, transpose_B=True)
                elif form == "tested":
                    T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                    if n * BLOCK_N + BLOCK_N > b * BLOCK_M + N - M:
                        for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                            seen = b * BLOCK_M + i + N - M >= n * BLOCK_N + j
                            s[i, j] = T.if_then_else(seen, s[i, j], -T.infinity("float32"))
                else:
                    T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                        hidden = b * BLOCK_M + i + N - M < n * BLOCK_N + j
                        s[i, j] = T.if_then_else(hidden, T.float32(HIDDEN[form]), s[i, j])
                for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                    p[i, j] = T.exp2(s[i, j])
                T.gemm(p, v, o)
            T.copy(o, out[b * BLOCK_M, 0])

    return main


def kernel(form: str, dtype: str) -> Kernel:
    """The kernel of a form and a type."""
    config = {"form": form, "dtype": dtype}
    return elaborate(weighted, name=form, dims={"M": Guard(), "N": Guard()}, args={}, config=config)


@cache
def library(dtype: str) -> Library:
    """All forms of float32, compiled, or one of bfloat16."""
    forms = HIDDEN if dtype == "float32" else ("behind",)
    return Library({form: kernel(form, dtype) for form in forms}, TYPES[dtype])


def arrays(dtype: str, M: int, N: int) -> list[np.ndarray]:
    """Arguments of a call."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.uniform(-1, 1, (rows, WIDTH)).astype(numpy_type(dtype)) for rows in (M, N, N))
    return [q, k, v, np.full((M, WIDTH), np.nan, np.float32)]


def both(form: str, dtype: str, args: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What the machine code and the interpreter make of ``args``."""
    dims = {"M": len(args[0]), "N": len(args[1])}
    found, expected = ([arg.copy() for arg in args] for _ in range(2))
    library(dtype).run(form, found, dims)
    interpreter.run(kernel(form, dtype), expected, dims)
    return found[-1], expected[-1]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("form", "dtype"), [*((form, "float32") for form in HIDDEN), ("behind", "bfloat16")])
def test_as_the_interpreter(form: str, dtype: str, shape: tuple[int, int]) -> None:
    found, expected = both(form, dtype, arrays(dtype, *shape))
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "float32" else 2e-2, atol=1e-3)


@pytest.mark.parametrize("form", HIDDEN)
def test_products_know_the_mask(form: str) -> None:
    """What a product adds to an infinity counts: it may make NaN of it."""
    target = parse_target("x86-64-v3")
    lowered = lower(kernel(form, "float32"), target)
    scores, weighed = (
        stmt for launch in lowered.launches for stmt in walk(launch.body) if isinstance(stmt, MicroGemm)
    )
    assert (scores.c_reach is None) == (form in ("before", "either"))
    assert weighed.a_reach is not None
    assert "depths" in tir_text(to_tir(lowered, target), target, "k")


@pytest.mark.parametrize("where", range(3))
@pytest.mark.parametrize(("form", "dtype"), CASES)
def test_infinities_and_nan_meet_what_they_meet(form: str, dtype: str, where: int) -> None:
    """In each of the operands, beyond what most rows see."""
    for special in (np.inf, np.nan):
        args = arrays(dtype, 70, 70)
        args[where][50, 3] = special
        found, expected = both(form, dtype, args)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


def test_hidden_keys_may_be_anything() -> None:
    args = arrays("float32", 70, 70)
    args[1][40:] = np.nan
    found, expected = both("behind", "float32", args)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert np.isfinite(found[:40]).all()


def told(M, N, branch=False):
    """exp2 of scores that a tensor tells how far each query sees, or in which blocks."""

    @T.prim_func
    def main(
        Q: T.Tensor((M, WIDTH), "float32"),
        K: T.Tensor((N, WIDTH), "float32"),
        behind: T.Tensor((T.ceildiv(N, BLOCK_N),), "int32"),
        out: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, BLOCK_M)) as b:
            q, k = T.alloc_shared((BLOCK_M, WIDTH), "float32"), T.alloc_shared((BLOCK_N, WIDTH), "float32")
            s = T.alloc_fragment((BLOCK_M, BLOCK_N), "float32")
            T.copy(Q[b * BLOCK_M, 0], q)
            for n in T.Pipelined(T.ceildiv(N, BLOCK_N), num_stages=2):
                T.copy(K[n * BLOCK_N, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                if not branch or behind[n] > 0:
                    for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                        hidden = b * BLOCK_M + i + (0 if branch else behind[n]) < n * BLOCK_N + j
                        s[i, j] = T.if_then_else(hidden, -T.infinity("float32"), s[i, j])
                for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                    s[i, j] = T.exp2(s[i, j])
                T.copy(s, out[b * BLOCK_M, n * BLOCK_N])

    return main


@pytest.mark.parametrize("branch", [False, True])
def test_what_memory_tells_of_a_mask_is_computed(branch: bool) -> None:
    dims = {"M": Guard(), "N": Guard()}
    made = elaborate(told, name="told", dims=dims, args={}, config={"branch": branch})
    rng = np.random.default_rng(0)
    q, k = (rng.uniform(-1, 1, (rows, WIDTH)).astype(np.float32) for rows in (50, 70))
    behind = np.array([3, 0, 20], np.int32)
    found, expected = (np.full((50, 70), np.nan, np.float32) for _ in range(2))
    interpreter.run(made, [q, k, behind, expected], {"M": 50, "N": 70})
    Library({"told": made}, TYPES["float32"]).run("told", [q, k, behind, found], {"M": 50, "N": 70})
    np.testing.assert_allclose(found, expected, rtol=1e-5)
