"""Several products of one loop on an emulated sm_90a: one ring, one group of wgmma a trip, one epilogue that
reads all sums."""

from __future__ import annotations

import joint_products
import pytest
from emulated import SM90A, Beside, lowered, roads

from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate

GUARDS = {"M": Guard(), **dict.fromkeys("NLK", Guard(div=8))}
SIZES = {"M": 70, "N": 136, "L": 72, "K": 200}
FEW = {"bM": 16, "bN": 64}


def check(name: str, args: dict[str, object], config: dict[str, object], **sizes: int) -> None:
    """A kernel with roles gives what the interpreter gives."""
    dims = GUARDS if name == "two_results" else {key: GUARDS[key] for key in "MNK"}
    author = getattr(joint_products, name)
    kernel = elaborate(author, name=name, dims=dims, args=args, config={"stages": 2, **config})
    made = lowered(kernel, "sm_90a")
    assert "multiplying warpgroups" in roads(made)
    run = {key: value for key, value in {**SIZES, **sizes}.items() if key in dims}
    assert Beside(kernel, SM90A, lowered=made).run(run) == []


@pytest.mark.parametrize(
    ("name", "args", "config"),
    [
        ("gated", {}, {}),
        ("gated", {"along": False}, {"bM": 128, "threads": 256, "pingpong": False}),
        ("two_results", {}, {"pingpong": False}),
        ("complex_parts", {}, {"pingpong": False}),
    ],
)
def test_products_of_one_loop(name, args, config):
    check(name, args, config)


@pytest.mark.emulate
@pytest.mark.parametrize(
    ("name", "args", "config"),
    [
        ("gated", {}, {"bM": 128, "bN": 128, "threads": 256}),
        ("gated", {}, {"bN": 136}),
        ("gated", {}, {"bK": 128}),
        ("gated", {"along": False}, {"cluster": [1, 2]}),
        ("gated", {}, {"swap": True, "bM": 16}),
        ("gated", {"along": False}, FEW),
        ("gated", {"dtype": "bfloat16"}, {"num_stages": 1, "stages": 1}),
        ("two_results", {"dtype": "bfloat16"}, {"bM": 128, "threads": 256, "bN": 64}),
        ("two_results", {}, {"bM": 16}),
        ("complex_parts", {"dtype": "bfloat16"}, {"bM": 128, "threads": 256}),
    ],
)
def test_the_breadth_of_products_of_one_loop(name, args, config):
    check(name, args, config)


@pytest.mark.emulate
def test_no_trip_gives_the_epilogue_of_zeros():
    check("gated", {}, {}, K=0)
