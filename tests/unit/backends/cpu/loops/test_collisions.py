"""Loops that compare with an element and store to it, where several iterations have it in common."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library
from told import told

from tilec.backends.cuda.nodes import ThreadLoop
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.ir.interp import interpreter
from tilec.ir.nodes import For, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("{name}")
X = tensor(float32, (64, 8), ("64", "8"), access="in")
I = tensor(int32, (64,), ("64",), access="in")
Y = tensor(float32, (16, 8), ("16", "8"), access="inout")
W = tensor(int32, (16, 8), ("16", "8"), access="inout")
with launch(1, threads=(64, 1, 1)) as (bx,):
    best = alloc(float32, (16, 8), "{scope}")
    copy(Y[0:+16, 0:+8], best[0:+16, 0:+8])
    for {loop}:
{body}
    copy(best[0:+16, 0:+8], Y[0:+16, 0:+8])
"""
FLAT, DEEP = "i in parallel(64)", "i, j in parallel(64, 8)"
#: Name to loop, and lines of its body.
BODIES = {
    "remainder": (FLAT, ("if X[i, 0] > best[i % 3, 0]:", "    best[i % 3, 0] = X[i, 0]")),
    "table": (FLAT, ("if X[i, 0] > best[I[i], 1]:", "    best[I[i], 1] = X[i, 0]")),
    "named": (FLAT, ("k = I[i]", "old = best[k, 0]", "if X[i, 0] > old:", "    best[k, 0] = X[i, 0]")),
    "columns": (DEEP, ("if X[i, j] > best[I[i], j]:", "    best[I[i], j] = X[i, j]")),
    "one": (DEEP, ("if X[i, j] > best[0, 0]:", "    best[0, 0] = X[i, j]")),
    "halved": (DEEP, ("if X[i, j] > best[i // 4, j // 2]:", "    best[i // 4, j // 2] = X[i, j]")),
    "where": (
        FLAT,
        ("if X[i, 0] > best[I[i], 0]:", "    best[I[i], 0] = X[i, 0]", "    W[I[i], 0] = i"),
    ),
    "global": (DEEP, ("if X[i, j] > Y[I[i], 7 - j]:", "    Y[I[i], 7 - j] = X[i, j]")),
    "neighbour": (FLAT, ("if X[i, 0] > best[i % 4, 0]:", "    best[(i + 1) % 4, 0] = X[i, 0]")),
}


def text(name: str, scope: str = "shared.dyn") -> str:
    """One of the kernels."""
    loop, lines = BODIES[name]
    body = "\n".join(f"        {line}" for line in lines)
    return TEXT.format(name=name, scope=scope, loop=loop, body=body)


@pytest.fixture(scope="module")
def library():
    return Library({name: text(name) for name in BODIES}, "x86-64-v3")


def compared(kernel, run) -> None:
    """``run`` changes its arguments as the interpreter does."""
    rng = np.random.default_rng(len(kernel.name))
    x = rng.permutation(64 * 8).reshape(64, 8).astype("float32")
    index = rng.integers(0, 16, 64).astype("int32")
    given = [x, index, np.full((16, 8), 100, "float32"), np.zeros((16, 8), "int32")]
    wanted = [array.copy() for array in given]
    interpreter.run(kernel, wanted, {})
    run(given)
    for mine, theirs in zip(given, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", BODIES)
def test_compiled_loops_keep_the_largest(library, name) -> None:
    compared(library.kernels[name], lambda given: library.run(name, given, {}))


@pytest.mark.parametrize("scope", ["shared.dyn", "local.fragment"])
@pytest.mark.parametrize("name", BODIES)
def test_threads_do_not_race(name, scope) -> None:
    target = parse_target("sm_80")
    kernel = parse_kernel(text(name, scope))
    emulated = EmulatedKernel(kernel, target)
    compared(kernel, lambda given: emulated(given, {}))


@pytest.mark.parametrize("name", BODIES)
def test_loops_are_serial_no_further_than_they_must(name) -> None:
    target = parse_target("sm_80")
    lowered = lower(parse_kernel(text(name)), target)
    (serial,) = (stmt for stmt in walk(lowered.body) if isinstance(stmt, ThreadLoop)
                 if any(isinstance(inner, For) for inner in walk(stmt.body)))  # fmt: skip
    assert serial.extents == ((8,) if name in ("columns", "global") else (1,))
    notes = told(to_tir(lowered, target).launches[0])
    assert any("the loop over i" in note for note in notes)
