"""Every instruction on the emulator gives what a GPU gave (H200; see `record.py`)."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from instruction_cases import CASES, Case, inputs, lowered
from record import RECORDED

from tilec.emulate import Emulator, Tensor
from tilec.targets import parse_target


@cache
def recorded() -> dict[str, np.ndarray]:
    with np.load(RECORDED) as found:
        return {name: found[name] for name in found.files}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_instruction(case: Case) -> None:
    expected, made = recorded()[case.name], np.zeros(case.outputs, np.uint32)
    emulator = Emulator(lowered(case), parse_target("sm_90a"))
    emulator.run([Tensor(inputs(case), "in"), Tensor(made, "out")], {}, {})
    if case.floats is None:
        np.testing.assert_array_equal(made, expected)
        return
    left, right = (each.view(np.float32).astype(np.float64) for each in (made, expected))
    np.testing.assert_allclose(left, right, rtol=case.floats, atol=case.floats)
