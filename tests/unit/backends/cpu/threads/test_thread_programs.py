"""Random kernels of thread-level code: interpreted, lowered to loops over threads, compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library
from thread_programs import MeetingProgram, ThreadProgram, TripProgram

from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.ir.interp import interpreter
from tilec.ir.nodes import Kernel
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

COMPILED, LOWERED, MANY = range(4), range(4, 24), range(24, 400)
#: Of those to lower: its iterations take seconds to interpret.
LONG = 15
#: Those in which threads end, and others; none shuffles where some threads stay away.
EMULATED = (0, 1, 2, 4, 5, 6, 26, 97, 99, 101, 106)
#: Of `MeetingProgram`; in 118 threads that fill a warp up leave a loop in which the others meet.
MEETING = (0, 4, 5, 6, 8, 10, 118)
#: Of `TripProgram`: those in which one thread after another leaves a value that does not depend on it.
TRIPS = (24, 28, 37)
LEVEL = "x86-64-v3"


def elaborated(program: ThreadProgram, folder: Path) -> Kernel:
    """The kernel of a program, from a file as an author has it."""
    (folder / f"threads{program.seed}.py").write_text(program.source)
    entry = load_entry(f"threads{program.seed}.py:entry", folder)
    return elaborate(entry, name="program", dims={}, args={}, config={})


def interpreted(program: ThreadProgram, kernel: Kernel) -> np.ndarray:
    """What the interpreter makes of a program."""
    arguments = program.arguments()
    interpreter.run(kernel, arguments, {})
    return arguments[2]


def check_compiled(program: ThreadProgram, folder: Path) -> None:
    """Compiled code beside threads in lockstep."""
    kernel, got = elaborated(program, folder), program.arguments()
    Library({"program": kernel}, LEVEL).run("program", got, {})
    np.testing.assert_array_equal(got[2], interpreted(program, kernel), err_msg=program.source)


@parametrized("seed", COMPILED, fast=COMPILED[:2])
def test_compiled_program(seed, tmp_path):
    check_compiled(ThreadProgram(seed), tmp_path)


@parametrized("seed", LOWERED, fast=[seed for seed in LOWERED if seed != LONG])
def test_loops_over_threads(seed, tmp_path):
    check_loops(ThreadProgram(seed), tmp_path)


def check_loops(program: ThreadProgram, folder: Path) -> None:
    """Loops over threads, interpreted, beside threads in lockstep."""
    kernel = elaborated(program, folder)
    text = format_kernel(kernel)
    assert format_kernel(parse_kernel(text)) == text
    lowered = lower(kernel, parse_target(LEVEL), until="threads_to_tiles")
    assert not lowered.launches[0].thread_vars
    wanted = interpreted(program, kernel)
    np.testing.assert_array_equal(interpreted(program, lowered), wanted, err_msg=program.source)


def check_emulated(program: ThreadProgram, folder: Path, target: str = "sm_80") -> None:
    """Device code beside threads in lockstep."""
    kernel, got = elaborated(program, folder), program.arguments()
    EmulatedKernel(kernel, parse_target(target))(got, {})
    np.testing.assert_array_equal(got[2], interpreted(program, kernel), err_msg=program.source)


@pytest.mark.parametrize("seed", EMULATED)
def test_device_code(seed, tmp_path):
    check_emulated(ThreadProgram(seed), tmp_path)


@pytest.mark.parametrize("seed", MEETING)
def test_meetings_in_branches(seed, tmp_path):
    program = MeetingProgram(seed)
    check_loops(program, tmp_path)
    check_emulated(program, tmp_path)


@pytest.mark.parametrize("seed", TRIPS)
def test_stores_in_trips_of_their_own(seed, tmp_path):
    program = TripProgram(seed)
    check_loops(program, tmp_path)
    check_emulated(program, tmp_path)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", MANY)
def test_many_programs(seed, tmp_path):
    check_compiled(ThreadProgram(seed), tmp_path)
    check_compiled(MeetingProgram(seed), tmp_path)
    check_emulated(MeetingProgram(seed), tmp_path)
    check_compiled(TripProgram(seed), tmp_path)
    check_emulated(TripProgram(seed), tmp_path)
