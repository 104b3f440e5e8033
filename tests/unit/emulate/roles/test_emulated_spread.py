"""Parts of K that pass through the workspace, and the launch that adds them, run on the emulator."""

from __future__ import annotations

import pytest
from breadth import parametrized
from emulated import KERNELS, SM90A, Beside, kernel_of

from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import load_entry
from tilec.trials.oracle import Author

GUARDS = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
CONFIG = {"bM": 64, "bN": 64, "bK": 64, "num_stages": 2, "threads": 128, "stages": 1}


def made(entry, args, guards=GUARDS, **config):
    """A product whose K is shared through the workspace."""
    return kernel_of(f"gemm.py:{entry}", guards, args, **{**CONFIG, **config})


#: Rows and columns of several tiles, and of a part of one.
MANY, ONE = {"M": 70, "N": 72, "K": 264}, {"M": 1, "N": 8, "K": 8}


@pytest.mark.parametrize(
    "config",
    [
        {"spread_k": 1},
        {"spread_k": 2, "pingpong": True},
        {"spread_k": 1, "bM": 128, "bN": 24, "threads": 256},
        {"spread_k": 1, "swap": True, "bM": 24},
        {"spread_k": 1, "cluster": (2, 1)},
        {"spread_k": 1, "swap": True, "bM": 40, "cluster": (1, 2)},
        {"spread_k": 1, "pdl": True, "constant": ("B",)},
    ],
    ids=str,
)
@parametrized("dims", [MANY, ONE], fast=[MANY], ids=str)
def test_products(config, dims):
    assert Beside(made("matmul", {"dtype": "float16"}, **config), SM90A).run(dims) == []


def test_tiles_for_every_multiprocessor_have_one_part():
    kernel = made("matmul", {"dtype": "float16"}, bM=64, bN=8, spread_k=1)
    assert Beside(kernel, SM90A).run({"M": 60, "N": 8 * 133, "K": 136}) == []


def test_the_epilogue_comes_behind_the_sum():
    kernel = made("linear_residual", {"dtype": "float16"}, spread_k=1)
    assert Beside(kernel, SM90A).run({"M": 70, "N": 72, "K": 264}) == []


def test_rows_that_begin_anywhere_are_copied_first():
    guards = {"M": Guard(), "N": Guard(), "K": Guard()}
    kernel = made("matmul", {"dtype": "float16"}, guards, spread_k=1, align=True)
    assert Beside(kernel, SM90A).run({"M": 70, "N": 67, "K": 203}) == []


def test_integers_stay_whole():
    guards = {**GUARDS, "K": Guard(div=16)}
    kernel = made("linear_int8", {}, guards, spread_k=1, bK=128)
    assert Beside(kernel, SM90A).run({"M": 70, "N": 72, "K": 528}) == []


def test_8_bit_floats():
    guards = {"M": Guard(), "N": Guard(div=16), "K": Guard(div=16)}
    kernel = kernel_of("fp8.py:linear_fp8", guards, {}, **{**CONFIG, "bK": 128, "spread_k": 1})
    author = Author(inputs=load_entry("fp8.py:linear_fp8_inputs", KERNELS))
    assert Beside(kernel, SM90A, author).run({"M": 70, "N": 80, "K": 528}) == []
