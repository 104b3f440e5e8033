"""Norms of rows of any length, as they ship, on the emulator: rows longer than what a block holds."""

from __future__ import annotations

import pytest
from breadth import diagonal, parametrized
from emulated import SM90A, Beside, kernel_of
from shipped import MANIFESTS, known_authors, variants
from told import told

from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel

NORMS = ("rmsnorm_bfloat16", "rmsnorm_residual_float32", "layernorm", "layernorm_residual")
TARGETS = ("sm_80", "sm_90a")
#: Guard of N: rows that a block holds, and rows with one and with several parts behind those.
WIDTHS = {"%8": (2880, 4104, 12296), "dynamic": (2881, 4097, 8195)}


@parametrized(
    ("name", "target"),
    [(name, target) for name in NORMS for target in TARGETS],
    fast=diagonal(NORMS, TARGETS),
)
def test_rows_longer_than_a_block_holds(name: str, target: str) -> None:
    [shipped, *_] = MANIFESTS
    served = {str(variant.dims["N"]): variant for variant in variants(shipped, name, target)}
    for guard, widths in WIDTHS.items():
        variant = served[guard]
        kernel = elaborate_variant(variant).kernel
        beside = Beside(kernel, variant.target, known_authors(shipped)[name])
        for width in widths:
            dims = {"M": 2, "N": width, "ldx": -(-width // 8) * 8}
            assert beside.run(dims) == [], (variant.title, dims)


#: Kernels whose rows a cluster of four blocks has.
SHARED = {
    "cumsum": ("scan.py:cumsum", {"rows": 2, "bN": 128}),
    "layernorm": ("norm.py:layernorm", {"rows": 2, "bN": 128}),
    "rmsnorm_float32": ("norm.py:rmsnorm", {"rows": 1, "bN": 256}),
    "softmax_float32": ("softmax.py:softmax", {"rows": 2, "bN": 128}),
}
#: Columns in one of the blocks, in each, in several rounds of them.
COLUMNS = (5, 500, 1411)


@pytest.mark.parametrize("name", SHARED)
def test_rows_that_blocks_of_a_cluster_share(name: str) -> None:
    [shipped, *_] = MANIFESTS
    entry, config = SHARED[name]
    dims = {dim: Guard() for dim in ("M", "N", "ldx")}
    kernel = kernel_of(entry, dims, {}, parts=4, threads=64, **config)
    beside = Beside(kernel, SM90A, known_authors(shipped)[name])
    for width in COLUMNS:
        assert beside.run({"M": 3, "N": width, "ldx": width}) == [], width


#: Kernels of which a block, or each of a cluster, holds all columns.
HELD = {
    "layernorm": ("norm.py:layernorm", {}),
    "rmsnorm_residual_bfloat16": ("norm.py:rmsnorm_residual", {"dtype": "bfloat16"}),
    "softmax_float32": ("softmax.py:softmax", {}),
    "softmax_float16 as_stored": ("softmax.py:softmax", {"dtype": "float16", "as_stored": True}),
}


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("name", HELD)
def test_rows_that_blocks_hold(name: str, parts: int) -> None:
    [shipped, *_] = MANIFESTS
    entry, args = HELD[name]
    dims = {"M": Guard(), "N": Guard(max=128 * parts), "ldx": Guard()}
    kernel = kernel_of(entry, dims, args, rows=2, bN=128, parts=parts, threads=64, one_chunk=True)
    beside = Beside(kernel, SM90A, known_authors(shipped)[name.split()[0]])
    for width in (5, 128 * parts):
        assert beside.run({"M": 3, "N": width, "ldx": width}) == [], width


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("name", ["softmax_float16 as_stored", "rmsnorm_residual_bfloat16"])
def test_rows_whose_ends_are_cut_off_whole_vectors(name: str, parts: int) -> None:
    [shipped, *_] = MANIFESTS
    entry, args = HELD[name]
    columns, config = 256 * parts, {"rows": 1, "bN": 256, "parts": parts, "threads": 32}
    dims = {"M": Guard(), "N": Guard(max=columns), "ldx": Guard()}
    kernel = kernel_of(entry, dims, args, **config, one_chunk=True, phase=True)
    beside = Beside(kernel, SM90A, known_authors(shipped)[name.split()[0]])
    for width, more in ((5, 0), (columns - 3, 0), (columns - 3, 8), (columns, 1)):
        assert beside.run({"M": 3, "N": width, "ldx": width + more}) == [], (width, more)


#: Kernels that keep a row in shared memory, in two lots to a block.
KEPT = {
    "layernorm": ("norm.py:layernorm", {}),
    "layernorm_residual": ("norm.py:layernorm_residual", {}),
    "rmsnorm_float32": ("norm.py:rmsnorm", {}),
    "rmsnorm_bfloat16": ("norm.py:rmsnorm", {"dtype": "bfloat16"}),
    "rmsnorm_residual_bfloat16": ("norm.py:rmsnorm_residual", {"dtype": "bfloat16"}),
    "softmax_float32": ("softmax.py:softmax", {}),
    "softmax_float16": ("softmax.py:softmax", {"dtype": "float16"}),
}


def kept_rows(name: str, parts: int, step: int, whole: bool = False) -> Kernel:
    """A kernel for rows that are multiples of ``step``; ``whole``: from the vectors on that they begin in."""
    entry, args = KEPT[name]
    dims = {"M": Guard(), "N": Guard(max=512 * parts - 8 * whole, div=step), "ldx": Guard(div=step)}
    config = {"bN": 512, "rows": 1, "parts": parts, "threads": 32, "whole_vectors": whole, "phase": whole}
    return kernel_of(entry, dims, args, **config, one_chunk=True, keep_row=True)


@parametrized(
    ("name", "parts", "step"),
    [(name, parts, step) for name in KEPT for parts in (1, 4) for step in (1, 8)],
    fast=diagonal(tuple(KEPT), (1, 4), (8, 1)),
)
def test_rows_in_shared_memory(name: str, parts: int, step: int) -> None:
    [shipped, *_] = MANIFESTS
    beside = Beside(kept_rows(name, parts, step), SM90A, known_authors(shipped)[name])
    for width in (8, 512 * parts - step, 512 * parts):
        assert beside.run({"M": 3, "N": width, "ldx": width + step}) == [], width


@parametrized(
    ("name", "parts"), [(name, parts) for name in KEPT for parts in (1, 4)],
    fast=[("layernorm", 4), ("rmsnorm_residual_bfloat16", 1), ("softmax_float16", 1)],
)  # fmt: skip
def test_rows_in_shared_memory_from_whole_vectors(name: str, parts: int) -> None:
    [shipped, *_] = MANIFESTS
    beside = Beside(kept_rows(name, parts, 1, whole=True), SM90A, known_authors(shipped)[name])
    for width, more in ((1, 0), (512 * parts - 13, 0), (512 * parts - 8, 7)):
        assert beside.run({"M": 3, "N": width, "ldx": width + more}) == [], (width, more)


@pytest.mark.parametrize(
    ("name", "step", "whole", "size"),
    [("softmax_float16", 8, False, 16), ("layernorm", 1, False, 4), ("rmsnorm_bfloat16", 1, True, 16)],
)
def test_rows_come_without_registers(name: str, step: int, whole: bool, size: int) -> None:
    launch = to_tir(lower(kept_rows(name, 4, step, whole), SM90A), SM90A).launches[0]
    assert any(f"cp.async of {size} bytes, up to its first reader" in line for line in told(launch))
