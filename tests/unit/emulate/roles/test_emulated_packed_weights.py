"""Products of packed weights in the forms that no shipped variant runs first: warps that share a stage four
ways, pairs of blocks, bands."""

from __future__ import annotations

import pytest
from emulated import KERNELS, SM90A, Beside, kernel_of

from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import load_entry
from tilec.trials.oracle import Author

DIMS = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=128)}


@pytest.mark.parametrize(
    ("bits", "config"),
    [
        (4, {"bM": 8, "bK": 512, "num_stages": 4, "threads": 256, "scale_sums": True}),
        (4, {"bM": 16, "bK": 256, "num_stages": 2, "threads": 128, "cluster": [2, 1]}),
        (8, {"bM": 64, "bK": 128, "num_stages": 2, "threads": 128, "group": 2}),
        (4, {"bM": 8, "bK": 128, "num_stages": 4, "threads": 256, "split_k": 4, "scale_sums": True}),
        (8, {"bM": 32, "bK": 256, "num_stages": 2, "threads": 128, "split_k": 2, "group": 2, "rows": 70}),
        (8, {"bM": 24, "bK": 128, "num_stages": 4, "threads": 256, "split_k": 8, "pdl": True}),
        (4, {"bM": 8, "bK": 256, "num_stages": 4, "threads": 256, "split_k": 2, "N": 67}),
        (4, {"bM": 8, "bK": 256, "num_stages": 8, "threads": 256, "part": 32, "pdl": True}),
        (4, {"bM": 64, "bK": 128, "num_stages": 2, "threads": 128, "part": 32}),
    ],
    ids=[
        "slices",
        "pairs",
        "bands",
        "parts of slices",
        "parts in bands",
        "more parts than trips",
        "odd rows",
        "slices of parts",
        "steps of parts",
    ],
)
def test_packed_weights(bits, config):
    config = dict(config)
    rows, features = config.pop("rows", 5), config.pop("N", 200)
    args = {"bits": bits, "dtype": "bfloat16", "part": config.pop("part", 128)}
    dims = {**DIMS, "N": Guard()} if features % 8 else DIMS
    kernel = kernel_of("quantised_packed.py:linear_packed", dims, args, bN=64, **config)
    inputs = f"linear_packed{'8' if bits == 8 else '_parts' if args['part'] == 32 else ''}_inputs"
    reference, given = (load_entry(f"quantised_packed.py:{name}", KERNELS)
                        for name in ("linear_packed_reference", inputs))  # fmt: skip
    assert Beside(kernel, SM90A, Author(reference, given)).run({"M": rows, "N": features, "K": 640}) == []
