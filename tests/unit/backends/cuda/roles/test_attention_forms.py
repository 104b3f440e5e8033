"""What attention's strategy takes beyond plain tiles and masks: pages, biases, scores that are computed and
masked at once, sums that start from something."""

from __future__ import annotations

import pytest
from told import no_roles

from tilec.backends.cuda.attention.emit.share_loads import shared_loads
from tilec.backends.cuda.attention.nodes import (
    AsyncProduct,
    AttentionRoles,
    RingPut,
    RingRelease,
    RingWait,
    RowMask,
    TripLoop,
    Turn,
    Vote,
)
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Bind, Block, If, Kernel, Stmt, walk
from tilec.ir.text.expr_printer import format_expr
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
WHOLE = (
    "copy(K[number:+1, 0:+64, 0:+64], Ks[0:+64, 0:+64])",
    "copy(V[number:+1, 0:+64, 0:+64], Vs[0:+64, 0:+64])",
)
FIRST = "gemm(Qs[0:+128, 0:+64], Ks[0:+64, 0:+64], S[0:+128, 0:+64], trans_b=True, clear={})"


def pages(size: int) -> list[str]:
    """Loads of a trip's tiles in pages of ``size`` rows."""
    return [
        f"for p in serial(0, {64 // size}, 1):",
        f"    number = table[k * {64 // size} + p]",
        f"    copy(K[number:+1, 0:+{size}, 0:+64], Ks[p * {size}:+{size}, 0:+64])",
        f"    copy(V[number:+1, 0:+{size}, 0:+64], Vs[p * {size}:+{size}, 0:+64])",
    ]


def attention(
    loads: tuple[str, ...] | list[str] = ("number = table[k]", *WHOLE),
    begin: tuple[str, ...] = (FIRST.format(True),),
    scores: tuple[str, ...] = (),
) -> Kernel:
    """Weights of scores that are no softmax, which asks for a maximum and a sum beside them."""
    trip = [
        *loads,
        *begin,
        *scores,
        "for i, j in parallel(128, 64):",
        "    S[i, j] = exp2(S[i, j])",
        "copy(S[0:+128, 0:+64], P[0:+128, 0:+64])",
        "gemm(P[0:+128, 0:+64], Vs[0:+64, 0:+64], O_acc[0:+128, 0:+64], clear=False)",
    ]
    text = [
        'kernel("attention")',
        "N = dim(int32)",
        "n = dim(int32)",
        'Q = tensor(float16, (N, 64), ("N", "64"), access="in")',
        'K = tensor(float16, (n, 64, 64), ("n", "64", "64"), access="in")',
        'V = tensor(float16, (n, 64, 64), ("n", "64", "64"), access="in")',
        'B = tensor(float16, (N, 4096), ("N", "4096"), access="in")',
        'table = tensor(int32, (n,), ("n",), access="in")',
        'O = tensor(float16, (N, 64), ("N", "64"), access="out")',
        "with launch((N + 127) // 128, threads=(256, 1, 1)) as (bx,):",
        '    Qs = alloc(float16, (128, 64), "shared.dyn")',
        '    Ks = alloc(float16, (64, 64), "shared.dyn")',
        '    Vs = alloc(float16, (64, 64), "shared.dyn")',
        '    Bs = alloc(float16, (128, 64), "shared.dyn")' if any("Bs" in line for line in trip) else "",
        '    S = alloc(float32, (128, 64), "local.fragment")',
        '    P = alloc(float16, (128, 64), "local.fragment")',
        '    O_acc = alloc(float32, (128, 64), "local.fragment")',
        "    copy(Q[bx * 128:+128, 0:+64], Qs[0:+128, 0:+64])",
        "    fill(O_acc[0:+128, 0:+64], 0.0)",
        "    for k in pipelined(0, n, num_stages=2):",
        *(f"        {line}" for line in trip),
        "    copy(O_acc[0:+128, 0:+64], O[bx * 128:+128, 0:+64])",
    ]
    return parse_kernel("\n".join(filter(None, text)) + "\n")


def roles(kernel: Kernel, until: str | None = None) -> AttentionRoles:
    (launch,) = lower(kernel, SM90A, until=until).launches
    return roles_of(launch, AttentionRoles)


