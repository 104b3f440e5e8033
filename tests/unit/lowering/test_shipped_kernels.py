"""Every kernel that ships, from the language to machine code, against its NumPy reference."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from compiled import Library

sys.path.insert(0, str(Path(__file__).parent.parent / "kernels"))
import test_kernels as shipped

LEVEL = "x86-64-v3"
CASES = shipped.GEMMS + shipped.ROWS + shipped.ATTENTIONS


@cache
def library() -> Library:
    """All cases in one library."""
    return Library({f"case{index}": shipped.build(case) for index, case in enumerate(CASES)}, LEVEL)


def inputs_of(case: shipped.Case, kernel: object) -> list[object]:
    rng = np.random.default_rng(11)
    if not case.inputs:
        return shipped.random_inputs(kernel, case.dims, rng)
    dtype = {"dtype": case.args["dtype"]} if "dtype" in case.args else {}
    return shipped.helper(case, case.inputs)(case.dims, rng, **dtype)


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda index: CASES[index].id)
def test_machine_code_computes_what_the_reference_says(index):
    case, built = CASES[index], library()
    kernel = built.kernels[f"case{index}"]
    inputs = inputs_of(case, kernel)
    args = shipped.arguments(kernel, inputs, case.dims)

    built.run(f"case{index}", args, case.dims)

    attr = case.entry.split(":")[1]
    extra = {"P": case.config["P"]} if attr == "pack" and "P" in case.config else {}
    expected = shipped.helper(case, case.reference or f"{attr}_reference")(*inputs, **extra)
    expected = expected if isinstance(expected, tuple) else (expected,)
    outputs = [
        arg for param, arg in zip(kernel.params, args, strict=True) if getattr(param, "access", "in") == "out"
    ]
    assert len(outputs) == len(expected)
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(got.astype(np.float32), want, rtol=case.rtol, atol=case.rtol)


def test_no_loop_of_a_shipped_kernel_is_scalar():
    notes = {
        note for image in library().images.values() for launch in image.launches for note in launch.notes
    }
    assert not [note for note in notes if "scalar" in note]
