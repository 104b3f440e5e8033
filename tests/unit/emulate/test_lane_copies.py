"""Copies from global to shared memory without registers, on gfx950: right at every count of trips and at
ragged ends, waited for once a trip, and said."""

from __future__ import annotations

import itertools
import re

import pytest
from emulated import Beside, kernel_of, without

from tilec.backends.base import backend_of
from tilec.backends.hip.codegen import images
from tilec.backends.hip.copies.emit import element_at
from tilec.backends.pipeline import lower
from tilec.errors import CompileError, EmulationError
from tilec.ir.guards import Guard
from tilec.ir.layout import Layout, Swizzle
from tilec.ir.nodes import Launch
from tilec.targets import parse_target

TARGET = parse_target("gfx950")
#: No trip, one, two whole ones, and a third of a quarter.
DEPTHS = (0, 32, 64, 72)


def product(div=8, threads=128, **config):
    dims = {"M": Guard(), "N": Guard(div=div), "K": Guard(div=div)}
    sizes = {"bM": 32, "bN": 64, "bK": 32, "threads": threads, **config}
    return kernel_of("gemm.py:matmul", dims, {"dtype": "float16"}, **sizes)


@pytest.fixture(scope="module")
def runs():
    """By whether B is stored across, the kernel with its oracle. A third of the threads' last round has no
    piece of A."""
    return {across: Beside(product(trans_B=across, bM=48), TARGET) for across in (False, True)}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("across", [False, True])
def test_trips(runs, across, depth):
    assert runs[across].run({"M": 61, "N": 72, "K": depth}) == []


@pytest.mark.parametrize("name", ["wait_group", "tilec_sync_shared"])
def test_a_trip_waits_for_its_copies_and_for_all_threads(name):
    kernel = product()
    lowered = without(kernel, TARGET, name, which=0)
    with pytest.raises(EmulationError):
        Beside(kernel, TARGET, lowered=lowered).run({"M": 45, "N": 72, "K": 72})


@pytest.mark.parametrize("swizzle", [None, Swizzle(8, 8, 64), Swizzle(4, 16, 128)])
def test_the_element_of_a_place(swizzle):
    layout = Layout(Layout.row_major((2, 16, 64)).digits, swizzle)
    indices = list(itertools.product(range(2), range(16), range(64)))
    assert [layout.offset(indices[element_at(layout, place)]) for place in range(2048)] == list(range(2048))


def launch_of(kernel, target=TARGET):
    (launch,) = (stmt for stmt in lower(kernel, target).body if isinstance(stmt, Launch))
    return launch


def kinds(kernel, target=TARGET):
    loads = ("global_load_lds", "held ahead", "waits")
    return [road.kind for road in launch_of(kernel, target).roads if road.kind in loads]


def test_what_goes_straight():
    assert kinds(product()) == ["global_load_lds"] * 2
    assert launch_of(product()).notes == ()
    asked = "num_stages = 4 asks for 3 trips ahead: copies to shared memory run 1 ahead"
    assert launch_of(product(num_stages=4)).notes == (asked,)


def test_what_goes_through_registers():
    assert kinds(product(), parse_target("gfx942")) == ["held ahead"] * 2
    assert kinds(product(div=4)) == ["held ahead"] * 2, "pieces of 8 bytes"
    assert kinds(product(threads=96)) == ["held ahead"] * 2, "no whole waves"
    assert kinds(product(bM=64, bN=256, bK=64, threads=512)) == ["held ahead"] * 2, "no room for two stages"
    assert kinds(product(num_stages=1)) == ["waits"] * 2


def test_one_wait_a_trip():
    """What is under way is waited for at the barrier of the next trip, not before a read of the tiles."""
    lowered = backend_of(TARGET).lower_kernel(lower(product(), TARGET), TARGET)
    text = images.assembly(lowered, TARGET, "p")
    loop = text[text.index("  in Loop:") : text.rindex("  in Loop:")]
    found = re.findall(r"vmcnt\(0\)|s_barrier|global_load_lds_dwordx4|mfma(?=_f32)|global_load_dword", loop)
    assert [kind for kind, _ in itertools.groupby(found)] == [
        "mfma", "vmcnt(0)", "s_barrier", "global_load_lds_dwordx4",
    ]  # fmt: skip


def test_a_tile_out_of_reach_is_refused(monkeypatch):
    monkeypatch.setattr("tilec.backends.hip.copies.emit.REACH", 4096)
    with pytest.raises(CompileError, match="Bs ends 4096 bytes or more from the start of shared memory"):
        backend_of(TARGET).lower_kernel(lower(product(), TARGET), TARGET)
