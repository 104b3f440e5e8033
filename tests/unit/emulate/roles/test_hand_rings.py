"""Rings that authors write by hand end where the program does, whatever becomes of them. Where it does not,
the emulator says who waits for what."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from emulated import SM80, SM90A, Beside, call_name, edited, with_args
from tvm.ir import StringImm

from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.errors import EmulationError
from tilec.ir.options import AGAINST_TMA, NO_ROLES, NO_TMA
from tilec.language.frontend.elaborate import elaborate
from tilec.trials.oracle import Author

sys.path.insert(0, str(Path(__file__).parents[3] / "kernels"))
from hand_rings import (
    FAULTS,
    KEPT,
    SHORT,
    WRONG_PHASE,
    Ring,
    ends,
    hand_ring_reference,
    program,
    rings,
    spread,
)

#: Trips, more than there are buffers.
TRIPS = 4
SIZES = {"M": 128, "N": 64, "K": 64 * TRIPS}


def text_of(ring: Ring) -> str:
    """The fields that are not at their defaults."""
    return " ".join(f"{name}={value}" for name, value in asdict(ring).items() if value != getattr(Ring, name))


def kernel_of(ring: Ring):
    return elaborate(program(ring, **SIZES), name="ring", dims={}, args={}, config={})


def error_of(ring: Ring, target=SM90A, lowered=None) -> float:
    """The largest difference from the product of what a form computes on the emulator."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (SIZES[x], SIZES[y])).astype(np.float16) for x, y in ("MK", "KN"))
    c = np.full((SIZES["M"], SIZES["N"]), np.nan, np.float32)
    EmulatedKernel(kernel_of(ring), target, lowered=lowered)([a, b, c], {})
    return float(np.abs(c - a.astype(np.float32) @ b.astype(np.float32)).max())


def stuck(ring: Ring, target=SM90A) -> str:
    with pytest.raises(EmulationError) as found:
        error_of(ring, target)
    return str(found.value)


def test_counting_arrivals_tells_which_forms_end():
    every = rings()[::37]
    assert all(ends(ring, TRIPS) for ring in every)
    assert not any(ends(replace(ring, fault=fault), TRIPS) for ring in every for fault in (SHORT, KEPT))
    waiting = [replace(ring, fault=WRONG_PHASE) for ring in every if ring.start != "skips"]
    assert waiting
    assert not any(ends(ring, TRIPS) for ring in waiting)


@pytest.mark.parametrize("ring", spread(10), ids=text_of)
def test_forms_end(ring):
    assert error_of(ring) == 0


@pytest.mark.parametrize("ring", [ring for ring in spread(24, 1) if ring.copy == "plain"][:4], ids=text_of)
def test_forms_end_before_hopper(ring):
    assert error_of(ring, SM80) == 0


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "ring",
    [
        Ring(),
        Ring(together=False, buffers=3, start="given", loads_last=True),
        Ring(copy="bytes", free_each=128, multiplies_first=True),
    ],
    ids=text_of,
)
def test_programs_that_wait_for_ever_are_named_with_all_who_wait(ring, fault):
    text = stuck(replace(ring, fault=fault))
    assert "deadlock: every warp of block (0, 0, 0) that is left waits" in text
    for warps in ("warps 0 to 3 wait for parity", "warps 4 to 7 wait for parity"):
        assert warps in text
    assert "arrivals and 0 bytes missing" in text


@pytest.mark.parametrize(
    ("ring", "becomes"),
    [(Ring(stages=0, copy="tma"), True), (Ring(full_each=128), True), (Ring(together=False), False)],
)
def test_forms_of_both_kinds_are_among_them(ring, becomes):
    """Some become the ring of the target, others run as they are written."""
    (launch,) = lower(kernel_of(ring), SM90A, until="assign_roles").launches
    assert (launch.strategy is not None) == becomes


def test_bytes_that_are_counted_without_a_fence_order_nothing():
    def bare(arg):
        return StringImm(str(arg.value).replace("fence.acq_rel.cta; ", ""))

    def changed(stmt):
        if "tilec_barrier_complete" not in call_name(stmt):
            return None
        return with_args(
            stmt, lambda args: [bare(arg) if isinstance(arg, StringImm) else arg for arg in args]
        )

    ring = Ring(copy="bytes")
    by_threads = replace(kernel_of(ring), options=((NO_ROLES, AGAINST_TMA), (NO_TMA, True)))
    with pytest.raises(EmulationError, match="with nothing that orders the two"):
        error_of(ring, lowered=edited(by_threads, SM90A, changed))


def test_forms_without_an_order_in_turns_are_checked_by_the_reference():
    ring = Ring(loads_last=True, together=False, copy="bytes", buffers=3)
    beside = Beside(kernel_of(ring), SM90A, Author(hand_ring_reference))
    (variant,) = beside.facts.variants
    assert beside.oracle.expect(variant, {}, 1).oracle == "reference"
    assert beside.oracle.expect(variant, {}, 1, special=True).problem
    assert beside.run({}) == []


@pytest.mark.fuzz
def test_all_kinds_of_forms_end():
    end = time.monotonic() + int(os.environ.get("FUZZ_SECONDS", "120"))
    for ring in spread(4000, seed=2):
        target = SM80 if ring.copy == "plain" and ring.buffers == 2 else SM90A
        assert error_of(ring, target) == 0, ring
        for fault in FAULTS:
            if fault != WRONG_PHASE or ring.start != "skips":
                assert "deadlock" in stuck(replace(ring, fault=fault), target), (ring, fault)
        if time.monotonic() > end:
            break
