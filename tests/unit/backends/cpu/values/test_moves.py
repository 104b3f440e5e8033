"""Elements that are moved and not computed with keep their bits, also those of numbers that are none."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library, numpy_type

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("moved")
X = tensor({dtype}, (256, 256), ("256", "256"), access="in")
Y = tensor({dtype}, (256, 256), ("256", "256"), access="out")
with launch(256, threads=(64, 1, 1)) as (bx,):
    tile = alloc({dtype}, (256,), "shared.dyn")
    copy(X[bx:+1, 0:+256], tile[0:+256])
    for i in parallel(256):
        Y[bx, i] = tile[255 - i]
"""


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_pattern_of_bits_arrives(level: str, dtype: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    y = np.zeros_like(x)
    library = Library({"moved": TEXT.format(dtype=dtype)}, level)
    library.run("moved", [x.view(numpy_type(dtype)), y.view(numpy_type(dtype))], {})
    np.testing.assert_array_equal(y, x[:, ::-1])


CHOSEN = """
kernel("chosen")
X = tensor({dtype}, (256, 256), ("256", "256"), access="in")
at = tensor(int32, (256,), ("256",), access="in")
Y = tensor({dtype}, (256, 256), ("256", "256"), access="out")
with launch(8, threads=(64, 1, 1)) as (bx,):
    for i, j in parallel(32, 256):
        Y[bx * 32 + i, j] = if_then_else(at[bx * 32 + i] >= 0, X[at[bx * 32 + i], j], {dtype}(1.0))
"""


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn"])
def test_bits_chosen_among_elements_and_numbers_arrive(level: str, dtype: str) -> None:
    """Rows are looked up; those without a place are ones."""
    kind = np.dtype(numpy_type(dtype))
    bits = np.dtype(f"uint{8 * kind.itemsize}")
    x = np.random.default_rng(0).integers(0, 1 << 8 * kind.itemsize, (256, 256)).astype(bits)
    at = np.random.default_rng(1).integers(-64, 256, 256).astype(np.int32)
    y = np.zeros_like(x)
    Library({"chosen": CHOSEN.format(dtype=dtype)}, level).run("chosen", [x.view(kind), at, y.view(kind)], {})
    np.testing.assert_array_equal(y, np.where(at[:, None] >= 0, x[at], np.ones(1, kind).view(bits)))


def test_moved_elements_fill_whole_vectors() -> None:
    """Elements of 16 bits go 32 at a time, and none becomes a float."""
    target = parse_target("x86-64-v4")
    kernel = lower(parse_kernel(CHOSEN.format(dtype="bfloat16")), target)
    text = tir_text(to_tir(kernel, target), target, "k")
    assert "T.int64(1), 32)]" in text
    assert "float32x" not in text
