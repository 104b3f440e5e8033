"""Shared tiles of a CUDA block: which ones share bytes, what keeps them apart, how results are staged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from breadth import parametrized
from cuda_kernels import gemm, kinds, tile_kernel
from random_programs import Program, elaborated
from told import told

from tilec.backends.cuda.nodes import Sync, ThreadLoop
from tilec.backends.cuda.passes.waits import place_shared
from tilec.backends.cuda.passes.waits.place_shared import pool_bytes, shared_tiles
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.ir.nodes import Alloc, walk
from tilec.targets import parse_target

SM80 = parse_target("sm_80")
TWO = ('s = alloc(float32, (512,), "shared.dyn")', 't = alloc(float32, (512,), "shared.dyn")')
TURNED = ("for i in parallel(64):", "    y[i] = {}[63 - i]")


def places(kernel) -> dict[str, int]:
    """Byte offsets by name."""
    return {str(alloc.buffer.name): alloc.place[1] for alloc in shared_tiles(kernel.launches[0].body)}


def test_tiles_used_one_after_the_other_share_bytes_behind_a_barrier() -> None:
    lowered = lower(
        tile_kernel(
            *TWO,
            "copy(x[0:+64], s[0:+64])",
            *(line.format("s") for line in TURNED),
            "fill(t[0:+64], 1.0)",
            *(line.format("t") for line in TURNED),
        ),
        SM80,
    )
    assert places(lowered) == {"s": 0, "t": 0}
    assert pool_bytes(lowered.launches[0]) == 2048
    order = kinds(lowered, ThreadLoop, Sync)
    assert order == ["ThreadLoop", "Sync", "ThreadLoop", "Sync", "ThreadLoop", "Sync", "ThreadLoop"]


@pytest.mark.parametrize(
    "lines",
    [
        ("copy(x[0:+64], s[0:+64])", "copy(s[0:+64], t[0:+64])", "copy(t[0:+64], y[0:+64])"),
        ("for k in serial(0, 3, 1):", "    copy(s[0:+64], y[0:+64])", "    fill(t[0:+64], 1.0)"),
    ],
)
def test_tiles_in_use_together_do_not_share(lines) -> None:
    assert places(lower(tile_kernel(*TWO, *lines), SM80)) == {"s": 0, "t": 2048}


def test_small_tiles_do_not_share() -> None:
    small = [line.replace("512", "64") for line in TWO]
    lines = ("copy(x[0:+64], s[0:+64])", "copy(s[0:+64], y[0:+64])", "fill(t[0:+64], 1.0)")
    assert places(lower(tile_kernel(*small, *lines), SM80)) == {"s": 0, "t": 256}


def test_where_bytes_are_short_the_smallest_tiles_lie_close_together() -> None:
    small = tuple(f'{name} = alloc(float32, (4,), "shared.dyn")' for name in "abc")
    used = tuple(f"fill({name}[0:+4], 1.0)" for name in ("s", "a", "b", "c"))
    kernel = tile_kernel(TWO[0], *small, *used, *(f"copy({name}[0:+4], y[0:+4])" for name in "abcs"))
    assert SM80.gpu is not None
    short = replace(SM80, gpu=replace(SM80.gpu, shared_bytes=2048 + 2 * 128))
    assert places(lower(kernel, SM80)) == {"s": 0, "a": 2048, "b": 2176, "c": 2304}
    assert places(lower(kernel, short)) == {"s": 0, "a": 2048, "b": 2064, "c": 2080}


def test_a_result_is_staged_where_the_operands_were() -> None:
    launch = lower(gemm(), SM80).launches[0]
    stage = next(stmt for stmt in walk(launch.body)
                 if isinstance(stmt, Alloc) and str(stmt.buffer.name) == "C_stage")  # fmt: skip
    assert stage.place == ("shared", 0)
    assert pool_bytes(launch) == 3 * (128 * 32 + 32 * 128) * 2


def test_a_result_without_room_for_staging_says_so() -> None:
    kernel = gemm(bK=16, num_stages=2)
    assert SM80.gpu is not None
    small = replace(SM80, gpu=replace(SM80.gpu, shared_bytes=20000))
    lowered = lower(kernel, small)
    assert "C_stage" not in places(lowered)
    notes = told(to_tir(lowered, small).launches[0])
    assert any(
        "results leave in pieces" in note and "32768 bytes, a block has 20000" in note for note in notes
    )


def test_a_float32_result_leaves_as_it_lies() -> None:
    assert "C_stage" not in places(lower(gemm("float32"), SM80))


@parametrized("seed", [2, 44, 65, 75], fast=[2, 65])
def test_random_programs_whose_tiles_take_turns_give_the_same_bits(seed, tmp_path, monkeypatch) -> None:
    """Every tile, however small, at the lowest bytes that are free when it is in use: the emulator sees no
    race, and nothing that is still read is overwritten."""
    program = Program(seed)
    kernel, dims = elaborated(program, tmp_path), program.shapes()[0]
    apart, turns = program.arguments(dims), program.arguments(dims)
    EmulatedKernel(kernel, SM80)(apart, dims)
    plan, totals = place_shared.pool_plan, []

    def brief(launch, **_options):
        totals.append((plan(launch).total, plan(launch, brief=True).total))
        return plan(launch, brief=True)

    monkeypatch.setattr(place_shared, "SMALL", 0)
    monkeypatch.setattr(place_shared, "pool_plan", brief)
    EmulatedKernel(kernel, SM80)(turns, dims)
    assert any(less < more for more, less in totals)
    for one, other in zip(apart, turns, strict=True):
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))
