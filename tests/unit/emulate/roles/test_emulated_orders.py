"""Blocks that take longer than others, on an emulated sm_90a: which of them come first, and that all do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulated import Beside
from shipped import MANIFESTS, known_authors, variants

import tilec.language as T
from tilec.backends.cuda.analysis.blocks import longest
from tilec.backends.cuda.analysis.blocks.longest import longest_first
from tilec.backends.cuda.attention.assign import roles
from tilec.backends.cuda.codegen.images import source
from tilec.backends.cuda.emit.grid import longest_first as order
from tilec.backends.cuda.limits import gpu_limits
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.emulate import EmulatedKernel
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")


@pytest.fixture(autouse=True)
def _short_blocks_count(monkeypatch):
    monkeypatch.setattr(longest, "_LEAST", 2)


def kernel_of(program: Any, **args: Any) -> Kernel:
    return elaborate(program(**args), name="kernel", dims={}, args={}, config={})


def two_products(axis, grows, tiles=3):
    """Two products of the same rows, converted on chip, over as many tiles of K as the block's number along
    an axis says."""

    @T.prim_func
    def main(A: T.Tensor((tiles * 64, tiles * 64), "float32"), B: T.Tensor((2, tiles * 64, 64), "float16"),
             C: T.Tensor((2, 2, 2, tiles * 64, 64), "float32")):  # fmt: skip
        grid = (tiles, 2, 2) if axis == 0 else (2, tiles, 2)
        with T.Kernel(*grid, threads=128) as (bx, by, bz):
            row, other = (bx, by) if axis == 0 else (by, bx)
            wide, As = T.alloc_shared((64, 64), "float32"), T.alloc_shared((64, 64), "float16")
            Bs, Ds = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            one, two = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, 64), "float32")
            T.clear(one)
            T.clear(two)
            for k in T.Pipelined(row + 1 if grows else tiles - row, num_stages=2):
                T.copy(A[row * 64, k * 64], wide)
                T.copy(wide, As)
                T.copy(B[0, k * 64 : (k + 1) * 64, 0:64], Bs)
                T.copy(B[1, k * 64 : (k + 1) * 64, 0:64], Ds)
                T.gemm(As, Bs, one)
                T.gemm(As, Ds, two)
            T.copy(one, C[0, other, bz, row * 64 : (row + 1) * 64, 0:64])
            T.copy(two, C[1, other, bz, row * 64 : (row + 1) * 64, 0:64])

    return main


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("grows", [True, False])
def test_trips_tell_the_axis(axis, grows):
    (launch,) = lower(kernel_of(two_products, axis=axis, grows=grows), SM90A).launches
    assert longest_first(launch) == (axis, grows)


def test_short_blocks_stay_where_they_are(monkeypatch):
    monkeypatch.setattr(longest, "_LEAST", 32)
    (launch,) = lower(kernel_of(two_products, axis=0, grows=True), SM90A).launches
    assert longest_first(launch) is None


@pytest.mark.parametrize(
    ("axis", "grows", "moved"), [(0, True, 1), (0, False, 1), (1, True, 1), (1, False, 0)]
)
def test_the_order_of_the_hardware_stays_where_it_is_the_longest_first(axis, grows, moved):
    kernel = kernel_of(two_products, axis=axis, grows=grows)
    text = source(to_tir(lower(kernel, SM90A), SM90A), SM90A, "kernel")
    assert text.count("in_section = ") == moved


@pytest.mark.parametrize(
    ("axis", "grows", "units"),
    [(0, True, 1), (0, False, 132), (1, True, 1)],
    ids=lambda value: str(value),
)
def test_every_tile_has_a_block(axis, grows, units, monkeypatch):
    usual = replace(gpu_limits(SM90A, {}), units=units)
    monkeypatch.setattr(order, "gpu_limits", lambda target, facts: usual)
    monkeypatch.setattr(order, "_MANY", 0 if axis else 16)
    rng = np.random.default_rng(3)
    a = rng.integers(-2, 3, (192, 192)).astype(np.float32)
    b = rng.integers(-2, 3, (2, 192, 64)).astype(np.float16)
    c = np.full((2, 2, 2, 192, 64), np.nan, np.float32)
    EmulatedKernel(kernel_of(two_products, axis=axis, grows=grows), SM90A)([a, b, c], {})
    for row in range(3):
        part, depth = slice(64 * row, 64 * (row + 1)), 64 * (row + 1 if grows else 3 - row)
        wanted = a[part, :depth] @ b[:, :depth].astype(np.float32)
        np.testing.assert_array_equal(
            c[:, :, :, part], np.broadcast_to(wanted[:, None, None], c[:, :, :, part].shape)
        )


@pytest.mark.parametrize(("units", "clears"), [(11, 1), (12, 0)])
def test_tiles_of_which_each_has_a_multiprocessor_are_not_counted(units, clears, monkeypatch):
    usual = replace(gpu_limits(SM90A, {}), units=units)
    monkeypatch.setattr(roles, "gpu_limits", lambda target, facts: usual)
    [shipped, *_] = MANIFESTS
    name = "attention_dense_causal_float16"
    tile = {"bM": 64, "bN": 64, "threads": 128}
    found = (each for each in variants(shipped, name, "sm_90a") if each.dims["D"].eq == 64)
    variant = next(
        each for each in found if each.config.items() >= tile.items() and "blocks" not in each.config
    )
    beside = Beside(elaborate_variant(variant).kernel, variant.target, known_authors(shipped)[name])
    sizes = {"B": 2, "Sq": 130, "Sk": 130, "H": 2, "Hkv": 2, "D": 64}
    dims = {**sizes, "q_row": 128, "kv_row": 128, "q_batch": 130 * 128, "kv_batch": 130 * 128}
    assert beside.emulated.blocks(dims) == 12 + clears
    assert beside.run(dims) == []
