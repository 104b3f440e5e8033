"""Kernels of rows: loops over them stay loops, and the next row is asked for, inside of the tensor or not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tilec.backends.cpu.codegen import objects
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

sys.path.insert(0, str(Path(__file__).parents[4] / "examples/kernels"))
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
