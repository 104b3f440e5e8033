"""Targets with TMA and without wgmma: their code runs on the emulator, with rings and roles, by mma.sync."""

from __future__ import annotations

from typing import Any

import pytest
from emulated import Beside, kernel_of, lowered, roads

from tilec.backends.cuda.codegen import images
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.targets import parse_target

GUARDS = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
ONE = {"bM": 64, "bN": 64, "bK": 64, "num_stages": 2, "threads": 128}
TWO = {"bM": 128, "bN": 128, "bK": 32, "num_stages": 3, "threads": 256}
DIMS = {"M": 70, "N": 72, "K": 200}


def product(config: dict[str, int], **args: Any) -> Kernel:
    return kernel_of("gemm.py:matmul", GUARDS, {"dtype": "float16", **args}, **config)


def source(kernel: Kernel, name: str) -> str:
    return images.source(lowered(kernel, name), parse_target(name), "p")


@pytest.mark.parametrize("target", ["compute_90", "sm_100a", "sm_120"])
def test_a_product_has_a_ring_that_tma_fills(target: str) -> None:
    kernel = product(ONE)
    said = roads(lowered(kernel, target))
    assert "a loading warp, computing warpgroups 1, TMA rings of As 2, Bs 2 stages" in said
    assert "As, Bs -> acc: mma.sync m16n8k16" in said
    assert Beside(kernel, parse_target(target)).run(DIMS) == []


@pytest.mark.parametrize("target", ["sm_120f", "sm_121a"])
def test_warpgroups_hand_registers_on_and_store_boxes(target: str) -> None:
    kernel = product(TWO, trans_B=True)
    assert "acc -> C, C_stage: TMA store" in roads(lowered(kernel, target))
    assert "setmaxnreg.inc" in source(kernel, target)
    assert Beside(kernel, parse_target(target)).run(DIMS) == []


@pytest.mark.parametrize("target", ["compute_90", "sm_100", "sm_120"])
def test_plain_targets_hand_no_registers_on(target: str) -> None:
    assert "setmaxnreg" not in source(product(TWO), target)


def test_boxes_are_named_as_places_of_the_block() -> None:
    text = source(product(ONE), "sm_120a")
    assert "cp.async.bulk.tensor.2d.shared::cta.global" in text
    assert "shared::cluster.global" not in text


def test_targets_before_have_none() -> None:
    assert "warp roles" not in roads(lowered(product(ONE), "sm_89"))


@pytest.mark.nvrtc
def test_registers_are_handed_on_by_the_assembler_too() -> None:
    target = parse_target("sm_120a")
    (launch,) = images.compile_kernel(lowered(product(TWO), target.name), target, "p").launches
    assert (launch.gpu.registers, launch.gpu.spills, launch.gpu.stack) == (168, 0, 0)
