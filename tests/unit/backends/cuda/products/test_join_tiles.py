"""Blocks that make an operand for two of their author's tiles: of which launches, and over which grids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import sym, tirx

from tilec.backends.cuda.statement_roles.split import join_tiles
from tilec.backends.cuda.statement_roles.split.join_tiles import JoinTiles
from tilec.emulate import EmulatedKernel
from tilec.ir.exprs import int_value, substitute
from tilec.ir.nodes import Alloc, Copy, Launch, Parallel, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
TEXT = """
kernel("bytes")
M = dim(int32{guard})
K = dim(int32, div=64)
N = dim(int32, div=16{columns})
A = tensor(float16, (M, K), ("M", "K"), access="in")
B = tensor(uint8, (N, K), ("N", "K"), access="in")
bias = tensor(float32, (M,), ("M",), access="in")
C = tensor(float32, (M, N), ("M", "N"), access="out", output=True)
with launch((N + 127) // 128, {rows}, threads=({threads}, 1, 1)) as (bx, by):
    As = alloc(float16, (128, 64), "shared.dyn")
    raw = alloc(uint8, (128, 64), "shared.dyn")
    Bs = alloc(float16, (128, 64), "shared.dyn")
    acc = alloc(float32, (128, 128), "local.fragment")
    fill(acc[0:+128, 0:+128], 0.0)
    for ko in pipelined({start}, K // 64, num_stages=3):
        copy(A[by * 128:+128, ko * 64:+64], As[0:+128, 0:+64])
        copy(B[bx * 128:+128, ko * 64:+64], raw[0:+128, 0:+64])
        for j, k in parallel(128, 64):
            Bs[j, k] = {made}
        gemm(As[0:+128, 0:+64], Bs[0:+128, 0:+64], acc[0:+128, 0:+128], trans_b=True, clear=False)
    for i, j in parallel(128, 128):
        {epilogue}
    copy(acc[0:+128, 0:+128], C[by * {step}:+128, bx * 128:+128])
"""
TURNED = """
kernel("across")
M = dim(int32, div=16)
K = dim(int32, div=16)
N = dim(int32, div=16)
A = tensor({dtype}, (K, M), ("K", "M"), access="in")
B = tensor({dtype}, (N, K), ("N", "K"), access="in")
C = tensor({sums}, (M, N), ("M", "N"), access="out", output=True)
with launch((N + 127) // 128, (M + 127) // 128, threads=(256, 1, 1)) as (bx, by):
    As = alloc({dtype}, ({depth}, 128), "shared.dyn")
    Bs = alloc({dtype}, (128, {depth}), "shared.dyn")
    acc = alloc({sums}, (128, 128), "local.fragment")
    fill(acc[0:+128, 0:+128], {zero})
    for ko in pipelined(0, (K + {depth} - 1) // {depth}, num_stages=3):
        copy(A[ko * {depth}:+{depth}, by * 128:+128], As[0:+{depth}, 0:+128])
        copy(B[bx * 128:+128, ko * {depth}:+{depth}], Bs[0:+128, 0:+{depth}])
        gemm(As[0:+{depth}, 0:+128], Bs[0:+128, 0:+{depth}], acc[0:+128, 0:+128], trans_a=True, trans_b=True,
             clear=False)
    copy(acc[0:+128, 0:+128], C[by * 128:+128, bx * 128:+128])
"""
ACROSS = [
    {"dtype": "int8", "sums": "int32", "zero": "0", "depth": 128},
    {"dtype": "float32", "sums": "float32", "zero": "0.0", "depth": 32},
]
FORM = {
    "guard": "",
    "columns": "",
    "rows": "(M + 127) // 128",
    "threads": 256,
    "start": 0,
    "made": "cast(float16, raw[j, k])",
    "epilogue": "acc[i, j] = acc[i, j] + bias[by * 128 + i]",
    "step": 128,
}


def joined(**change: object) -> list[Launch]:
    """The launches that become of one."""
    return list(JoinTiles().apply(parse_kernel(TEXT.format(**{**FORM, **change})), SM90A).launches)


def blocks(launch: Launch, **dims: int) -> int:
    """Blocks of a grid."""
    names = {var for extent in launch.grid for var in tirx.analysis.undefined_vars(extent)}
    values = {var: tirx.const(dims[str(var.name)], "int32") for var in names}
    analyzer = sym.Analyzer()
    sizes = [int_value(analyzer.simplify(substitute(extent, values))) for extent in launch.grid]
    return int(np.prod([size for size in sizes if size is not None]))


def test_two_tiles_share_what_threads_make() -> None:
    wide, narrow = joined()
    shapes = {stmt.buffer.name: list(map(int, stmt.buffer.shape)) for stmt in walk(wide.body)
              if isinstance(stmt, Alloc)}  # fmt: skip
    assert shapes == {"As": [256, 64], "raw": [128, 64], "Bs": [128, 64], "acc": [256, 128]}
    loops = [list(map(int, stmt.extents)) for stmt in walk(wide.body) if isinstance(stmt, Parallel)]
    assert loops == [[128, 64], [256, 128]]
    boxes = [list(map(int, stmt.src.extent)) for stmt in walk(wide.body) if isinstance(stmt, Copy)]
    assert boxes == [[256, 64], [128, 64], [256, 128]]
    assert "share Bs" in wide.notes[0]
    assert "launched" in narrow.notes[0]


@pytest.mark.parametrize("form", ACROSS)
def test_two_tiles_share_what_lanes_turn(form: dict[str, object]) -> None:
    wide, narrow = JoinTiles().apply(parse_kernel(TURNED.format(**form)), SM90A).launches
    assert "along bx, which share As" in wide.notes[0]
    assert "launched" in narrow.notes[0]
    half = {"dtype": "float16", "sums": "float32", "zero": "0.0", "depth": 64}
    (launch,) = JoinTiles().apply(parse_kernel(TURNED.format(**half)), SM90A).launches
    assert not launch.notes


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ({"M": 1024, "N": 4096}, (4 * 32, 0)),
        ({"M": 1100, "N": 4096}, (5 * 32, 0)),
        ({"M": 256, "N": 16384}, (128, 0)),
        ({"M": 300, "N": 16384}, (0, 3 * 128)),
        ({"M": 512, "N": 4096}, (0, 4 * 32)),
        ({"M": 100, "N": 32768}, (0, 256)),
    ],
)
def test_one_of_two_launches_has_blocks(dims: dict[str, int], expected: tuple[int, int]) -> None:
    wide, narrow = joined()
    assert (blocks(wide, **dims), blocks(narrow, **dims)) == expected


def test_known_grids_have_one_launch() -> None:
    (wide,) = joined(guard=", min=32768", columns=", min=16")
    assert wide.notes
    (narrow,) = joined(guard=", max=128")
    assert not narrow.notes


@pytest.mark.parametrize(
    "change",
    [
        {"threads": 128},
        {"made": "cast(float16, raw[j, k]) * cast(float16, by)"},
        {"epilogue": "acc[i, j] = acc[i, j] + bias[i]"},
        {"epilogue": "acc[i, j] = acc[i, j] + cast(float32, i)"},
        {"epilogue": "acc[i, j] = acc[127 - i, j] + bias[by * 128 + i]"},
        {"start": "by"},
        {"rows": "M // 128"},
        {"step": 64},
    ],
)
def test_blocks_that_are_not_alike_stay_apart(change: dict[str, object]) -> None:
    (launch,) = joined(**change)
    assert not launch.notes


@pytest.mark.emulate
@pytest.mark.parametrize("M", [256, 300])
def test_joined_tiles_compute_the_same(M: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = join_tiles.gpu_limits
    monkeypatch.setattr(join_tiles, "gpu_limits", lambda *given: replace(limits(*given), units=1))
    monkeypatch.setattr(join_tiles, "_MANY", 2)
    rng, (N, K) = np.random.default_rng(0), (144, 128)
    A = rng.standard_normal((M, K)).astype(np.float16)
    B = rng.integers(0, 9, (N, K)).astype(np.uint8)
    bias, C = rng.standard_normal(M).astype(np.float32), np.full((M, N), np.nan, np.float32)
    kernel = parse_kernel(TEXT.format(**FORM))
    EmulatedKernel(kernel, SM90A)([A, B, bias, C], {"M": M, "N": N, "K": K})
    wanted = A.astype(np.float64) @ B.T.astype(np.float64) + bias[:, None]
    assert np.allclose(C, wanted, rtol=1e-3, atol=1e-2)


@pytest.mark.emulate
@pytest.mark.parametrize("form", ACROSS)
def test_joined_tiles_of_turned_operands_compute_the_same(
    form: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = join_tiles.gpu_limits
    monkeypatch.setattr(join_tiles, "gpu_limits", lambda *given: replace(limits(*given), units=1))
    monkeypatch.setattr(join_tiles, "_MANY", 2)
    rng, (M, N, K) = np.random.default_rng(0), (144, 272, 144)
    A, B = (rng.integers(-9, 9, shape).astype(str(form["dtype"])) for shape in ((K, M), (N, K)))
    C = np.zeros((M, N), str(form["sums"]))
    EmulatedKernel(parse_kernel(TURNED.format(**form)), SM90A)([A, B, C], {"M": M, "N": N, "K": K})
    assert np.array_equal(C, A.astype(np.int64).T @ B.astype(np.int64).T)
