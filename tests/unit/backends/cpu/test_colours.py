"""Points of one colour, updated in place: which loops go over these alone, and that results are theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backends.cpu.emit.loops.colours import of_one_colour
from tilec.ir.nodes import Parallel, walk
from tilec.language.frontend.elaborate import elaborate

RANDOM = np.random.default_rng(7)


def sweep(columns: int, colours: int, number: int, in_place: bool = True, rows: int = 13) -> Any:
    """One colour of a grid from its neighbours, in blocks of rows of which the last one is not whole."""

    @T.prim_func
    def main(
        U: T.Tensor((rows + 2, columns + 2), "float32"),
        R: T.Tensor((rows + 2, columns + 2), "float32"),
        V: T.Tensor((rows + 2, columns + 2), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, 4), threads=32) as by:
            for i, j in T.Parallel(4, columns):
                y = by * 4 + i + 1
                x = j + 1
                if y <= rows and (y + x) % colours == number:
                    around = U[y - 1, x] + U[y + 1, x] + U[y, x - 1] + U[y, x + 1]
                    if in_place:
                        U[y, x] = 0.25 * (around - R[y, x])
                    else:
                        V[y, x] = 0.25 * (around - R[y, x])

    return main


def extents(function: Any) -> tuple[int, ...]:
    """The extents of the first Parallel where its points of one colour alone are gone over."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    (loop,) = [stmt for stmt in walk(kernel.body) if isinstance(stmt, Parallel)]
    return tuple(map(int, of_one_colour(loop, len(loop.vars) - 1).extents))


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (sweep(62, 2, 1), (4, 31)),
        (sweep(61, 2, 1), (4, 31)),
        (sweep(62, 3, 0), (4, 21)),
        (sweep(62, 5, 0), (4, 62)),
        (sweep(62, 2, 1, in_place=False), (4, 62)),
    ],
)
def test_which_loops_go_over_one_colour(function: Any, found: tuple[int, ...]) -> None:
    assert extents(function) == found


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(("columns", "colours", "number"), [(62, 2, 1), (61, 2, 0), (40, 3, 2)])
def test_points_of_one_colour(columns: int, colours: int, number: int, in_place: bool) -> None:
    shape = (15, columns + 2)
    U, R, V = (RANDOM.standard_normal(shape, dtype=np.float32) for _ in range(3))
    wanted = (U if in_place else V).copy()
    y, x = (axis[1:-1, 1:-1] for axis in np.indices(shape))
    taken = (y + x) % colours == number
    around = U[:-2, 1:-1] + U[2:, 1:-1] + U[1:-1, :-2] + U[1:-1, 2:]
    wanted[1:-1, 1:-1][taken] = (0.25 * (around - R[1:-1, 1:-1]))[taken]
    tilec.compile(sweep(columns, colours, number, in_place), target="cpu")(U, R, V)
    np.testing.assert_allclose(U if in_place else V, wanted, rtol=1e-5, atol=1e-5)
