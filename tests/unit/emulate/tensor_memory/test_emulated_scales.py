"""Scales of blocks where the last pair of blocks has one tile: the other must not read past them. Scales of
rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import Beside

from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target
from tilec.trials.oracle import Author

KERNELS = Path(__file__).parents[4] / "examples" / "kernels"


def test_the_second_block_of_half_a_pair_reads_no_scales() -> None:
    kernel = elaborate(
        load_entry("fp8.py:linear_fp8_blocks", KERNELS),
        name="blocks",
        dims={"M": Guard(), "N": Guard(div=16), "K": Guard(div=16)},
        args={},
        config={"bM": 64, "bN": 128, "num_stages": 2, "threads": 128, "cluster": [2, 1]},
    )
    author = Author(
        load_entry("fp8.py:linear_fp8_blocks_reference", KERNELS),
        load_entry("fp8.py:linear_fp8_blocks_inputs", KERNELS),
    )
    beside = Beside(kernel, parse_target("sm_90a"), author)
    assert beside.run({"M": 8, "N": 128, "K": 144}) == []


@pytest.mark.parametrize(
    "config",
    [
        {"bM": 32, "bN": 64, "bK": 256, "num_stages": 3, "swap": True, "split_k": 2},
        pytest.param({"bM": 64, "bN": 128, "bK": 64, "num_stages": 3}, marks=pytest.mark.emulate),
    ],
    ids=["transposed and in parts", "as written"],
)
def test_rows_have_their_own_scales(config: dict[str, object]) -> None:
    kernel = elaborate(
        load_entry("fp8.py:linear_fp8_rows", KERNELS),
        name="rows",
        dims={"M": Guard(), "N": Guard(div=8), "K": Guard(div=16)},
        args={},
        config={"threads": 128, "pdl": True, **config},
    )
    author = Author(
        load_entry("fp8.py:linear_fp8_rows_reference", KERNELS),
        load_entry("fp8.py:linear_fp8_rows_inputs", KERNELS),
    )
    assert Beside(kernel, parse_target("sm_90a"), author).run({"M": 5, "N": 72, "K": 528}) == []


def test_rows_are_rounded_with_a_scale_each() -> None:
    kernel = elaborate(
        load_entry("fp8.py:round_rows", KERNELS),
        name="round_rows",
        dims={"M": Guard(), "K": Guard(div=16)},
        args={},
        config={"bK": 1024, "threads": 128, "pdl": True},
    )
    assert Beside(kernel, parse_target("sm_90a"), Author()).run({"M": 3, "K": 1040}) == []