def trips(found: AttentionRoles) -> list[TripLoop]:
    """The loops of the consumers."""
    return [stmt for stmt in walk(found.consumer) if isinstance(stmt, TripLoop)]


@pytest.mark.parametrize("size", [8, 16, 32, 64])
def test_pages_go_to_one_stage_and_are_looked_up_in_front_of_the_wait_for_it(size: int) -> None:
    (loop,) = (stmt for stmt in walk(roles(attention(pages(size))).producer) if isinstance(stmt, TripLoop))
    puts = [stmt for stmt in loop.body if isinstance(stmt, RingPut)]
    assert [(str(put.ring.source.name), len(put.body)) for put in puts] == [
        ("Ks", 64 // size),
        ("Vs", 64 // size),
    ]
    assert all(isinstance(stmt, (Bind, RingPut)) for stmt in loop.body)
    assert [load.dst.start[1].value for load in puts[0].body] == list(range(0, 64, size))


@pytest.mark.parametrize(("size", "rings"), [(8, ["Vs"]), (32, ["Vs"]), (64, [])])
def test_a_second_thread_brings_every_other_tile_that_comes_in_pages(size: int, rings: list[str]) -> None:
    first, second = shared_loads(roles(attention(pages(size))).producer)
    assert filled(second) == rings
    assert filled(first) == [name for name in ("Qs", "Ks", "Vs") if name not in rings]


def filled(block: Block) -> list[str]:
    """The tiles that a block brings, in the order of their first loads."""
    puts = (stmt for stmt in walk(block) if isinstance(stmt, RingPut))
    return list(dict.fromkeys(str(stmt.ring.source.name) for stmt in puts))


@pytest.mark.parametrize(
    ("loads", "said"),
    [
        (pages(4), "For stands beside its products"),
        (["number = table[k]", WHOLE[0], *WHOLE], "Ks is not filled by one copy of a tensor"),
    ],
)
def test_parts_that_are_too_small_or_too_many_say_why(loads: list[str], said: str) -> None:
    (launch,) = lower(attention(loads), SM90A, until="assign_roles").launches
    assert launch.strategy is None
    assert said in str(no_roles(launch))


SLOPE = (
    "for i, j in parallel(128, 64):",
    "    seen = k * 64 + j <= bx * 128 + i",
    '    S[i, j] = if_then_else(seen, S[i, j] * 2.0 - 0.5 * cast(float32, i - j), float32("-inf"))',
)


def test_what_a_masking_loop_computes_stays_in_trips_without_the_mask() -> None:
    loops = trips(roles(attention(scores=SLOPE), until="split_masks"))
    assert [any(isinstance(stmt, RowMask) for stmt in loop.body) for loop in loops] == [False, True]
    sizes = [sum(isinstance(stmt, ThreadLoop) for stmt in loop.body) for loop in loops]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("at", ["table[i] == table[j]", "table[k * 64 + j] < 3"])
def test_what_tensors_say_of_elements_is_tested_alone_in_trips_without_the_mask(at: str) -> None:
    """Whether two tokens are of one document, whether one counts at all."""
    seen = f"k * 64 + j <= bx * 128 + i and {at}"
    scores = (SLOPE[0], f'    S[i, j] = if_then_else({seen}, S[i, j], float32("-inf"))')
    loops = trips(roles(attention(scores=scores), until="split_masks"))
    assert [RowMask in _kinds(loop) for loop in loops] == [False, True]
    tests = [[stmt for stmt in loop.body if "table" in str(stmt)] for loop in loops]
    assert [len(found) for found in tests] == [1, 1]
    assert "bx" not in str(tests[0][0].body[-1].value)


CHOICE = 'if_then_else({}, S[i, j] * 0.5, float32("-inf"))'
OTHER_WAY = 'if_then_else({}, float32("-inf"), S[i, j] * 0.5)'


@pytest.mark.parametrize(
    ("value", "votes", "in_front"),
    [
        (CHOICE.format("table[k * 64 + j] < 3"), 1, 0),
        (OTHER_WAY.format("table[k * 64 + j] == 0"), 1, 0),
        (CHOICE.format("table[bx * 128 + i] == table[k * 64 + j]"), 1, 1),
        (CHOICE.format("table[k * 64 + j] == table[bx * 128 + i]"), 1, 1),
        (OTHER_WAY.format("table[bx * 128 + i] != table[k * 64 + j]"), 1, 1),
        (CHOICE.format("table[bx * 128 + i] < 3 and table[k * 64 + j] < 3"), 1, 1),
        (CHOICE.format("table[bx * 128 + i] < table[k * 64 + j]"), 0, 0),
        (CHOICE.format("table[i + j] == 0"), 0, 0),
        (CHOICE.replace("S[i, j] * 0.5", "cast(float32, B[i, j])").format("table[k * 64 + j] < 3"), 0, 0),
    ],
)
def test_warps_vote_on_what_tensors_hide(value: str, votes: int, in_front: int) -> None:
    """Of columns beside each product, of rows in front of the loop."""
    scores = ("for i, j in parallel(128, 64):", f"    S[i, j] = {value}")
    found = roles(attention(scores=scores), until="vote_on_masks")
    (loop,) = trips(found)
    assert sum(isinstance(stmt, Vote) for stmt in loop.body) == votes
    assert sum(isinstance(stmt, Vote) for stmt in walk(found.consumer)) == votes + in_front
    branches = [stmt for stmt in loop.body if isinstance(stmt, If)]
    assert len(branches) == bool(votes)
    assert all(isinstance(stmt, ThreadLoop) for branch in branches for stmt in branch.then)


def test_a_mask_of_what_tensors_hold_stays_with_its_condition() -> None:
    """Elsewhere nothing is read."""
    scores = (
        *SLOPE[:2],
        '    S[i, j] = if_then_else(seen, S[i, j] + cast(float32, B[i, j]), float32("-inf"))',
    )
    assert not any(isinstance(stmt, RowMask) for stmt in walk(roles(attention(scores=scores)).consumer))


@pytest.mark.parametrize(("place", "masks"), [("bx * 128, bx % 8", [False, True]), ("bx * 128, bx", [False])])
def test_a_scale_of_all_elements_is_read_in_front_of_the_mask_where_it_is_there(
    place: str, masks: list[bool]
) -> None:
    scores = (
        *SLOPE[:2],
        f'    S[i, j] = if_then_else(seen, S[i, j] * cast(float32, B[{place}]), float32("-inf"))',
    )
    found = roles(attention(scores=scores), until="split_masks")
    masked = [any(isinstance(stmt, RowMask) for stmt in loop.body) for loop in trips(found)]
    assert masked == masks


BIAS = ("for i, j in parallel(128, 64):", "    S[i, j] = S[i, j] + cast(float32, Bs[i, j])")
BROUGHT = ["number = table[k]", "copy(B[bx * 128:+128, k * 64:+64], Bs[0:+128, 0:+64])", *WHOLE]


def test_a_bias_is_waited_for_where_it_is_read_and_goes_back_behind_that() -> None:
    found = roles(attention(BROUGHT, scores=BIAS))
    for body in (found.consumer[-5:], *(loop.body for loop in trips(found))):
        flat = [stmt for stmt in walk(body) if not isinstance(stmt, (If, TripLoop))]
        own = [stmt for stmt in flat if _of(stmt, "Bs")]
        assert [type(stmt) for stmt in own[:2]] == [RingWait, RingRelease]
    (loop,) = trips(found)
    begun = [stmt for stmt in loop.body if isinstance(stmt, (RingWait, Turn))]
    kinds = [str(stmt.ring.source.name) if isinstance(stmt, RingWait) else stmt.begin for stmt in begun]
    assert kinds == ["Ks", True, "Vs", False, "Bs"]
    assert all(
        stmt.meets for stmt in walk(found.consumer) if isinstance(stmt, RingRelease) and _of(stmt, "Bs")
    )


def test_blocks_that_share_a_bias_stand_side_by_side() -> None:
    grid = ("with launch((N + 127) // 128, ", "(bx,)"), ("with launch((N + 127) // 128, 4, 2, ", "(bx, h, b)")
    for row, axis in (("bx * 128", 1), ("bx * 128 + h * 512", 2), ("bx * 128 + h * 512 + b * 64", None)):
        text = format_kernel(attention(BROUGHT, scores=BIAS)).replace("B[bx * 128:", f"B[{row}:")
        for one, several in zip(*grid, strict=True):
            text = text.replace(one, several)
        order = roles(parse_kernel(text)).order
        assert (order.shared, order.has_sections) == (axis, axis is not None)


def _of(stmt: Stmt, tile: str) -> bool:
    return isinstance(stmt, (RingWait, RingRelease)) and str(stmt.ring.source.name) == tile


def test_a_tile_that_a_product_and_a_loop_read_is_none_of_this_strategy() -> None:
    scores = ("for i, j in parallel(128, 64):", "    S[i, j] = S[i, j] + cast(float32, Vs[0, j])")
    (launch,) = lower(attention(scores=scores), SM90A, until="assign_roles").launches
    assert "a shared tile is used outside of products" in str(no_roles(launch))


def test_trips_overlap_where_threads_write_what_a_sum_starts_from() -> None:
    hidden = "if_then_else(k * 64 + j > bx * 128 + i, -1.0, float32(0.0))"
    begin = ("for i, j in parallel(128, 64):", f"    S[i, j] = {hidden}", FIRST.format(False))
    bare, masked = trips(roles(attention(begin=begin), until="split_masks"))
    products = [Turn, AsyncProduct, AsyncProduct, Turn]
    assert _kinds(masked)[:6] == [ThreadLoop, RowMask, *products]
    assert _kinds(bare)[:4] == products
    starts = [_first(loop).clear for loop in (bare, masked)]
    assert [bool(clear.value) for clear in starts] == [True, False]


def _kinds(loop: TripLoop) -> list[type[Stmt]]:
    return [type(stmt) for stmt in loop.body if not isinstance(stmt, Bind)]


def _first(loop: TripLoop) -> AsyncProduct:
    return next(stmt for stmt in loop.body if isinstance(stmt, AsyncProduct))


def test_rows_that_hide_all_keys_keep_every_trip_of_their_tile_masked() -> None:
    scores = (
        "for i, j in parallel(128, 64):",
        "    hidden = bx * 128 + i >= N or k * 64 + j > bx * 128 + i",
        '    S[i, j] = if_then_else(hidden, float32("-inf"), S[i, j])',
    )
    found = roles(attention(scores=scores), until="split_masks")
    assert [RowMask in _kinds(loop) for loop in trips(found)] == [False, True]
    (cut,) = (stmt for stmt in walk(found.consumer) if isinstance(stmt, Bind) and stmt.var.name == "border")
    assert "select(N - bx * 128 + -127 > 0, " in format_expr(cut.value)


WINDOW = (
    "for i, j in parallel(128, 64):",
    "    distance = bx * 128 + i - (k * 64 + j)",
    '    S[i, j] = if_then_else(distance >= 0 and distance < 640, S[i, j], float32("-inf"))',
)


def test_a_window_masks_its_first_trips_and_its_last_ones() -> None:
    loops = trips(roles(attention(scores=WINDOW), until="split_masks"))
    masks = [[stmt for stmt in loop.body if isinstance(stmt, RowMask)] for loop in loops]
    assert [[stmt.begin is not None for stmt in found] for found in masks] == [[True], [], [False]]


def test_a_mask_of_first_keys_alone_ends_with_the_trips_that_have_them() -> None:
    scores = (*WINDOW[:2], '    S[i, j] = if_then_else(distance < 640, S[i, j], float32("-inf"))')
    loops = trips(roles(attention(scores=scores), until="split_masks"))
    assert [RowMask in _kinds(loop) for loop in loops] == [True, False]


@pytest.mark.parametrize(
    ("first", "stages", "handed_out"), [("max(0, bx * 2 - 2)", 4, False), ("0", 2, True)]
)
def test_tiles_of_short_windows_go_as_they_come_and_further_ahead(
    first: str, stages: int, handed_out: bool
) -> None:
    text = format_kernel(attention(tuple(line.replace("number", "k") for line in WHOLE)))
    text = text.replace("pipelined(0, n,", f"pipelined({first}, min(n, bx * 2 + 2),")
    text = text.replace("// 128, threads", "// 128, n, threads").replace("as (bx,)", "as (bx, by)")
    kernel = parse_kernel(text)
    launch = lower(kernel, SM90A).launches[-1]
    found = roles_of(launch, AttentionRoles)
    assert {str(ring.source.name): ring.stages for ring in found.rings} == {
        "Qs": 2,
        "Ks": stages,
        "Vs": stages,
    }
    assert (found.order.counter is not None) == handed_out
