"""Loops over elements whose rows, or whose tensors, follow from where in the loop they are."""

from __future__ import annotations

from agree import agree, halves, roads

import tilec.language as T


def kinds(kernel, *inputs):
    return {road.kind for road in roads(kernel, *inputs)}


def test_a_choice_that_a_vector_makes_at_once_is_a_row():
    @T.prim_func
    def main(
        X: T.Tensor((3, 96, 64), "float16"),
        Q: T.Tensor((96, 128), "float16"),
        Y: T.Tensor((96, 128), "float16"),
    ):
        with T.Kernel(12, threads=128) as b:
            for i, d in T.Parallel(8, 128):
                half = T.if_then_else(d < 64, d + 64, d - 64)
                part = T.if_then_else(d < 16, 0, T.if_then_else(d < 72, 1, 2))
                Y[b * 8 + i, d] = Q[b * 8 + i, half] * X[part, b * 8 + i, d % 64]

    inputs = halves(3, 96, 64), halves(96, 128)
    agree(main, *inputs)
    assert kinds(main, *inputs) == {"vectors"}


def test_a_choice_that_ends_inside_of_vectors_is_made_by_elements():
    @T.prim_func
    def main(X: T.Tensor((2, 96, 64), "float16"), Y: T.Tensor((96, 64), "float16")):
        with T.Kernel(12, threads=128) as b:
            for i, d in T.Parallel(8, 64):
                Y[b * 8 + i, d] = X[T.if_then_else(d < 21, 0, 1), b * 8 + i, d]

    agree(main, halves(2, 96, 64))
    assert "elements" in kinds(main, halves(2, 96, 64))


def parts(first, second):
    """Columns of one tensor to three others."""

    @T.prim_func
    def kernel(
        X: T.Tensor((40, 512), "float16"),
        Q: T.Tensor((40, first), "float16"),
        K: T.Tensor((40, second - first), "float32"),
        V: T.Tensor((40, 512 - second), "float16"),
    ):
        with T.Kernel(10, threads=128) as b:
            for i, c in T.Parallel(4, 512):
                row = b * 4 + i
                if c < first:
                    Q[row, c] = X[row, c]
                elif c < second:
                    K[row, c - first] = X[row, c] * 2
                else:
                    V[row, c - second] = X[row, c] + 1

    return kernel


def test_sides_of_a_branch_that_vectors_take_as_one_move_vectors():
    agree(parts(320, 416), halves(40, 512))
    assert kinds(parts(320, 416), halves(40, 512)) == {"vectors"}
    agree(parts(325, 416), halves(40, 512))
