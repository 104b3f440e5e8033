"""Scans that all threads of a block share, on the emulated device."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.backends.cuda.nodes import BlockScan
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.ir.nodes import Kernel, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

SM80 = parse_target("sm_80")
NUMPY = {"sum": np.cumsum, "max": np.maximum.accumulate}


def scan_kernel(
    shape: tuple[int, int], kind: str, reverse: bool, axis: int, dtype: str, threads: int
) -> Kernel:
    """y = the scan of x."""
    rows, columns = shape
    region = f"[0:+{rows}, 0:+{columns}]"
    text = [
        'kernel("scan")',
        f'x = tensor({dtype}, ({rows}, {columns}), ("{rows}", "{columns}"), access="in")',
        f'y = tensor({dtype}, ({rows}, {columns}), ("{rows}", "{columns}"), access="out")',
        f"with launch(1, threads=({threads}, 1, 1)) as (b,):",
        f'    s = alloc({dtype}, ({rows}, {columns}), "shared.dyn")',
        f"    copy(x{region}, s{region})",
        f"    scan_{kind}(s{region}, s{region}, axis={axis}, reverse={reverse})",
        f"    copy(s{region}, y{region})",
    ]
    return parse_kernel("\n".join(text) + "\n")


def scanned(values: np.ndarray, kind: str, reverse: bool, axis: int) -> np.ndarray:
    """NumPy's twin."""
    order = [slice(None)] * 2
    order[axis] = slice(None, None, -1 if reverse else 1)
    return NUMPY[kind](values[tuple(order)], axis=axis)[tuple(order)]


@pytest.mark.parametrize(
    ("shape", "threads", "kind", "reverse", "dtype"),
    [
        ((1, 1024), 128, "sum", False, "int32"),  # pieces of all warps, twice
        ((1, 1024), 128, "sum", True, "int32"),
        ((1, 96), 32, "max", False, "float32"),
        ((4, 64), 64, "sum", False, "float32"),  # lines side by side in warps
        ((3, 128), 64, "sum", True, "float32"),  # lines after each other in registers
        ((2, 256), 128, "max", True, "int32"),  # two warps a line
        ((2, 64), 64, "sum", False, "float16"),
        ((1, 8), 128, "sum", False, "int32"),  # padded to the lanes
        ((4, 40), 64, "sum", True, "int32"),
        ((1, 160), 64, "max", True, "float32"),
        ((5, 100), 128, "max", False, "int32"),
    ],
)
def test_all_threads_share_a_scan(shape, threads, kind, reverse, dtype):
    kernel = scan_kernel(shape, kind, reverse, 1, dtype, threads)
    assert any(isinstance(stmt, BlockScan) for stmt in walk(lower(kernel, SM80).body))
    check(kernel, shape, kind, reverse, 1, dtype)


def check(kernel: Kernel, shape, kind: str, reverse: bool, axis: int, dtype: str) -> None:
    """Runs the kernel on small integers, whose sums are exact."""
    values = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    result = np.zeros(shape, dtype)
    EmulatedKernel(kernel, SM80)([values, result], {})
    np.testing.assert_array_equal(result, scanned(values, kind, reverse, axis).astype(dtype))


@pytest.mark.parametrize(
    ("shape", "axis", "why"),
    [((64, 64), 0, "last axis"), ((64, 8), 1, "32 lanes")],
)
def test_other_scans_walk_and_say_so(shape, axis, why):
    kernel = scan_kernel(shape, "sum", False, axis, "int32", 64)
    roads = to_tir(lower(kernel, SM80), SM80).launches[0].roads
    assert any(road.loss is not None and why in road.loss.condition for road in roads)
    check(kernel, shape, "sum", False, axis, "int32")
