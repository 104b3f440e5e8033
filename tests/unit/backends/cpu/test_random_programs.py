"""Random kernels in the Python language, compiled and interpreted; more of them with ``-m fuzz``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from breadth import parametrized
from compiled import LEVELS, Library
from random_programs import Program, elaborated

from tilec.ir.interp import interpreter
from tilec.targets import parse_target, runs_here

FEW, MANY = range(8), range(8, 400)
TOLERANCE = {"float32": 2e-4, "float16": 1e-2, "bfloat16": 6e-2}


def check(seed: int, level: str, folder: Path) -> None:
    """One program, every shape, compiled code beside the interpreter."""
    program = Program(seed)
    library = Library({"program": elaborated(program, folder)}, level)
    kernel = library.kernels["program"]
    for dims in program.shapes():
        want, got = program.arguments(dims), program.arguments(dims)
        interpreter.run(kernel, want, dims)
        library.run("program", got, dims)
        for param, mine, reference in zip(kernel.params, got, want, strict=True):
            bound = TOLERANCE[program.dtype] * max(
                1.0, float(np.nanmax(np.abs(reference.astype(np.float64))))
            )
            what = f"seed {seed}, {dims}, {param.name}\n{program.source}"
            np.testing.assert_allclose(
                mine.astype(np.float64), reference.astype(np.float64), rtol=0, atol=bound, err_msg=what
            )


@parametrized("seed", FEW, fast=FEW[:4])
def test_program(seed, tmp_path):
    check(seed, "x86-64-v3", tmp_path)


def test_rows_that_a_product_leaves_out_are_cleared_in_the_trip_that_clears(tmp_path):
    """Seed 152: five rows of a tile of 32, ``clear_accum`` where a loop begins, and sums over all rows."""
    check(152, "x86-64-v3", tmp_path)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", MANY)
def test_many_programs(seed, tmp_path):
    level = LEVELS[seed % len(LEVELS)]
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    check(seed, level, tmp_path)
