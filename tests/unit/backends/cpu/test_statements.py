"""Every statement and access form, compiled for three levels and compared with the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from breadth import diagonal, parametrized
from compiled import LEVELS, Library
from kernel_arguments import arguments
from statements import KERNELS

from tilec.ir.interp import interpreter
from tilec.ir.nodes import TensorParam
from tilec.targets import parse_target, runs_here

TAILS = tuple(range(1, 41))
CASES = {
    "copy_2d": [{"M": m, "N": n} for m, n in ((1, 1), (8, 16), (9, 17), (7, 40), (25, 31))],
    "zero_fill": [{"n": n} for n in (*TAILS, 48, 60)],
    "rows": [{"M": m} for m in (1, 5, 31, 32, 33, 70)],
    "all_rows": [{"M": m} for m in (1, 32, 37)],
    "shifted": [{"n": n} for n in TAILS],
    "transpose": [{"M": m, "N": n} for m, n in ((1, 1), (16, 16), (17, 5), (33, 20))],
    "strided": [{"M": 3, "N": n, "ld": n + 5} for n in (1, 7, 8, 19)],
    "reduce": [{"M": m, "N": n} for m, n in ((1, 1), (4, 40), (6, 17), (3, 39))],
    "reduce_columns": [{"M": m} for m in (1, 5, 9)],
    "accumulate": [{"n": n} for n in (*TAILS, 64, 100)],
    "masked": [{"n": n} for n in TAILS],
    "named_floats": [{"n": n} for n in TAILS],
    "hidden": [{"n": n} for n in (1, 15, 16, 17, 32, 37, 48)],
    "guarded": [{"n": n} for n in TAILS],
    "gather": [{"T": t, "V": 11, "H": h} for t, h in ((1, 1), (4, 32), (7, 45))],
    "gather_lanes": [{"n": n} for n in (1, 16, 37, 64)],
    "nested": [{"M": m, "N": n} for m, n in ((1, 1), (4, 16), (6, 37))],
    "wide_index": [{"n": n, "m": m} for n, m in ((1, 1), (2, 16), (3, 37))],
    "run_time_extents": [{"n": n} for n in (1, 16, 35, 50)],
    "loops": [{"n": n} for n in (1, 16, 35)],
    "changing": [{"n": n} for n in (1, 33, 64)],
    "bools": [{"n": n} for n in (1, 32, 45)],
    "divisible": [{"M": 8, "N": 16}, {"M": 24, "N": 48}],
    "scatter": [{"n": n} for n in (1, 16, 21)],
    "control": [{"n": n} for n in (1, 5, 25)],
    "private": [{"n": n, "k": k} for n, k in ((1, 0), (32, 3), (45, 4))],
    "products": [{"M": m, "K": k, "N": n} for m, k, n in ((1, 1, 1), (8, 8, 16), (13, 21, 35))],
    "workspace": [{"M": m, "N": n} for m, n in ((1, 1), (17, 64), (5, 33))],
    "large": [{"n": n} for n in (5, 16384, 16390)],
    "half": [{"n": n} for n in (1, 32, 45)],
    "integers": [{"n": n} for n in (1, 64, 77)],
    "functions": [{"n": n} for n in (1, 32, 47)],
    "nan_max": [{"n": n} for n in (1, 33, 64)],
}
#: Level and kernel: each kernel on one of the levels that this machine runs, where it runs one.
FAST = diagonal([level for level in LEVELS if runs_here(parse_target(level))] or LEVELS, list(CASES))


def check(built: Library, name: str, dims: dict[str, int]) -> None:
    """One call against the interpreter."""
    kernel = built.kernels[name]
    got = arguments(kernel, dims, seed=sum(dims.values()))
    want = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in got]
    if any(
        arg.strides != want_arg.strides
        for arg, want_arg in zip(got, want, strict=True)
        if isinstance(arg, np.ndarray)
    ):
        want = got[:1] + want[1:]
    interpreter.run(kernel, want, dims)
    built.run(name, got, dims)
    for param, mine, reference in zip(kernel.params, got, want, strict=True):
        if isinstance(param, TensorParam) and param.access != "in":
            assert_close(mine, reference, f"{name} {dims} {param.name}")


def assert_close(mine: np.ndarray, reference: np.ndarray, what: str) -> None:
    if mine.dtype.kind in "iub":
        np.testing.assert_array_equal(mine, reference, err_msg=what)
        return
    rtol = 2e-6 if mine.dtype == np.float32 else 1e-2
    np.testing.assert_allclose(
        mine.astype(np.float64), reference.astype(np.float64), rtol=rtol, atol=4e-6, err_msg=what
    )


@parametrized(("level", "name"), [(level, name) for level in LEVELS for name in CASES], fast=FAST)
def test_statement(level, name):
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    built = Library({name: KERNELS[name]}, level)
    for dims in CASES[name]:
        check(built, name, dims)


def test_every_kernel_has_cases():
    assert set(CASES) == set(KERNELS)
