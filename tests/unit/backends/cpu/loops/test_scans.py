"""Running sums and maxima in vectors."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import LEVELS, Library

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

TEXT = """
kernel("{kind}_{dtype}_{count}_{reverse}")
X = tensor({dtype}, (3, {count}), ("3", "{count}"), access="in")
Y = tensor({dtype}, (3, {count}), ("3", "{count}"), access="out", output=True)
with launch(1, threads=(64, 1, 1)) as (bx,):
    x = alloc({dtype}, (3, {count}), "shared.dyn")
    copy(X[0:+3, 0:+{count}], x[0:+3, 0:+{count}])
    for i in parallel(3):
        for j in parallel({count}):
            x[i, j] = x[i, j]
        scan_{kind}(x[i:+1, 0:+{count}], x[i:+1, 0:+{count}], axis=1{reverse})
    copy(x[0:+3, 0:+{count}], Y[0:+3, 0:+{count}])
"""
CASES = [
    (kind, dtype, count, reverse)
    for kind in ("sum", "max")
    for dtype, count in (("float32", 5), ("float32", 16), ("float32", 77), ("float64", 21), ("int32", 40))
    for reverse in (False, True)
]


def text(kind: str, dtype: str, count: int, reverse: bool) -> str:
    return TEXT.format(kind=kind, dtype=dtype, count=count, reverse=", reverse=True" if reverse else "")


#: The level that most machines run; the others are slow.
FAST = "x86-64-v3"


@pytest.fixture(
    scope="module",
    params=[FAST, *(pytest.param(each, marks=pytest.mark.slow) for each in LEVELS if each != FAST)],
)
def library(request):
    if not runs_here(parse_target(request.param)):
        pytest.skip(f"no {request.param} here")
    return Library({f"case{number}": text(*case) for number, case in enumerate(CASES)}, request.param)


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: str(CASES[number]))
def test_every_element_has_all_before_it(library, number):
    kind, dtype, count, reverse = CASES[number]
    x = np.random.default_rng(number).integers(-9, 9, (3, count)).astype(dtype)
    found = np.zeros_like(x)
    library.run(f"case{number}", [x, found], {})
    step = -1 if reverse else 1
    along = (np.cumsum if kind == "sum" else np.maximum.accumulate)(x[:, ::step], axis=1)
    np.testing.assert_array_equal(found, along[:, ::step].astype(dtype))


def test_lanes_are_not_moved_by_what_zen4_takes_long_for():
    target = parse_target("x86-64-v4")
    lowered = to_tir(lower(parse_kernel(text("sum", "float32", 77, False)), target), target)
    code = assembly(lowered, target, "k")
    assert "vaddps" in code
    assert "vexpand" not in code


def test_maxima_drop_what_is_no_number(library):
    x = np.full((3, 77), np.nan, np.float32)
    x[0, 3], x[0, 40], x[1, 20] = 2, 1, -5
    found = np.zeros_like(x)
    library.run(f"case{CASES.index(('max', 'float32', 77, False))}", [x, found], {})
    expected = np.fmax.accumulate(np.where(np.isnan(x), -np.inf, x), axis=1)
    np.testing.assert_array_equal(found, expected)


def test_sums_have_what_is_no_number_from_where_it_stands(library):
    x = np.ones((3, 77), np.float32)
    x[0, 18], x[1, 33] = np.nan, np.inf
    found = np.zeros_like(x)
    library.run(f"case{CASES.index(('sum', 'float32', 77, False))}", [x, found], {})
    np.testing.assert_array_equal(found, np.cumsum(x, axis=1))
