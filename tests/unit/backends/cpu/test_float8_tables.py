"""Products of few rows look 64 floats of 8 bits up at once on processors that have a table of 128 bytes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.cpu.emit.numbers.float8_tables import upper_halves
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

TARGET = "x86-64-v4+avx512bf16+zen4"
KINDS = ("float8_e4m3fn", "float8_e5m2")

#: Rows times a tensor of bytes with K along its rows, which end 40 behind a multiple of 64, or its columns.
TEXT = """
kernel("k")
A = tensor(float32, ({m}, {depth}), ("{m}", "{depth}"), access="in")
B = tensor({kind}, ({rows}, {cols}), ("{rows}", "{cols}"), access="in")
O = tensor(float32, ({m}, {n}), ("{m}", "{n}"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc(float32, ({m}, {depth}), "shared.dyn")
    b = alloc({kind}, ({rows}, {cols}), "shared.dyn")
    f = alloc(float32, ({rows}, {cols}), "shared.dyn")
    o = alloc(float32, ({m}, {n}), "local.fragment")
    copy(A[0:+{m}, 0:+{depth}], a[0:+{m}, 0:+{depth}])
    copy(B[0:+{rows}, 0:+{cols}], b[0:+{rows}, 0:+{cols}])
    for i, j in parallel({rows}, {cols}):
        f[i, j] = cast(float32, b[i, j])
    gemm(a[0:+{m}, 0:+{depth}], f[0:+{rows}, 0:+{cols}], o[0:+{m}, 0:+{n}], trans_b={along}, clear=True)
    copy(o[0:+{m}, 0:+{n}], O[0:+{m}, 0:+{n}])
"""
#: Rows and columns of ``B`` by whether K lies along its rows.
SHAPES = {True: (256, 168), False: (7, 256)}


def text(kind: str, along: bool, m: int = 1) -> str:
    rows, cols = SHAPES[along]
    depth, n = (cols, rows) if along else (rows, cols)
    return TEXT.format(kind=kind, along=along, m=m, rows=rows, cols=cols, depth=depth, n=n)


def code_of(kind: str, along: bool) -> str:
    target = parse_target(TARGET)
    return assembly(to_tir(lower(parse_kernel(text(kind, along)), target), target), target, "k")


@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_tables_stay_in_registers(kind: str, along: bool) -> None:
    """Two look-ups for 64 floats, and no conversion of halves but for what is left of K."""
    code = code_of(kind, along)
    assert "vpermi2b" in code or "vpermt2b" in code
    assert ("vcvtph2ps" in code) is along


@pytest.mark.skipif(not runs_here(parse_target(TARGET)), reason=f"this machine does not run {TARGET}")
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_code_is_itself_at_every_place(kind: str, along: bool, m: int) -> None:
    """Infinities and NaN, too, each beside nothing but zeros."""
    (rows, cols), codes = SHAPES[along], np.arange(256, dtype=np.uint8)
    depth, n = (cols, rows) if along else (rows, cols)
    library = Library({"k": text(kind, along, m)}, TARGET)
    for place in range(depth):
        b = np.zeros((rows, cols), np.uint8)
        b[:, place] = np.roll(codes, place) if along else 0
        if not along:
            b[place] = np.roll(codes, place)
        a, o = np.ones((m, depth), np.float32), np.full((m, n), np.nan, np.float32)
        b = b.view(getattr(ml_dtypes, kind))
        library.run("k", [a, b, o], {})
        value = np.roll(codes, place).view(getattr(ml_dtypes, kind)).astype(np.float32)
        np.testing.assert_array_equal(o, np.broadcast_to(value, (m, n)))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_halves_of_floats_are_those_of_every_magnitude(kind: str) -> None:
    """What C looks up: the bfloat16 number that each magnitude is."""
    halves = np.array([low | high << 8 for low, high in upper_halves(kind)], np.uint32) << np.uint32(16)
    wanted = np.arange(128, dtype=np.uint8).view(getattr(ml_dtypes, kind)).astype(np.float32)
    np.testing.assert_array_equal(halves.view(np.float32), wanted)
