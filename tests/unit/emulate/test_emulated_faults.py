"""Faults planted in device code are found, each with the statement that is to blame."""

from __future__ import annotations

import re

import pytest
from emulated import SM80, Beside, edited, kernel_of, replacing, with_args, without
from tvm import tirx

from tilec.errors import EmulationError
from tilec.ir.guards import Guard
from tilec.ir.nodes import TensorParam

SMALL = {"bM": 64, "bN": 64, "bK": 32, "num_stages": 3, "threads": 128}
DIMS = {"M": 64, "K": 128, "N": 64}
GUARDS = {"M": Guard(), "K": Guard(div=8), "N": Guard(div=8)}


@pytest.fixture(scope="module")
def product():
    return kernel_of("gemm.py:matmul", GUARDS, {"dtype": "float16"}, **SMALL)


def failure(kernel, lowered, dims=DIMS, target=SM80) -> str:
    """The message of the emulation error."""
    with pytest.raises(EmulationError) as found:
        Beside(kernel, target, lowered=lowered).run(dims)
    return str(found.value)


def test_kernel_without_a_fault_runs(product):
    assert Beside(product, SM80).run(DIMS) == []


def test_missing_barrier(product):
    text = failure(product, without(product, SM80, "cta_sync"))
    assert "race: " in text
    assert "cp.async of warp" in text
    assert "ldmatrix" in text
    assert re.search(r"where: .*gemm\.py:\d+", text)


def test_wait_that_leaves_too_many_groups(product):
    def later(stmt):
        return with_args(stmt, lambda args: [tirx.const(2, "int32"), *args[1:]])

    text = failure(product, replacing(product, SM80, "cp_async_wait_group", later))
    assert "with nothing that orders the two" in text


def test_missing_wait(product):
    text = failure(product, without(product, SM80, "cp_async_wait_group"))
    assert "with nothing that orders the two" in text


def test_missing_commit(product):
    text = failure(product, without(product, SM80, "cp_async_commit_group"))
    assert "with nothing that orders the two" in text


def test_missing_copy(product):
    text = failure(product, without(product, SM80, "tilec_cp_async_16"))
    assert "which nothing has written" in text


def test_copy_out_of_bounds(product):
    def beyond(stmt):
        def change(args):
            load = args[2].args[0]
            place = load.source.ptr_to([load.indices[0] + tirx.const(1 << 16, "int64")])
            return [*args[:2], place, *args[3:]]

        return with_args(stmt, change)

    text = failure(product, replacing(product, SM80, "tilec_cp_async_16", beyond))
    assert "a read of 16 bytes at byte" in text
    assert "of A, which has 16384" in text
    assert "tilec_cp_async_16" in text


def test_store_out_of_bounds():
    kernel = kernel_of("elementwise.py:scale_add", {"n": Guard()}, {"dtype": "float32"}, block=1024)
    out = next(
        param.name for param in kernel.params if isinstance(param, TensorParam) and param.access == "out"
    )

    def always(stmt):
        if isinstance(stmt, tirx.IfThenElse) and f"{out}[" in str(stmt.then_case):
            return stmt.then_case
        return None

    text = failure(kernel, edited(kernel, SM80, always), {"n": 1000})
    assert f"a write of 4 bytes at byte 4000 of {out}, which has 4000" in text


def barriers_below(limit: int):
    """An edit: threads from ``limit`` on pass every barrier by."""
    seen = []

    def narrowed(stmt):
        if isinstance(stmt, tirx.AttrStmt) and "threadIdx.x" in str(stmt.node):
            seen.append(stmt.node.var)
        if "cta_sync" in str(stmt) and isinstance(stmt, tirx.Evaluate):
            return tirx.IfThenElse(tirx.LT(seen[0], tirx.const(limit, "int32")), stmt, None)
        return None

    return narrowed


def test_barrier_in_a_branch():
    kernel = kernel_of("norm.py:rmsnorm", {"M": Guard(), "N": Guard(eq=384), "ldx": Guard(div=8)},
                       {"dtype": "float16"}, rows=1)  # fmt: skip
    text = failure(kernel, edited(kernel, SM80, barriers_below(64)), {"M": 1, "N": 384, "ldx": 384})
    assert "deadlock" in text or "race" in text


def test_barrier_for_a_part_of_a_warp():
    kernel = kernel_of("norm.py:rmsnorm", {"M": Guard(), "N": Guard(eq=384), "ldx": Guard(div=8)},
                       {"dtype": "float16"}, rows=1)  # fmt: skip
    text = failure(kernel, edited(kernel, SM80, barriers_below(100)), {"M": 1, "N": 384, "ldx": 384})
    assert "is run by a part of the lanes of warp 3" in text
