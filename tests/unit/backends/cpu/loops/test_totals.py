"""Sums and extremes of whole tiles: partial results are combined once, behind all loops."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("total")
X = tensor(float32, (4, 40, 12), ("4", "40", "12"), access="in")
Y = tensor(float32, (4, 3), ("4", "3"), access="out")
with launch(4, threads=(64, 1, 1)) as (bx,):
    all = alloc(float32, (1,), "local.fragment")
    most = alloc(float32, (1,), "local.fragment")
    rows = alloc(float32, (40,), "local.fragment")
    fill(all[0:+1], cast(float32, 1))
    fill(most[0:+1], cast(float32, 0))
    fill(rows[0:+40], cast(float32, 0))
    for i, j in parallel(40, 12):
        if i + j < 45:
            all[0] = all[0] + X[bx, i, j]
        most[0] = max(most[0], X[bx, i, j])
        rows[i] = rows[i] + X[bx, i, j]
    for j in parallel(1):
        Y[bx, 0] = all[0]
        Y[bx, 1] = most[0]
        Y[bx, 2] = rows[39]
"""


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
def test_every_element_counts_once(level):
    x = np.random.default_rng(0).integers(-9, 9, (4, 40, 12)).astype("float32")
    y, inside = np.full((4, 3), np.nan, "float32"), np.add.outer(np.arange(40), np.arange(12)) < 45
    Library({"total": TEXT}, level).run("total", [x, y], {})
    wanted = [1 + np.where(inside, x, 0).sum((1, 2)), np.maximum(x.max((1, 2)), 0), x[:, 39].sum(1)]
    np.testing.assert_array_equal(y, np.stack(wanted, 1))


def test_partial_results_are_combined_behind_the_loops():
    target = parse_target("x86-64-v3")
    text = tir_text(to_tir(lower(parse_kernel(TEXT), target), target), target, "k")
    depth = {name: _indent(text, f"{name}_partial = ") for name in ("all", "most", "rows")}
    assert depth["all"] == depth["most"] < depth["rows"]


def _indent(text: str, of: str) -> int:
    """How far in the first line with ``of`` begins."""
    line = next(line for line in text.splitlines() if of in line)
    return len(line) - len(line.lstrip())
