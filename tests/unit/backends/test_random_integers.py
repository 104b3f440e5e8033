"""Random kernels over integers: interpreted, compiled for CPUs and emulated; more with ``-m fuzz``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from breadth import parametrized
from compiled import LEVELS, Library
from random_integers import IntegerProgram, elaborated

from tilec.emulate import EmulatedKernel
from tilec.ir.interp import interpreter
from tilec.targets import parse_target, runs_here

FEW, MANY = range(4), range(4, 300)


def check(seed: int, level: str, gpu: str, folder: Path) -> None:
    """One program, every shape, on all roads: the same bits."""
    program = IntegerProgram(seed)
    kernel = elaborated(program, folder)
    library, emulated = Library({"integers": kernel}, level), EmulatedKernel(kernel, parse_target(gpu))
    for dims in program.shapes():
        want, compiled, device = (program.arguments(dims) for _ in range(3))
        interpreter.run(kernel, want, dims)
        library.run("integers", compiled, dims)
        emulated(device, dims)
        for road, got in ((level, compiled), (gpu, device)):
            for param, mine, reference in zip(kernel.params, got, want, strict=True):
                what = f"{road}, seed {seed}, {dims}, {param.name}\n{program.source}"
                np.testing.assert_array_equal(mine, reference, err_msg=what)


@parametrized("seed", FEW, fast=[2])
def test_program(seed, tmp_path):
    check(seed, "x86-64-v3", "sm_80", tmp_path)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", MANY)
def test_many_programs(seed, tmp_path):
    level = LEVELS[seed % len(LEVELS)]
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    check(seed, level, ("sm_80", "sm_90a")[seed % 2], tmp_path)
