"""Trips that issue the products of two trips at once wait for the loads of both in front of one fence."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.statement_roles.trips.fence_once import waited_for_first
from tilec.ir.nodes import Block, walk
from tilec.ir.text.parser import parse_kernel


def waits(*words: str) -> Block:
    """Waits of these kinds for two loads, and what stands between them."""
    first, second = words
    text = [
        'kernel("kernel")',
        "with launch(1, threads=(160, 1, 1)) as (bx,):",
        "    full = alloc_barriers((128, 128))",
        '    sums = alloc(float32, (64, 64), "local.fragment")',
        f"    {first}(full[0], 0)",
        "    parity = bx % 2",
        "    fill(sums[0:+64, 0:+64], 0.0)",
        f"    {second}(full[1], parity)",
    ]
    return parse_kernel("\n".join(text) + "\n").launches[0].body[2:]


def kinds(block: Block) -> list[str]:
    """The kinds of statements."""
    return [type(stmt).__name__ for stmt in walk(block)]


def test_one_fence_stands_behind_the_waits_for_both_trips() -> None:
    first, *rest = waits("wait_landed", "wait_landed")
    head, late = waited_for_first((first,), tuple(rest))
    assert kinds(head) == ["Bind", "WaitPhase", "WaitLanded"]
    assert kinds(late) == ["Fill"]


@pytest.mark.parametrize("words", [("barrier_wait", "wait_landed"), ("wait_landed", "barrier_wait")])
def test_waits_of_which_one_has_no_fence_stay_where_they_are(words: tuple[str, str]) -> None:
    first, *rest = waits(*words)
    assert waited_for_first((first,), tuple(rest)) == ((first,), tuple(rest))


def test_waits_stay_behind_what_gives_their_names() -> None:
    first, bind, fill, wait = waits("wait_landed", "wait_landed")
    head = (first, bind)
    assert waited_for_first(head, (fill, wait)) == (head, (fill, wait))
