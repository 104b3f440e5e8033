"""Random loops over tiles: bounds, conditions, accumulation and copies in mixtures nobody would write."""

from __future__ import annotations

import random

import numpy as np
import pytest
from compiled import Library

from tilec.ir.interp import interpreter

pytestmark = pytest.mark.slow

SEEDS = range(12)
SHAPES = ((1, 1), (3, 5), (7, 17), (9, 48), (8, 33))
TILES = ("f", "g", "h")


class Writer:
    """Writes one kernel; every choice comes from its seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows = self.random.choice([1, 2, 3, 5, 8])
        self.cols = self.random.choice([1, 3, 4, 7, 16, 20, 33, 48])

    def kernel(self) -> str:
        """Inputs X, B and L, outputs Y (what the tiles hold in the end) and S (row statistics)."""
        rows, cols = self.rows, self.cols
        steps = [line for _ in range(self.random.randrange(2, 7)) for line in self.step()]
        lines = [
            *(f'{name} = alloc(float32, ({rows}, {cols}), "local.fragment")' for name in TILES),
            f's = alloc(float32, ({rows},), "local.fragment")',
            f'q = alloc(float32, ({cols},), "local.fragment")',
            f"fill(s[0:+{rows}], 0.5)",
            f"fill(q[0:+{cols}], 0.25)",
            *(f"fill({name}[0:+{rows}, 0:+{cols}], {self.random.choice(['1.0', '2.0'])})" for name in TILES),
            *steps,
            f"for i, j in parallel({rows}, {cols}):",
            f"    Y[by * {rows} + i, bx * {cols} + j] = f[i, j] + g[i, j] * 2.0 + h[i, j] + s[i] + q[j]",
            f"for i in parallel({rows}):",
            "    if bx == 0:",
            f"        S[by * {rows} + i] = s[i]",
        ]
        head = [
            'kernel("random")',
            "M = dim(int32)",
            "N = dim(int32)",
            'X = tensor(float32, (M, N), ("M", "N"), access="in")',
            'B = tensor(float32, (N,), ("N",), access="in")',
            'L = tensor(int32, (M,), ("M",), access="in")',
            'Y = tensor(float32, (M, N), ("M", "N"), access="out")',
            'S = tensor(float32, (M,), ("M",), access="out")',
            f"with launch((N + {cols - 1}) // {cols}, (M + {rows - 1}) // {rows}, threads=(1, 1, 1))"
            " as (bx, by):",
        ]
        return "\n".join([*head, *(f"    {line}" for line in lines)]) + "\n"

    def step(self) -> list[str]:
        """A reduction, a copy or a loop."""
        kind, tile = self.random.randrange(8), self.random.choice(TILES)
        whole = f"{tile}[0:+{self.rows}, 0:+{self.cols}]"
        clear = self.random.choice(["True", "False"])
        if kind == 0:
            name = self.random.choice(["sum", "max", "min", "absmax"])
            return [f"reduce_{name}({whole}, s[0:+{self.rows}], axis=1, clear={clear})"]
        if kind == 1:
            name = self.random.choice(["sum", "max"])
            return [f"reduce_{name}({whole}, q[0:+{self.cols}], axis=0, clear={clear})"]
        if kind == 2:
            return [f"copy(X[by * {self.rows}:+{self.rows}, bx * {self.cols}:+{self.cols}], {whole})"]
        return self.loop()

    def loop(self) -> list[str]:
        """Writes to the iteration's own elements, perhaps under a condition, perhaps an accumulation."""
        written = set(self.random.sample(TILES, self.random.randrange(1, 3)))
        accumulates = self.random.random() < 0.3
        barred = written | ({"s"} if accumulates else set())
        lines = [f"for i, j in parallel({self.rows}, {self.cols}):"]
        for tile in sorted(written):
            if self.random.random() < 0.35:
                lines.append(f"    if {self.cond(1, barred)}:")
                lines.append(f"        {tile}[i, j] = {self.expr(2, barred)}")
            else:
                lines.append(f"    {tile}[i, j] = {self.expr(2, barred)}")
        if accumulates:
            term = self.expr(1, barred)
            lines.append(f"    s[i] = {self.random.choice([f's[i] + {term} * 0.01', f'max(s[i], {term})'])}")
        return lines

    def expr(self, depth: int, barred: set[str]) -> str:
        """A value; ``barred`` tiles are read at the iteration's own element alone."""
        kind = self.random.randrange(9 if depth > 0 else 5)
        if kind < 5:
            return self.leaf(kind, barred)
        inner = self.expr(depth - 1, barred)
        if kind == 5:
            return f"({inner} + {self.expr(depth - 1, barred)})"
        if kind == 6:
            return f"max({inner}, {self.expr(depth - 1, barred)})"
        if kind == 7:
            return f"if_then_else({self.cond(depth - 1, barred)}, {inner}, {self.expr(depth - 1, barred)})"
        return f"({inner} * 0.5)"

    def leaf(self, kind: int, barred: set[str]) -> str:
        """An element or a number; global reads may lie outside."""
        row, col = f"by * {self.rows} + i", f"bx * {self.cols} + j"
        if kind == 0:
            return f"X[{row}, {col}{self.random.choice(['', ' + 1', ' - 1', ' + 3'])}]"
        if kind == 1:
            return f"B[{col}{self.random.choice([' + 2', ' - j', ''])}]"
        if kind == 2:
            tile = self.random.choice(TILES)
            moved = [f"{self.rows - 1} - i, j", f"i, {self.cols - 1} - j", "i, 0", "i, j + 1", "i, j"]
            return f"{tile}[{'i, j' if tile in barred else self.random.choice(moved)}]"
        if kind == 3:
            return self.random.choice(["0.5", "1.5", "-2.0", "cast(float32, i * 3 + j)"])
        return "1.0" if "s" in barred else self.random.choice(["s[i]", "q[j]"])

    def cond(self, depth: int, barred: set[str]) -> str:
        """A condition on places or on values."""
        return self.random.choice(
            [
                f"bx * {self.cols} + j < N - {self.random.randrange(3)}",
                f"i + j < {self.random.randrange(2, 10)}",
                f"{self.expr(0, barred)} > 0.0",
                f"by * {self.rows} + i < M",
                f"j <= L[by * {self.rows} + i]",
                f"(j + {self.random.randrange(4)}) % 3 == 0",
            ]
        )


@pytest.fixture(scope="module")
def library():
    return Library({f"random{seed}": Writer(seed).kernel() for seed in SEEDS}, "x86-64-v3")


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernel(library, seed):
    for rows, cols in SHAPES:
        rng = np.random.default_rng(rows * 100 + cols)
        inputs = [
            rng.standard_normal((rows, cols)).astype(np.float32),
            rng.standard_normal(cols).astype(np.float32),
            rng.integers(0, 20, rows).astype(np.int32),
        ]
        got, want = (
            [np.full((rows, cols), np.nan, np.float32), np.full(rows, np.nan, np.float32)] for _ in range(2)
        )
        dims = {"M": rows, "N": cols}
        interpreter.run(library.kernels[f"random{seed}"], [*inputs, *want], dims)
        library.run(f"random{seed}", [*inputs, *got], dims)
        for mine, reference in zip(got, want, strict=True):
            np.testing.assert_allclose(mine, reference, rtol=2e-5, atol=2e-5, err_msg=f"{rows} x {cols}")
