"""Scales of blocks where the last pair of blocks has one tile: the other must not read past them."""

from __future__ import annotations

from pathlib import Path

from emulated import Beside

from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target
from tilec.trials.oracle import Author

KERNELS = Path(__file__).parents[3] / "examples" / "kernels"


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
