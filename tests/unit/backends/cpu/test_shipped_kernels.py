"""Every kernel that ships, from the language to machine code, against its NumPy reference."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest
from compiled import Library
from told import told

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import test_kernels as shipped

pytestmark = pytest.mark.slow

LEVEL = "x86-64-v3"
CASES = shipped.ALL


@cache
def library() -> Library:
    """All cases in one library."""
    return Library({f"case{index}": shipped.build(case) for index, case in enumerate(CASES)}, LEVEL)


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda index: CASES[index].id)
def test_machine_code_computes_what_the_reference_says(index):
    case, built = CASES[index], library()
    kernel = built.kernels[f"case{index}"]
    args, given = shipped.prepared(case, kernel, seed=11)
    built.run(f"case{index}", args, case.dims)
    shipped.check(case, kernel, args, given)


def test_no_loop_of_a_shipped_kernel_is_scalar():
    """But for heads in one tile, which are for GPUs: logs of their sums go to places of their own. Scales
    that steps along K share, in configs for GPUs, come one by one where few rows add up stored numbers."""
    notes = {
        (index, note)
        for index in range(len(CASES))
        if "blocks" not in CASES[index].config
        for launch in library().images[f"case{index}"].launches
        for note in told(launch)
    }
    scalar = [(CASES[index].id, note) for index, note in sorted(notes) if "scalar" in note]
    assert [(case, note) for case, note in scalar if "scales -> steps" not in note] == []
