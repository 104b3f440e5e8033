"""One rule for numbers, arrays and tensors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tilec.portable.nearness import near

NUMBERS = (0.0, 1.0, -1.0, 1.001, 0.999, 1e30, math.inf, -math.inf, math.nan)
PAIRS = tuple(itertools.product(NUMBERS, NUMBERS))


@pytest.mark.parametrize("equal_nan", [True, False])
@pytest.mark.parametrize(("rtol", "atol"), [(0.0, 0.0), (1e-2, 0.0), (0.0, 1e-2), (1e-2, 1e-3)])
def test_numbers_arrays_and_tensors_agree_with_numpy(rtol: float, atol: float, equal_nan: bool) -> None:
    import torch

    got, expected = np.array(PAIRS).T
    wanted = np.isclose(got, expected, rtol, atol, equal_nan).tolist()
    with np.errstate(invalid="ignore"):
        assert near(got, expected, rtol, atol, equal_nan=equal_nan).tolist() == wanted
    tensors = torch.from_numpy(got), torch.from_numpy(expected)
    assert near(*tensors, rtol, atol, equal_nan=equal_nan).tolist() == wanted
    assert [near(*pair, rtol, atol, equal_nan=equal_nan) for pair in PAIRS] == wanted
