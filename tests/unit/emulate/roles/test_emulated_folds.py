"""Rows of a second operand in groups that TMA takes, and the launches around, run on the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from breadth import diagonal, parametrized
from emulated import SM90A, Beside, kernel_of, without

from tilec.errors import EmulationError
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


# ---- stored along K ----

AROUND = {"bM": 16, "swap": True, "split_k": 1}
KERNELS = {
    "tiles": {"dtype": "bfloat16"},
    "few rows": {"swap": True, "bM": 16, "bN": 128, "bK": 128, "threads": 256},
    "parts of K": {"swap": True, "bM": 16, "split_k": 2, "pdl": True, "constant": ("W",)},
    "a ring": {"bM": 128, "threads": 256, "stages": 2},
    "turns": {"swap": True, "bM": 32, "pingpong": True, "stages": 2},
    "pairs": {"bN": 128, "cluster": (2, 1), "evict_first": ("W",)},
}


@pytest.fixture(scope="module")
def kernel():
    """A product by rows along K."""
    return made("linear", **AROUND)


@pytest.fixture(scope="module")
def along(kernel):
    """The product as it is run."""
    return Beside(kernel, SM90A)


@pytest.mark.parametrize(
    "dims",
    [
        {"M": 3, "N": 9, "K": 1},
        {"M": 1, "N": 5, "K": 58},
        {"M": 16, "N": 17, "K": 64},
        {"M": 20, "N": 67, "K": 203},
    ],
    ids=str,
)
def test_rows_along_k(along, dims):
    assert along.run(dims) == []


def test_warpgroups_that_take_turns_clear_in_their_turn():
    assert Beside(made("linear", **KERNELS["turns"]), SM90A).run({"M": 20, "N": 67, "K": 203}) == []


def test_epilogues_run_at_the_columns_of_the_result():
    kernel = made("linear", activation="silu", **{**AROUND, "split_k": 2})
    assert Beside(kernel, SM90A).run({"M": 2, "N": 21, "K": 67}) == []


def _not_finite(dims, rng):
    """Weights beside rows, and at both ends of one, that are infinite or no numbers."""
    a = rng.standard_normal((dims["M"], dims["K"])).astype(np.float16)
    w = rng.standard_normal((dims["N"], dims["K"])).astype(np.float16)
    w[1::3], w[4, 0], w[5, -1], w[8::3, ::2] = np.inf, np.inf, np.nan, np.nan
    return [a, w, rng.standard_normal(dims["N"]).astype(np.float16)]


@pytest.mark.parametrize("depth", [17, 63, 70])
def test_what_is_infinite_stays_in_its_row(kernel, along, depth):
    author = Author(inputs=_not_finite)
    assert Beside(kernel, SM90A, author, run=along.emulated).run({"M": 2, "N": 19, "K": depth}) == []


@pytest.mark.emulate
@pytest.mark.parametrize("config", KERNELS, ids=str)
@pytest.mark.parametrize(
    "dims",
    [{"M": 1, "N": 1, "K": 8}, {"M": 20, "N": 67, "K": 203}, {"M": 20, "N": 1043, "K": 67}],
    ids=str,
)
def test_schedules_of_rows_along_k(config, dims):
    assert Beside(made("linear", **KERNELS[config]), SM90A).run(dims) == []


@pytest.mark.emulate
@pytest.mark.parametrize("depth", [*range(57, 66), *range(121, 129)])
def test_rows_along_k_of_any_length(along, depth):
    assert along.run({"M": 3, "N": 17, "K": depth}) == []


@pytest.mark.emulate
def test_any_number_of_tiles_of_rows_along_k():
    kernel = made("linear_residual", guards={name: Guard() for name in "MNK"})
    assert Beside(kernel, SM90A).run({"M": 130, "N": 67, "K": 75}) == []


@pytest.mark.emulate
def test_products_that_do_not_see_what_is_cleared_are_found(kernel):
    without_fence = without(kernel, SM90A, "fence_proxy")
    with pytest.raises(EmulationError, match="proxy"):
        Beside(kernel, SM90A, lowered=without_fence).run({"M": 3, "N": 13, "K": 17})
