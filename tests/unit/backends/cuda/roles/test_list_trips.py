"""Trips of attention that a tensor picks are listed by a launch in front; others stay branches."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.attention.nodes import AttentionRoles
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.ir.nodes import For, If, Launch, Scan, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
TEXT = """
kernel("attention")
N = dim(int32, div=128)
n = dim(int32)
Q = tensor(float16, (N, 64), ("N", "64"), access="in")
K = tensor(float16, (N, 64), ("N", "64"), access="in")
mask = tensor(int8, (n, n), ("n", "n"), access="in")
O = tensor(float16, (N, 64), ("N", "64"), access="out")
with launch((N + 127) // 128, threads=(256, 1, 1)) as (bx,):
    Qs = alloc(float16, (128, 64), "shared.dyn")
    Ks = alloc(float16, (64, 64), "shared.dyn")
    S = alloc(float32, (128, 64), "local.fragment")
    P = alloc(float16, (128, 64), "local.fragment")
    O_acc = alloc(float32, (128, 64), "local.fragment")
    copy(Q[bx * 128:+128, 0:+64], Qs[0:+128, 0:+64])
    fill(O_acc[0:+128, 0:+64], 0.0)
    row = bx
    for k in pipelined({start}, {stop}, num_stages=2):
        {names}
        if {cond}:
            copy(K[k * 64:+64, 0:+64], Ks[0:+64, 0:+64])
            gemm(Qs[0:+128, 0:+64], Ks[0:+64, 0:+64], S[0:+128, 0:+64], trans_b=True, clear=True)
            copy(S[0:+128, 0:+64], P[0:+128, 0:+64])
            gemm(P[0:+128, 0:+64], Ks[0:+64, 0:+64], O_acc[0:+128, 0:+64], clear=False)
        {other}
    copy(O_acc[0:+128, 0:+64], O[bx * 128:+128, 0:+64])
"""
PLAIN = {
    "start": "0",
    "stop": "N // 64",
    "names": "picked = mask[row, k]",
    "cond": "picked != int8(0)",
    "other": "",
}


def launches(**change: str) -> list[Launch]:
    """Those with roles, and those in front of them."""
    kernel = lower(parse_kernel(TEXT.format(**{**PLAIN, **change})), SM90A, until="assign_roles")
    return list(kernel.launches)


@pytest.mark.parametrize(
    "change", [{}, {"names": "picked = mask[row, k] * mask[0, k]"}, {"stop": "(bx + 1) * 2"}]
)
def test_trips_that_a_tensor_picks_are_a_list(change: dict[str, str]) -> None:
    before, taken = launches(**change)
    assert any(isinstance(stmt, Scan) for stmt in walk(before.body))
    roles = roles_of(taken, AttentionRoles)
    assert not any(isinstance(stmt, If) for stmt in walk(roles.producer))
    assert roles.order.counter is not None
    assert roles.order.longest is None


def test_every_role_reads_its_trips_from_the_list() -> None:
    text = format_kernel(lower(parse_kernel(TEXT.format(**PLAIN)), SM90A, until="assign_roles"))
    producer = text.partition("with producer:")[2].partition("with consumer:")[0]
    assert "end = count[cast(int64, bx_1)]" in producer
    assert "k = trips[cast(int64, bx_1), cast(int64, number)]" in producer
    assert "mask[" not in text.partition("attention_roles(")[2]


def test_the_list_has_room_for_the_most_trips_of_a_block() -> None:
    kernel = parse_kernel(TEXT.format(**{**PLAIN, "stop": "(bx + 1) * 2"}))
    text = format_kernel(lower(kernel, SM90A, until="assign_roles"))
    shape = text.partition("trips = alloc(int32, (")[2].partition('), "global.workspace"')[0]
    assert shape == "cast(int64, (N + 127) // 128), cast(int64, ((N + 127) // 128 - 1 + 1) * 2)"


@pytest.mark.parametrize(
    "change",
    [
        {"cond": "k % 2 != 0"},
        {"start": "1"},
        {"stop": "N // 64 - bx"},
        {"stop": "if_then_else(bx < 4, (bx + 1) * 2, 0)"},
        {"names": "picked = cast(int8, O[k, 0])"},
        {"other": "else:\n            fill(O_acc[0:+128, 0:+64], 0.0)"},
    ],
    ids=["no tensor", "not from 0", "no bound", "a choice", "what it writes", "two branches"],
)
def test_other_branches_stay(change: dict[str, str]) -> None:
    (launch,) = launches(**change)
    assert launch.strategy is None
    assert any(isinstance(stmt, If) for stmt in walk(launch.body))


def test_trips_of_several_steps_are_looked_at_by_one_warp() -> None:
    before, _ = launches()
    (loop,) = (stmt for stmt in before.body if isinstance(stmt, For))
    assert before.threads == (32, 1, 1)
    assert str(loop.stop) == "(N // 64 + 127) // 128"
