"""Real kernels, elaborated and run through the interpreter, against NumPy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import language_idioms as idioms
import numpy as np
import pytest
from language_build import DYNAMIC, build, call

from tilec.ir import nodes as ir
from tilec.ir.guards import Guard
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel

F16 = np.float16

CASES = {
    "matmul": (idioms.matmul, {"M": DYNAMIC, "N": 96, "K": DYNAMIC}, {}),
    "attention": (idioms.attention, {"b": DYNAMIC, "h": 3, "s": DYNAMIC, "d": 32}, {"causal": True}),
    "w4a16": (idioms.w4a16, {"M": DYNAMIC, "N": 48, "K": 64}, {}),
    "grouped": (idioms.grouped, {"Mt": DYNAMIC, "K": 32, "G": 3, "N": 48, "NT": DYNAMIC}, {}),
    "varlen_scores": (idioms.varlen_scores, {"tot": DYNAMIC, "D": 16, "B1": 4}, {}),
    "rmsnorm": (idioms.rmsnorm, {"M": DYNAMIC, "N": 64}, {}),
    "masked_scale": (idioms.masked_scale, {"n": DYNAMIC}, {}),
    "topk": (idioms.topk, {"M": 10, "N": 24}, {"k": 3}),
    "rowsum_split": (idioms.rowsum_split, {"M": 20, "N": 50}, {}),
    "splitk": (idioms.splitk, {"M": DYNAMIC, "N": 48, "K": DYNAMIC}, {}),
    "streamk": (idioms.streamk, {"M": DYNAMIC, "N": 48, "K": DYNAMIC}, {}),
    "persistent": (idioms.persistent, {"M": DYNAMIC, "N": 48, "K": DYNAMIC}, {}),
    "rowscan": (idioms.rowscan, {"M": DYNAMIC, "N": 50}, {"reverse": True}),
}


def made(name: str) -> ir.Kernel:
    entry, dims, args = CASES[name]
    return build(entry, dims, args)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("name", CASES)
def test_kernel_text(name, golden):
    golden(format_kernel(made(name)))


@pytest.mark.parametrize("name", CASES)
def test_text_parses_back(name):
    printed = format_kernel(made(name))
    assert format_kernel(parse_kernel(printed)) == printed


@pytest.mark.parametrize("name", CASES)
def test_every_statement_has_its_line(name):
    for stmt in ir.walk(made(name).body):
        assert stmt.loc is not None
        assert stmt.loc.file == idioms.__file__


def test_matmul(rng):
    a, b = rng.standard_normal((50, 40)).astype(F16), rng.standard_normal((40, 96)).astype(F16)
    c = np.full((50, 96), np.nan, F16)
    call(made("matmul"), {"M": 50, "K": 40}, a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-2)


def test_attention(rng):
    q, k, v = (rng.standard_normal((2, 21, 3, 32)).astype(F16) for _ in range(3))
    out = np.full_like(q, np.nan)
    call(made("attention"), {"b": 2, "s": 21}, q, k, v, out)
    scores = np.einsum("bihd,bjhd->bhij", q.astype(np.float32), k.astype(np.float32)) / np.sqrt(32)
    scores = np.where(np.tri(21, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhij,bjhd->bihd", weights, v.astype(np.float32))
    np.testing.assert_allclose(out, expected, rtol=1e-2, atol=1e-2)


def test_w4a16(rng):
    a = rng.standard_normal((20, 64)).astype(F16)
    packed = rng.integers(0, 256, (48, 32)).astype(np.uint8)
    scales = rng.uniform(0.5, 1, (48, 2)).astype(F16)
    c = np.full((20, 48), np.nan, F16)
    call(made("w4a16"), {"M": 20}, a, packed, scales, c)
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(48, 64).astype(np.float32) - 8
    weights = nibbles * np.repeat(scales.astype(np.float32), 32, axis=1)
    np.testing.assert_allclose(c, a.astype(np.float32) @ weights.T, rtol=1e-2, atol=0.2)


def test_grouped(rng):
    sizes, offs = np.array([5, 20, 9], np.int32), np.array([0, 5, 25], np.int32)
    tile_group = np.array([[0, 0], [1, 0], [1, 16], [2, 0]], np.int32)
    a, b = rng.standard_normal((34, 32)).astype(F16), rng.standard_normal((3, 32, 48)).astype(F16)
    c = np.full((34, 48), np.nan, F16)
    call(made("grouped"), {"Mt": 34, "NT": 4}, a, b, sizes, offs, tile_group, c)
    for group, (start, size) in enumerate(zip(offs, sizes, strict=True)):
        rows = slice(start, start + size)
        expected = a[rows].astype(np.float32) @ b[group].astype(np.float32)
        np.testing.assert_allclose(c[rows], expected, rtol=1e-2, atol=2e-2)


def test_varlen_scores(rng):
    cu = np.array([0, 7, 30, 31], np.int32)
    q, k = (rng.standard_normal((31, 16)).astype(F16) for _ in range(2))
    out = np.full(31, np.nan, np.float32)
    call(made("varlen_scores"), {"tot": 31}, q, k, cu, 23, out)
    for lo, hi in pairwise(cu):
        scores = q[lo:hi].astype(np.float32) @ k[lo:hi].astype(np.float32).T
        np.testing.assert_allclose(out[lo:hi], scores.max(axis=1), rtol=1e-3, atol=1e-3)


def test_rmsnorm(rng):
    x, g = rng.standard_normal((7, 64)).astype(F16), rng.standard_normal(64).astype(F16)
    y = np.full_like(x, np.nan)
    call(made("rmsnorm"), {"M": 7}, x, g, y)
    wide = x.astype(np.float32)
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-6) * g.astype(np.float32)
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3)


def test_masked_scale(rng):
    x, mask = rng.standard_normal(37).astype(np.float32), rng.integers(0, 2, 37).astype(bool)
    y = np.full_like(x, np.nan)
    call(made("masked_scale"), {"n": 37}, x, mask, 2.5, y)
    np.testing.assert_allclose(y, np.where(mask, x * np.float32(2.5), 0), rtol=1e-6)


def test_topk(rng):
    x = rng.permutation(240).reshape(10, 24).astype(np.float32)
    values, indices = np.zeros((10, 3), np.float32), np.zeros((10, 3), np.int32)
    call(made("topk"), {}, x, values, indices)
    order = np.argsort(-x, axis=1)[:, :3]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_rowsum_split_uses_workspace_between_launches(rng):
    x, y = rng.standard_normal((20, 50)).astype(np.float32), np.full(20, np.nan, np.float32)
    kernel = made("rowsum_split")
    assert len(kernel.launches) == 2
    call(kernel, {}, x, y)
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-5, atol=1e-5)


def test_parameters_of_rmsnorm():
    kernel = build(idioms.rmsnorm, {"M": Guard(div=4), "N": 64})
    x, g, y = kernel.params
    assert [param.name for param in kernel.params] == ["X", "G", "Y"]
    assert (x.extents, g.extents, y.extents) == (("M", "N"), ("N",), ("M", "N"))
    assert (x.access, g.access, y.access, y.output) == ("in", "in", "out", True)
    assert [dim.name for dim in kernel.dims] == ["M", "N"]
    assert kernel.doc == "Root-mean-square normalisation of rows."


def test_threads_elaborate_at_once():
    names = [*CASES, *CASES]
    with ThreadPoolExecutor(4) as pool:
        printed = list(pool.map(lambda name: format_kernel(made(name)), names))
    assert printed == [format_kernel(made(name)) for name in names]


@pytest.mark.parametrize("name", ["splitk", "streamk", "persistent"])
def test_products_that_share_their_work(name, rng):
    a, b = (rng.integers(-3, 4, shape).astype(F16) for shape in ((40, 70), (70, 48)))
    c = np.full((40, 48), 2, np.float32)
    call(made(name), {"M": 40, "K": 70}, a, b, c)
    start = 0 if name == "persistent" else 2
    np.testing.assert_array_equal(c, start + a.astype(np.float32) @ b.astype(np.float32))


def test_rowscan(rng):
    x, y = rng.integers(-3, 4, (10, 50)).astype(np.float32), np.zeros((10, 50), np.float32)
    call(made("rowscan"), {"M": 10}, x, y)
    np.testing.assert_array_equal(y, x[:, ::-1].cumsum(1)[:, ::-1])
