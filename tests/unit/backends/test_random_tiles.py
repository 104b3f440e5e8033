"""Random kernels over odd tiles: interpreted, compiled for CPUs and emulated; more with ``-m fuzz``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from breadth import parametrized
from compiled import LEVELS, Library
from random_tiles import elaborated

from tilec.emulate import EmulatedKernel
from tilec.ir.interp import interpreter
from tilec.targets import parse_target, runs_here

#: The first, and those that found what is mended; more.
FEW, MANY = (*range(8), 60, 2294), range(8, 600)
GPUS = ("sm_90a", "sm_80", "sm_90a", "gfx942")


def check(seed: int, road: str, folder: Path) -> None:
    """One program with three trips and none: the same bits on a road, a level of CPUs or a GPU."""
    program, kernel = elaborated(seed, folder)
    target = parse_target(road)
    library = Library({"tiles": kernel}, road) if road in LEVELS else None
    emulated = None if library else EmulatedKernel(kernel, target)
    for n in (3, 0):
        want, got = program.arguments(n), program.arguments(n)
        interpreter.run(kernel, want, {})
        if library is not None:
            library.run("tiles", got, {})
        else:
            emulated(got, {})
        for param, mine, reference in zip(kernel.params, got, want, strict=True):
            what = f"{road}, seed {seed}, n {n}, {param.name}\n{program.source}"
            np.testing.assert_array_equal(mine, reference, err_msg=what)


@parametrized("seed", FEW, fast=[1, 60, 2294])
def test_program(seed, tmp_path):
    for road in ("x86-64-v3", "sm_90a", "gfx942"):
        check(seed, road, tmp_path)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", MANY)
def test_many_programs(seed, tmp_path):
    roads = (*LEVELS, *GPUS)
    road = roads[seed % len(roads)]
    if road in LEVELS and not runs_here(parse_target(road)):
        pytest.skip(f"this machine does not run {road}")
    check(seed, road, tmp_path)
