"""Copies from global to shared memory without registers: right at every count of trips and at ragged ends,
waited for once a trip, and said."""

from __future__ import annotations

import itertools
import re

import pytest
from emulated import Beside, kernel_of, without

import tilec
import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.hip.codegen import images
from tilec.backends.hip.copies.emit import element_at
from tilec.backends.pipeline import lower
from tilec.errors import CompileError, EmulationError
from tilec.ir.guards import Guard
from tilec.ir.layout import Layout, Swizzle
from tilec.ir.nodes import Launch
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

TARGET, SMALL = parse_target("gfx950"), parse_target("gfx942")
#: No trip, one, two whole ones, and a third of a quarter.
DEPTHS = (0, 32, 64, 72)


def product(div=8, threads=128, **config):
    dims = {"M": Guard(), "N": Guard(div=div), "K": Guard(div=div)}
    sizes = {"bM": 32, "bN": 64, "bK": 32, "threads": threads, **config}
    return kernel_of("gemm.py:matmul", dims, {"dtype": "float16"}, **sizes)


@tilec.jit
def asking(M, N, K, instruction):
    """A product whose copies are to take no registers."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 32), threads=128) as (bx, by):
            As, Bs = T.alloc_shared((32, 32), "float16"), T.alloc_shared((64, 32), "float16")
            acc = T.alloc_fragment((32, 64), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[by * 32, ko * 32], As, prefer_instruction=instruction)
                T.copy(B[bx * 64, ko * 32], Bs, prefer_instruction=instruction)
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, C[by * 32, bx * 64])

    return main


def asked(div=8, instruction="cp_async"):
    dims = {"M": Guard(), "N": Guard(), "K": Guard(div=div)}
    return elaborate(asking, name="asked", dims=dims, args={"instruction": instruction}, config={})


@pytest.fixture(scope="module")
def runs():
    """By whether B is stored across, the kernel with its oracle. A third of the threads' last round has no
    piece of A."""
    return {across: Beside(product(trans_B=across, bM=48), TARGET) for across in (False, True)}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("across", [False, True])
def test_trips(runs, across, depth):
    assert runs[across].run({"M": 61, "N": 72, "K": depth}) == []


@pytest.mark.parametrize(("target", "div", "depth"), [(SMALL, 8, 72), (SMALL, 2, 74), (TARGET, 2, 74)])
def test_pieces_of_4_bytes(target, div, depth):
    assert Beside(asked(div), target).run({"M": 45, "N": 70, "K": depth}) == []


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


def test_what_goes_straight_where_it_is_asked_for():
    assert kinds(asked(), SMALL) == kinds(asked(2), SMALL) == kinds(asked()) == ["global_load_lds"] * 2
    assert kinds(asked(), parse_target("gfx90a")) == ["global_load_lds"] * 2
    assert kinds(asked(instruction="sync"), SMALL) == ["waits"] * 2
    assert kinds(product(div=2)) == ["global_load_lds"] * 2, "pieces of 4 bytes, and no more at once"
    assert kinds(product(div=2), SMALL) == ["held ahead"] * 2


def test_what_goes_through_registers():
    assert kinds(product(), parse_target("gfx942")) == ["held ahead"] * 2
    assert kinds(product(div=4)) == ["held ahead"] * 2, "pieces of 8 bytes"
    assert kinds(product(threads=96)) == ["held ahead"] * 2, "no whole waves"
    assert kinds(product(bM=64, bN=256, bK=64, threads=512)) == ["held ahead"] * 2, "no room for two stages"
    assert kinds(product(num_stages=1)) == ["waits"] * 2


@pytest.mark.parametrize(
    ("name", "made", "copy"),
    [
        ("gfx950", product, "global_load_lds_dwordx4"),
        ("gfx942", asked, "global_load_lds_dword"),
        ("gfx90a", asked, "global_load_dword"),
    ],
)
def test_one_wait_a_trip(name, made, copy):
    """What is under way is waited for at the barrier of the next trip, not before a read of the tiles."""
    target = parse_target(name)
    lowered = backend_of(target).lower_kernel(lower(made(), target), target)
    text = images.assembly(lowered, target, "p")
    loop = text[text.index("  in Loop:") : text.rindex("  in Loop:")]
    found = re.findall(r"vmcnt\(0\)|s_barrier|global_load_lds_\w+|mfma(?=_f32)|global_load_dword", loop)
    assert [kind for kind, _ in itertools.groupby(found)] == ["mfma", "vmcnt(0)", "s_barrier", copy]


def test_a_tile_out_of_reach_is_refused(monkeypatch):
    monkeypatch.setattr("tilec.backends.hip.copies.emit.REACH", 4096)
    with pytest.raises(CompileError, match="Bs ends 4096 bytes or more from the start of shared memory"):
        backend_of(TARGET).lower_kernel(lower(product(), TARGET), TARGET)
