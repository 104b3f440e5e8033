"""Points of one colour, updated in place: which loops go over these alone, and that results are theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backends.cpu.emit.loops.splits.colours import of_one_colour
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


def sweeps(columns: int, order: tuple[int, int] = (0, 2)) -> Any:
    """One colour after the other, which a loop around tells, those that no point has among them."""

    @T.prim_func
    def main(U: T.Tensor((13, columns), "float32")):
        with T.Kernel(1, threads=32):
            for c in T.serial(*order):
                for y, x in T.Parallel(13, columns):
                    if y > 0 and y < 12 and x > 0 and x < columns - 1 and (y + x) % 2 == c:
                        U[y, x] = 0.25 * (U[y - 1, x] + U[y + 1, x] + U[y, x - 1] + U[y, x + 1])

    return main


def tries(columns: int) -> Any:
    """Points whose colour a loop of each of them tells."""

    @T.prim_func
    def main(U: T.Tensor((2, columns), "float32")):
        with T.Kernel(1, threads=32):
            for x in T.Parallel(columns):
                for c in T.serial(2):
                    if (x + c) % 2 == 0:
                        U[1, x] = U[0, x] + c

    return main


def test_colours_of_a_loop_around() -> None:
    assert extents(sweeps(64)) == (13, 32)
    assert extents(tries(64)) == (64,)


@pytest.mark.parametrize("order", [(0, 2), (-1, 4)])
def test_one_colour_after_the_other(order: tuple[int, int]) -> None:
    U = RANDOM.standard_normal((13, 61), dtype=np.float32)
    wanted = U.copy()
    y, x = (axis[1:-1, 1:-1] for axis in np.indices(U.shape))
    for colour in range(2):
        around = wanted[:-2, 1:-1] + wanted[2:, 1:-1] + wanted[1:-1, :-2] + wanted[1:-1, 2:]
        taken = (y + x) % 2 == colour
        wanted[1:-1, 1:-1][taken] = (0.25 * around)[taken]
    tilec.compile(sweeps(61, order), target="cpu")(U)
    np.testing.assert_allclose(U, wanted, rtol=1e-5, atol=1e-5)


def turns(columns: int) -> Any:
    """A loop inside the iterations, each trip of which asks for a colour of its own."""

    @T.prim_func
    def main(U: T.Tensor((9, columns + 2), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(9, columns):
                for k in T.serial(3):
                    if (j + 2 * k + i) % 4 == 0:
                        U[i, j + 1] = 0.25 * (U[i, j] + U[i, j + 2]) + k

    return main


def test_colours_that_differ_from_trip_to_trip() -> None:
    U = RANDOM.standard_normal((9, 64), dtype=np.float32)
    wanted = U.copy()
    colour = np.add(*np.indices((9, 62))) % 4
    around = 0.25 * (U[:, :-2] + U[:, 2:])
    wanted[:, 1:-1] = np.where(colour == 0, around + 2, np.where(colour == 2, around + 1, U[:, 1:-1]))
    tilec.compile(turns(62), target="cpu")(U)
    np.testing.assert_allclose(U, wanted, rtol=1e-6, atol=1e-6)
    assert extents(turns(62)) == (9, 62)
