"""Unsigned arithmetic, and that of 8 and 16 bits, wraps around on every road, and what stands behind it
(quotients, comparisons, minima, indices) sees what is left."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.codegen import objects as cpu
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.ir.interp import interpreter
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
TYPES = (*UNSIGNED, "int8", "int16")

NUMBERS = (
    "{t}(0) - A[i]", "A[i] - B[i]", "A[i] + B[i]", "A[i] * B[i]", "{t}(7) - A[i]", "A[i] << {t}(3)", "~A[i]",
    "({t}(0) - A[i]) // {t}(3)", "(A[i] - B[i]) % {t}(7)", "(A[i] * {t}(3)) // {t}(3)", "(~A[i]) // {t}(2)",
    "max(A[i] - B[i], {t}(5))", "min({t}(0) - A[i], {t}(5))", "A[i] + B[i] - B[i]",
    "(A[i] << {t}(3)) // {t}(2)", "{t}(0) - ({t}(0) - A[i])",
    "if_then_else({t}(0) - A[i] > {t}(3), A[i], {t}(1))",
)  # fmt: skip
CONDITIONS = (
    "A[i] - B[i] < {t}(5)", "{t}(0) - A[i] == B[i]", "A[i] - B[i] >= {t}(0)", "{t}(0) - A[i] > {t}(0)",
    "A[i] - {t}(1) < A[i]", "A[i] - B[i] < A[i]", "A[i] + {t}(1) > A[i]", "A[i] * {t}(2) >= A[i]",
)  # fmt: skip
COUNT = 48


def text(name: str) -> str:
    """A kernel with a row of results for every expression."""
    stores = [f"Y[{row}, i] = {e.format(t=name)}" for row, e in enumerate(NUMBERS)]
    stores += [f"Z[{row}, i] = {e.format(t=name)}" for row, e in enumerate(CONDITIONS)]
    body = "\n        ".join(stores)
    return f"""
kernel("{name}")
A = tensor({name}, ({COUNT},), ("{COUNT}",), access="in")
B = tensor({name}, ({COUNT},), ("{COUNT}",), access="in")
Y = tensor({name}, ({len(NUMBERS)}, {COUNT}), ("{len(NUMBERS)}", "{COUNT}"), access="out")
Z = tensor(bool, ({len(CONDITIONS)}, {COUNT}), ("{len(CONDITIONS)}", "{COUNT}"), access="out")
with launch(1, threads=(32, 1, 1)) as (bx,):
    for i in parallel({COUNT}):
        {body}
"""


KERNELS = {name: text(name) for name in TYPES}


def operands(name: str) -> tuple[np.ndarray, np.ndarray]:
    info = np.iinfo(name)
    ends = [0, 1, 2, 3, 7, info.max, info.max - 1, info.max // 2, info.max // 2 + 1, info.min, info.min // 2]
    values = np.resize(np.array(ends, name), COUNT)
    return values, np.random.default_rng(3).permutation(values)


def results(name: str) -> list[np.ndarray]:
    return [np.zeros((len(NUMBERS), COUNT), name), np.zeros((len(CONDITIONS), COUNT), bool)]


def interpreted(name: str) -> list[np.ndarray]:
    made = results(name)
    with np.errstate(over="ignore"):
        interpreter.run(parse_kernel(KERNELS[name]), [*operands(name), *made], {})
    return made


def compared(name: str, made: list[np.ndarray]) -> None:
    """All is as the interpreter has it."""
    for rows, wanted, found in zip((NUMBERS, CONDITIONS), interpreted(name), made, strict=True):
        wrong = [row for row, w, f in zip(rows, wanted, found, strict=True) if not np.array_equal(w, f)]
        assert not wrong, name


@pytest.fixture(scope="module")
def library():
    return Library(KERNELS, "x86-64-v3")


@pytest.mark.parametrize("name", TYPES)
def test_arithmetic_wraps_around_on_a_cpu(library, name) -> None:
    made = results(name)
    library.run(name, [*operands(name), *made], {})
    compared(name, made)


@pytest.mark.parametrize("name", TYPES)
def test_arithmetic_wraps_around_in_cuda_code(name) -> None:
    made = results(name)
    EmulatedKernel(parse_kernel(KERNELS[name]), parse_target("sm_80"))([*operands(name), *made], {})
    compared(name, made)


def source(name: str, target: str, road) -> str:
    kernel = parse_kernel(KERNELS[name])
    chosen = parse_target(target)
    return road.source(to_tir(lower(kernel, chosen), chosen), chosen, "k")


@pytest.mark.parametrize("name", UNSIGNED)
def test_the_c_of_a_kernel_wraps_around_too(name, tmp_path) -> None:
    (tmp_path / "k.c").write_text(source(name, "x86-64-v2", cpu))
    command = ["cc", "-O2", "-w", "-shared", "-fPIC", "-march=x86-64-v2", "k.c", "-o", "k.so", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    made = results(name)
    arrays = [array.ctypes.data_as(ctypes.c_void_p) for array in (*operands(name), *made)]
    one = ctypes.c_int64
    ctypes.CDLL(str(tmp_path / "k.so")).k_0(*arrays, None, one(0), one(1))
    compared(name, made)


def test_cuda_code_cuts_short_integers_back_where_they_may_leave_their_type() -> None:
    code = source("uint8", "sm_80", cuda)
    assert "((uchar)((uint)0 - ((uint)A_ptr[" in code
    assert "(uchar)0 - A_ptr[" not in code
    assert "((uchar)(~((uint)A_ptr[" in code


def test_short_integers_that_stay_in_their_type_are_not_cut() -> None:
    plain = KERNELS["uint8"].replace(NUMBERS[0].format(t="uint8"), "(A[i] & uint8(7)) + uint8(1)")
    kernel, target = parse_kernel(plain), parse_target("sm_80")
    assert "& (uchar)7) + (uchar)1)" in cuda.source(to_tir(lower(kernel, target), target), target, "k")


def test_an_index_from_an_unsigned_difference_keeps_its_bounds(library) -> None:
    """0 - h is no number that is 0 at most: an index made of it may lie outside."""
    kernel = """
kernel("index")
H = tensor(uint32, (16,), ("16",), access="in")
T = tensor(int32, (8,), ("8",), access="in")
Y = tensor(int32, (16,), ("16",), access="out")
with launch(1, threads=(32, 1, 1)) as (bx,):
    for i in parallel(16):
        Y[i] = T[cast(int32, uint32(0) - H[i])]
"""
    parsed = parse_kernel(kernel)
    hashes = (-np.arange(16)).astype(np.uint32)
    table, made, wanted = np.arange(1, 9, dtype=np.int32), np.zeros(16, np.int32), np.zeros(16, np.int32)
    interpreter.run(parsed, [hashes, table, wanted], {})
    assert wanted.tolist() == [*range(1, 9), *[0] * 8]
    Library({"index": kernel}, "x86-64-v3").run("index", [hashes, table, made], {})
    np.testing.assert_array_equal(made, wanted)
    made[:] = 0
    EmulatedKernel(parsed, parse_target("sm_80"))([hashes, table, made], {})
    np.testing.assert_array_equal(made, wanted)
