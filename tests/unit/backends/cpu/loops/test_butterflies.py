"""Iterations that exchange elements of a tile, at places that numbers known when code runs take apart."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import LEVELS, Library
from told import losses

from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.interp import interpreter
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

TEXT = """
kernel("{name}")
X = tensor(float32, (2, 128), ("2", "128"), access="in")
Y = tensor(float32, (2, 128), ("2", "128"), access="out")
with launch(2, threads=(64, 1, 1)) as (bx,):
    s = alloc(float32, (128,), "shared.dyn")
    copy(X[bx:+1, 0:+128], s[0:+128])
    for t in serial(0, 7, 1):
{body}
    copy(s[0:+128], Y[bx:+1, 0:+128])
"""
BODIES = {
    "halves": """
        h = 1 << t
        for i in parallel(64):
            a = i // h * (2 * h) + i % h
            x = s[a]
            y = s[a + h]
            s[a] = x + y
            s[a + h] = x - y
""",
    "bits": """
        h = 1 << t
        for i in parallel(64):
            a = 2 * i - (i & h - 1)
            x = s[a]
            s[a] = s[a ^ h] + x
            s[a ^ h] = x
""",
    "partners": """
        for u in serial(0, t + 1, 1):
            h = 1 << t - u
            for i in parallel(128):
                p = i ^ h
                if p > i:
                    x = s[i]
                    y = s[p]
                    if (x > y) == ((i & 2 << t) == 0):
                        s[i] = y
                        s[p] = x
""",
    "any number": """
        h = t * 4 + 4
        for i in parallel(64):
            a = i // h * h + i % h
            x = s[a]
            y = s[127 - a]
            s[a] = y - 1.0
            s[127 - a] = x + 1.0
""",
}


def text(name: str) -> str:
    """One of the kernels."""
    return TEXT.format(name=name.replace(" ", "_"), body=BODIES[name].strip("\n"))


@pytest.mark.parametrize("level", LEVELS)
def test_elements_are_exchanged(level: str) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    library = Library({name: text(name) for name in BODIES}, level)
    for name in BODIES:
        if level == "x86-64-v4":
            assert not losses(library.images[name].launches[0])
        x = np.random.default_rng(0).permutation(256).reshape(2, 128).astype(np.float32)
        y, wanted = np.full_like(x, np.nan), np.full_like(x, np.nan)
        interpreter.run(library.kernels[name], [x, wanted], {})
        library.run(name, [x, y], {})
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(("level", "lost"), [("x86-64-v2", 1), ("x86-64-v3", 1), ("x86-64-v4", 0)])
def test_elements_side_by_side_are_vectors(level: str, lost: int) -> None:
    """One of two versions is, and both where an instruction scatters."""
    target = parse_target(level)
    for name in ("halves", "bits", "partners"):
        lowered = to_tir(lower(parse_kernel(text(name)), target), target)
        assert len(losses(lowered.launches[0])) == lost
