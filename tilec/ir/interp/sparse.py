"""Matrices with two values in each group of four: the values, and four bits a group that place them."""

from __future__ import annotations

import numpy as np

from tilec.errors import EvalError

GROUP, KEPT = 4, 2


def places(e: np.ndarray) -> np.ndarray:
    """Where the two values of each group are: (rows, groups, 2), from rows of integers that are strings of
    bits, the lowest first."""
    octets = np.ascontiguousarray(e).view(np.uint8).reshape(len(e), -1)
    fours = np.stack([octets & 15, octets >> 4], axis=-1).reshape(len(e), -1)
    return np.stack([fours & 3, fours >> 2], axis=-1)


def expanded(a: np.ndarray, e: np.ndarray) -> np.ndarray:
    """The matrix (rows, K) of values (rows, K/2) and their places ``e``.

    Raises:
        EvalError: where the second value of a group does not lie behind the first one, and one is not 0.
    """
    at = places(e)
    values = np.ascontiguousarray(a).reshape(*at.shape)
    wrong = (at[..., 0] >= at[..., 1]) & (values.astype(np.float64) != 0).any(-1)
    if wrong.any():
        row, group = (int(index) for index in np.argwhere(wrong)[0])
        first, second = at[row, group].tolist()
        raise EvalError(
            f"a sparse product: the values of row {row}, group {group} are at places {first} and {second}",
            why="the second value of a group of four lies behind the first one",
            remedy="make the values and their places with tilec.utils.sparse.compress",
        )
    made = np.zeros((*at.shape[:2], GROUP), a.dtype)
    for value in reversed(range(KEPT)):
        np.put_along_axis(
            made, at[..., value : value + 1].astype(np.int64), values[..., value : value + 1], -1
        )
    return made.reshape(len(a), -1)
