"""Wide random programs beside the interpreter, on every road that this machine has:
``python tests/support/seeded/wide_roads.py FIRST LAST [ROAD ...]`` says of each seed what differs."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("", "machines"))

from compiled import LEVELS, Library
from metal_source import TARGET as METAL
from metal_source import OnMetal
from wide_programs import WideProgram, elaborated

import tilec.build.processes.preload  # noqa: F401  # once, for all processes of the command
from tilec.emulate import EmulatedKernel
from tilec.ir.interp import interpreter
from tilec.ir.nodes import Kernel
from tilec.targets import parse_target, runs_here

ROADS = ("x86-64-v3", "x86-64-v4", "sm_80", "sm_90a", "gfx942", METAL.name)

Call = Callable[[list[Any], Mapping[str, int]], None]


def available(program: WideProgram) -> list[str]:
    """The roads that take a program and run here: Metal has no 8-byte floats and no atomics of 2 bytes."""
    on_metal = "float64" not in program.source and "float16" not in (program.dtypes[name] for name in "swh")
    return [
        road
        for road in ROADS
        if not (road in LEVELS and not runs_here(parse_target(road))) and (road != METAL.name or on_metal)
    ]


def check(seed: int, roads: Sequence[str] = ROADS) -> None:
    """One program, every shape, on roads: the bits of the interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        program, kernel = elaborated(seed, Path(folder))
        for road in available(program):
            if road in roads:
                _compare(program, kernel, road, Path(folder))


def _compare(program: WideProgram, kernel: Kernel, road: str, folder: Path) -> None:
    call = _callable(kernel, road, folder)
    for dims in program.shapes():
        want, got = program.arguments(dims), program.arguments(dims)
        interpreter.run(kernel, want, dims)
        call(got, dims)
        for param, mine, reference in zip(kernel.params, got, want, strict=True):
            apart = np.argwhere(np.atleast_1d(_plain(mine) != _plain(reference)))
            if len(apart):
                first = tuple(int(at) for at in apart[0])
                what = (
                    f"{road}, seed {program.seed}, {dims}, {param.name}: {len(apart)} of {mine.size} differ"
                )
                told = f"{what}, at {first} {mine[first]} for {reference[first]}"
                raise AssertionError(f"{told}\n{program.source}")


def _callable(kernel: Kernel, road: str, folder: Path) -> Call:
    if road in LEVELS:
        library = Library({"wide": kernel}, road)
        return lambda args, dims: library.run("wide", args, dims)
    return OnMetal(kernel, folder) if road == METAL.name else EmulatedKernel(kernel, parse_target(road))


def _plain(value: Any) -> Any:
    """Numbers that NumPy compares."""
    return value.astype(np.float64) if isinstance(value, np.ndarray) else value


def report(seed: int, road: str) -> None:
    """Prints in one line, or with what an error says, what is wrong with a seed on a road; the status of this
    process is 1 then."""
    warnings.simplefilter("ignore")
    try:
        check(seed, [road])
    except AssertionError as apart:
        print(str(apart).partition("\n")[0], flush=True)
        sys.exit(1)
    except Exception:
        print(f"{road}, seed {seed}", traceback.format_exc(limit=-2), sep="\n", flush=True)
        sys.exit(1)


def main() -> int:
    """What the command does, each case in a process of its own; the status is 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("roads", nargs="*", default=ROADS)
    options = parser.parse_args()
    failed = 0
    for seed, road in itertools.product(range(options.first, options.last), options.roads):
        case = multiprocessing.get_context("fork").Process(target=report, args=(seed, road))
        case.start()
        case.join()
        failed += case.exitcode != 0
        if case.exitcode < 0:
            print(f"{road}, seed {seed}: signal {-case.exitcode}", flush=True)
    print(f"seeds {options.first} to {options.last}: {failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
