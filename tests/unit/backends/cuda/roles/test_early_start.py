"""Launches that begin before the one in front has ended, and launches that leave room for others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.launch import LoweredCudaLaunch
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

SHIPPED = Path(__file__).parents[5] / "examples" / "kernels"
WAIT, NEXT = "griddepcontrol_wait", "griddepcontrol_launch_dependents"
PRODUCT = {"bM": 128, "bN": 128, "bK": 64, "num_stages": 3, "threads": 128}


def compiled(entry: str, target: str, **config: object) -> tuple[LoweredCudaLaunch, str]:
    """The launch of a shipped kernel and its CUDA source."""
    names = ("M", "N", "K") if "gemm" in entry else ("n",)
    dims = {name: Guard(div=8) for name in names}
    kernel = elaborate(
        load_entry(entry, SHIPPED), name="kernel", dims=dims, args={"dtype": "float16"}, config=config
    )
    made = to_tir(lower(kernel, parse_target(target)), parse_target(target))
    return made.launches[0], cuda.source(made, parse_target(target), "kernel")


@pytest.mark.parametrize("target", ["sm_90a", "compute_90"])
def test_it_waits_before_it_touches_memory(target):
    launch, text = compiled("elementwise.py:copy", target, pdl=True)
    body = text[text.rindex("__global__") :]
    assert launch.programmatic
    assert body.index(NEXT) < body.index(WAIT) < body.index("tilec_move")


def test_what_it_reads_is_no_constant_that_could_be_loaded_in_front_of_the_wait():
    _, early = compiled("elementwise.py:copy", "sm_90a", pdl=True)
    _, late = compiled("elementwise.py:copy", "sm_90a")
    assert "kernel_0(half* X_ptr, half* __restrict__ Y_ptr" in early
    assert "kernel_0(half* __restrict__ X_ptr, half* __restrict__ Y_ptr" in late


def test_a_launch_with_roles_waits_before_they_part():
    launch, text = compiled("gemm.py:matmul", "sm_90a", pdl=True, **PRODUCT)
    body = text[text.rindex("__global__") :]
    assert launch.programmatic
    assert launch.tensor_maps
    assert body.index(WAIT) < body.index("expect_tx")


@pytest.mark.parametrize(
    ("config", "loaded"),
    [
        ({"pdl": True}, "((K + 63) // 64) * 32768 // 1"),
        ({"pdl": True, "split_k": 2}, "((K + 63) // 64) * 32768 // 2"),
        ({"pdl": True, "constant": ("B",)}, ""),
        ({}, "((K + 63) // 64) * 32768 // 1"),
        ({"pdl": False}, ""),
    ],
)
def test_a_product_says_what_a_block_loads(config, loaded):
    launch, _ = compiled("gemm.py:matmul", "sm_90a", **config, **PRODUCT)
    assert launch.loaded == loaded
    assert launch.programmatic == (config.get("pdl") is not False)
    assert any("beginning early" in note for note in launch.notes) == bool(loaded)


def test_a_product_whose_trips_have_a_name_says_it_too():
    launch, _ = compiled("gemm.py:linear", "sm_90a", **{**PRODUCT, "bM": 32, "bN": 64, "swap": True})
    assert launch.loaded == "((K + 63) // 64) * 12288 // 1"


def test_a_launch_lets_the_one_behind_it_begin():
    names = ("B", "Sq", "Sk", "H", "Hkv", "q_batch", "q_row", "kv_batch", "kv_row")
    entry = load_entry("attention.py:attention_dense", SHIPPED)
    config = {"bM": 64, "bN": 64, "threads": 128, "blocks": 264}
    kernel = elaborate(
        entry,
        name="kernel",
        dims={**dict.fromkeys(names, Guard(div=8)), "D": Guard(eq=64)},
        args={"dtype": "float16"},
        config=config,
    )
    target = parse_target("sm_90a")
    made = to_tir(lower(kernel, target), target)
    multiplying, joining = cuda.source(made, target, "kernel").split("__global__")[-2:]
    assert [launch.programmatic for launch in made.launches] == [False, True]
    assert (NEXT in multiplying, WAIT in multiplying) == (True, False)
    assert joining.index(NEXT) < joining.index(WAIT)


def test_an_older_target_says_that_it_cannot():
    launch, text = compiled("elementwise.py:copy", "sm_80", pdl=True)
    assert not launch.programmatic
    assert WAIT not in text
    assert any("programmatic dependent launch" in note for note in launch.notes)


def test_it_is_off_by_default():
    launch, text = compiled("elementwise.py:copy", "sm_90a")
    assert not launch.programmatic
    assert WAIT not in text


def test_room_for_blocks_bounds_registers():
    _, text = compiled("elementwise.py:copy", "sm_80", threads=256, min_blocks_per_sm=4)
    assert "__launch_bounds__(256, 4)" in text
