"""Products of matrices on NumPy arrays, and sums whose overflow depends on the order of their terms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilec.ir.interp.values import cast, is_float, largest

_EXACT = 2**53  # integers below it are exact in float64


class Sums:
    """The sums of one call. A device may form a sum of floats in any order; where a part of its terms
    overflows but not the whole, or parts overflow to both sides, the order decides between infinities, NaN
    and numbers. ``are_doubtful``: there has been such a sum; ``spoils`` makes NaN of them."""

    def __init__(self, spoils: bool) -> None:
        self.spoils = spoils
        self.are_doubtful = False

    def matmul(self, a: np.ndarray, b: np.ndarray, old: np.ndarray) -> np.ndarray:
        """``old + a @ b`` over the last two axes, in float64 (integers: exactly, modulo the result type)."""
        rows, cols = a.reshape(a.shape[-2:]), b.reshape(b.shape[-2:])
        wide = np.float64 if is_float(old.dtype) or _small(rows, cols) else np.int64
        rows, cols = rows.astype(wide), cols.astype(wide)
        product: np.ndarray = (rows @ cols).reshape(old.shape)
        if not is_float(old.dtype):
            return (old.astype(np.int64) + product.astype(np.int64)).astype(old.dtype)
        total = old.astype(np.float64) + product
        made = np.asarray(cast(total, old.dtype))
        if _greatest(rows) * _greatest(cols) * a.shape[-1] + _greatest(old) <= largest(old.dtype):
            return made
        absolute = (np.abs(rows) @ np.abs(cols)).reshape(old.shape) + np.abs(old.astype(np.float64))
        return self._settled(made, total, absolute)

    def checked(
        self, made: np.ndarray, terms: np.ndarray, form: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """``made``, the sums that ``form`` makes of ``terms``."""
        if not is_float(made.dtype) or _greatest(terms) * terms.size <= largest(made.dtype):
            return made
        wide = np.asarray(cast(terms, made.dtype)).astype(np.float64)
        return self._settled(made, form(wide), form(np.abs(wide)))

    def _settled(self, made: np.ndarray, total: np.ndarray, absolute: np.ndarray) -> np.ndarray:
        """``absolute``: the sums of the absolute values, so that ``absolute + total`` is twice the sum of the
        positive terms. A sum that overflows to one side alone does so in every order."""
        most = largest(made.dtype)
        up, down = absolute + total > 2 * most, absolute - total > 2 * most
        doubtful = np.where(total > most, down, np.where(total < -most, up, up | down))
        self.are_doubtful |= bool(doubtful.any())
        return np.where(doubtful, np.asarray(np.nan, made.dtype), made) if self.spoils else made


def _greatest(values: np.ndarray) -> float:
    """The greatest absolute value, NaN left out."""
    return float(np.fmax.reduce(np.abs(values.astype(np.float64)), axis=None, initial=0.0))


def _small(rows: np.ndarray, cols: np.ndarray) -> bool:
    """Whether products of these integers add up exactly in float64."""
    bits = 8 * (rows.dtype.itemsize + cols.dtype.itemsize)
    return bool(rows.shape[1] << bits < _EXACT)
