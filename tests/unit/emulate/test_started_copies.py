"""Copies to shared memory that start ahead of their readers, on the emulator."""

from __future__ import annotations

import pytest
from emulated import KERNELS, SM80, SM90A, Beside, kernel_of, without

from tilec.errors import EmulationError
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import load_entry
from tilec.trials.oracle import Author

SOFTMAX = Author(load_entry("softmax.py:softmax_reference", KERNELS))
DIMS = {"M": 3, "N": 1000, "ldx": 1008}


def kept_rows():
    """Softmax of rows that are kept in shared memory, in four chunks."""
    guards = {"M": Guard(), "N": Guard(eq=1000), "ldx": Guard(div=8)}
    return kernel_of("softmax.py:softmax", guards, {"dtype": "float16"}, keep_row=True, bN=256, threads=64)


@pytest.mark.parametrize("target", [SM80, SM90A], ids=str)
def test_rows_in_chunks(target):
    assert Beside(kept_rows(), target, SOFTMAX).run(DIMS) == []


@pytest.mark.parametrize("wait", range(4))
def test_every_chunk_is_waited_for(wait):
    kernel = kept_rows()
    lowered = without(kernel, SM90A, "wait_group", which=wait)
    with pytest.raises(EmulationError):
        Beside(kernel, SM90A, SOFTMAX, lowered=lowered).run(DIMS)
