"""Tiles of the next trip in registers, on AMD's and Apple's GPUs: right at every count of trips and at ragged
ends, under way while threads meet, and said."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from emulated import Beside, kernel_of, without
from metal_source import TARGET as METAL
from metal_source import OnMetal

import tilec
import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.hip.codegen import images
from tilec.backends.pipeline import lower
from tilec.errors import EmulationError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Launch
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

CHIPS = ("gfx942", "gfx1100")
#: No trip, one, two whole ones, and a third of a quarter.
DEPTHS = (0, 32, 64, 72)


@tilec.jit(out_idx=[-1])
def looked_up(M, N, K, num_stages=2, leave=False, keep=False, stored="float16"):
    """A product of rows that a table names; an author may leave a trip, or read what the block wrote."""

    @T.prim_func
    def main(
        rows: T.Tensor((16,), "int32"),
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), stored),
        C: T.Tensor((16, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 32), threads=64) as bx:
            As = T.alloc_shared((16, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((16, 32), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, 32), num_stages=num_stages):
                for i, j in T.Parallel(16, 32):
                    As[i, j] = T.if_then_else(ko * 32 + j < K, A[rows[i], ko * 32 + j], T.float16(0))
                T.copy(B[bx * 32, ko * 32], Bs)
                if leave and ko == 7:
                    continue
                T.gemm(As, Bs, acc, transpose_B=True)
            if keep:
                T.copy(acc, C[0, bx * 32])
                for i, j in T.Parallel(16, 32):
                    acc[i, j] = C[15 - i, bx * 32 + 31 - j]
            T.copy(acc, C[0, bx * 32])

    return main


def made(**args):
    dims = {"M": Guard(eq=5), "N": Guard(), "K": Guard(div=8)}
    return elaborate(looked_up, name="kernel", dims=dims, args=args, config={})


def said(kernel, chip):
    """The loads of a kernel by what they fill, and the notes of its launch."""
    (launch,) = (stmt for stmt in lower(kernel, parse_target(chip)).body if isinstance(stmt, Launch))
    kinds = ("held ahead", "waits")
    return {road.statement[-2:]: road for road in launch.roads if road.kind in kinds}, launch.notes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By family, the kernel with its oracle."""
    kernel, folder = made(), tmp_path_factory.mktemp("held")
    found = {chip: Beside(kernel, parse_target(chip)) for chip in CHIPS}
    return found | {"metal3": Beside(kernel, METAL, run=OnMetal(kernel, folder=Path(folder)))}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", [*CHIPS, "metal3"])
def test_trips(runs, name, depth):
    assert runs[name].run({"M": 5, "N": 40, "K": depth}) == []


@pytest.mark.parametrize("which", range(2))
def test_each_barrier_of_a_trip_counts(which):
    kernel, chip = made(), parse_target("gfx942")
    lowered = without(kernel, chip, "tilec_sync_shared", which=which)
    with pytest.raises(EmulationError):
        Beside(kernel, chip, lowered=lowered).run({"M": 5, "N": 40, "K": 72})


def test_what_is_held():
    roads, notes = said(made(), "gfx942")
    assert roads["As"].instruction == "held in 4 registers of a thread, 1 trip ahead"
    assert roads["Bs"].instruction == "held in 8 registers of a thread, 1 trip ahead"
    assert notes == ()
    _, notes = said(made(num_stages=4), "gfx942")
    assert notes == ("num_stages = 4 asks for 3 trips ahead: registers hold 1",)


def test_what_waits():
    for road in said(made(num_stages=1), "gfx1100")[0].values():
        assert road.instruction == "loaded in the trip that uses it: num_stages = 1 keeps none ahead"
    for road in said(made(leave=True), "gfx1100")[0].values():
        assert road.loss.condition == "a trip may end early, by continue"


def test_what_changes_its_type_waits():
    road = said(made(stored="float32"), "gfx942")[0]["Bs"]
    assert road.loss.condition.startswith("what is loaded as float32 is made float16 at once")


def test_registers_are_not_filled():
    """Of 64 rows and columns a thread has 32 sums on gfx1100, of four times as many it would have 128."""
    few, many = (
        kernel_of("gemm.py:matmul", {each: Guard() for each in "MNK"}, {"dtype": "float16"}, bM=size, bN=size)
        for size in (64, 128)
    )
    assert {road.kind for road in said(few, "gfx1100")[0].values()} == {"held ahead"}
    for road in said(many, "gfx1100")[0].values():
        assert road.loss.condition.endswith("in 32 registers, 0 are left for that")


def before_products(kernel):
    """On gfx1100, what a trip does behind its loads ahead until it multiplies."""
    target = parse_target("gfx1100")
    lowered = backend_of(target).lower_kernel(lower(kernel, target), target)
    text = images.assembly(lowered, target, "p")
    in_loop = re.search(r"^\.LBB\w+: +;   in Loop.*?(?=v_wmma)", text, re.MULTILINE | re.DOTALL)
    return in_loop[0]


def test_loads_stay_under_way_while_threads_meet():
    found = before_products(made())
    assert "s_barrier" in found
    assert "vmcnt" not in found


def test_barriers_order_global_memory_where_threads_pass_it_on():
    assert re.search(r"s_waitcnt vmcnt\(0\).*\n\ts_barrier", before_products(made(keep=True)))


def turned(N, dtype="float32"):
    """Each 64 elements of a row from the last to the first."""

    @T.prim_func
    def main(X: T.Tensor((2, N), dtype), Y: T.Tensor((2, N), dtype)):
        with T.Kernel(2, threads=32) as b:
            row = T.alloc_shared((64,), dtype)
            for k in T.serial(T.ceildiv(N, 64)):
                T.copy(X[b, k * 64], row)
                for j in T.Parallel(64):
                    if k * 64 + j < N:
                        Y[b, k * 64 + j] = row[63 - j]

    return main


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_words_that_move_are_the_elements_that_were_loaded(tmp_path: Path, dtype: str) -> None:
    kernel = elaborate(turned, name="turned", dims={"N": Guard()}, args={"dtype": dtype}, config={})
    given = np.arange(2 * 192).reshape(2, 192).astype(dtype)
    found = np.zeros_like(given)
    OnMetal(kernel, tmp_path)([given, found], {"N": 192})
    assert (found == given.reshape(2, 3, 64)[:, :, ::-1].reshape(2, 192)).all()
