"""Rows of a second operand in groups that TMA takes, and the launches around, run on the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from breadth import diagonal, parametrized
from emulated import SM90A, Beside, kernel_of

from tilec.ir.guards import Guard
from tilec.trials.oracle import Author

GUARDS = {"M": Guard(max=64), "N": Guard(), "K": Guard()}
CONFIG = {"bM": 64, "bN": 64, "bK": 64, "num_stages": 2, "threads": 128, "stages": 1, "fold_k": True}


def made(entry="matmul", guards=GUARDS, dtype="float16", **config):
    """A product whose second operand comes in groups of rows."""
    return kernel_of(f"gemm.py:{entry}", guards, {"dtype": dtype}, **{**CONFIG, **config})


CONFIGS = [
    {"dtype": "bfloat16"},
    {"swap": True, "bM": 16, "bN": 128, "bK": 128},
    {"swap": True, "bM": 24, "pdl": True, "constant": ("B",), "evict_first": ("B",)},
    {"bN": 128, "cluster": (2, 1)},
]
SIZES = [{"M": 20, "N": 67, "K": 203}, {"M": 5, "N": 130, "K": 72}, {"M": 1, "N": 1, "K": 8}]


@parametrized(
    ("config", "dims"),
    [(config, dims) for config in CONFIGS for dims in SIZES],
    fast=diagonal(CONFIGS, SIZES),
    ids=str,
)
def test_products(config, dims):
    assert Beside(made(**config), SM90A).run(dims) == []


@parametrized("columns", range(57, 65), fast=(57, 58, 60, 64))
def test_rows_of_any_length(columns):
    assert Beside(made(bM=16, swap=True), SM90A).run({"M": 3, "N": columns, "K": 17}) == []


@pytest.mark.parametrize("depth", [1, 7, 9, 15])
def test_rows_that_make_no_group_are_multiplied_too(depth):
    assert Beside(made(bM=16, swap=True), SM90A).run({"M": 3, "N": 13, "K": depth}) == []


def test_any_number_of_tiles_of_rows():
    kernel = made(guards={name: Guard() for name in "MNK"})
    assert Beside(kernel, SM90A).run({"M": 70, "N": 67, "K": 75}) == []


def test_what_is_infinite_stays_in_its_column():
    def inputs(dims, rng):
        a = rng.standard_normal((dims["M"], dims["K"])).astype(np.float16)
        b = rng.standard_normal((dims["K"], dims["N"])).astype(np.float16)
        b[::3, 0], b[1::3, -1] = np.inf, np.nan
        return [a, b]

    kernel = made(bM=16, swap=True)
    assert Beside(kernel, SM90A, Author(inputs=inputs)).run({"M": 3, "N": 61, "K": 35}) == []
