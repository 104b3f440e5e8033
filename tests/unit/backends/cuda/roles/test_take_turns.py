"""Two warpgroups that take the first products of trips in turns: which loops they do that in, and what they
wait for."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilec.language as T
from tilec.backends.cuda.passes.waits.place_shared import sharing
from tilec.backends.cuda.statement_roles.turns.take_turns import TakeTurns
from tilec.backends.pipeline import lower
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
PATH = Path(__file__).parents[2] / "pass_texts" / "sm_90a" / "take_turns.txt"
BEFORE, _, AFTER = PATH.read_text(encoding="utf-8").partition("\n======== becomes ========\n")
TOP = "reduce_max(S[0:+64, 0:+64], top[0:+64], axis=1, clear=False)"
WEIGHTS = "copy(S[0:+64, 0:+64], P_s[0:+64, 0:+64])"
LAST = "copy(acc[0:+64, 0:+128], O_s[0:+64, 0:+128])"
SPLIT = "            acc[i_2, j_1] = acc[i_2, j_1] * factor[i_2]"


def made(text: str) -> str:
    """What the pass makes of a kernel; nothing where it leaves it."""
    before = parse_kernel(text)
    found = format_kernel(TakeTurns().apply(before, SM90A))
    return "" if found == format_kernel(before) else found


def test_one_warpgroup_has_the_first_products_of_even_trips():
    assert made(BEFORE).count("trans_b=True, clear=True") == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("K_s_empty = alloc_barriers((2, 2))", "K_s_empty = alloc_barriers((2,))"),
        ("trans_b=True, clear=True", "trans_b=True, clear=False"),
        ("acc[i_2, j_1] * factor[i_2]", "acc[i_2, j_1 ^ 1] * factor[i_2]"),
        (WEIGHTS, ""),
        (LAST, "reduce_sum(acc[0:+64, 0:+128], old[0:+64], axis=1, clear=True)"),
        ("copy(top[0:+64], most[0:+64])", "copy(S[0:+64, 0:+64], P_s[0:+64, 0:+64])"),
        (TOP, f"{TOP}\n            copy(top[0:+64], most[0:+64])"),
        (TOP, f"{TOP}\n            copy(acc[0:+64, 0:+64], S[0:+64, 0:+64])"),
        ("thread_group(0, 256)", "thread_group(0, 128)"),
    ],
    ids=[
        "one-stage",
        "sums-go-on",
        "neighbours",
        "weights-of-before",
        "sums-of-columns",
        "tile-for-all",
        "stores-in-trips",
        "reads-results",
        "one-warpgroup",
    ],
)
def test_other_loops_stay_as_they_are(old: str, new: str):
    assert old in BEFORE
    assert made(BEFORE.replace(old, new)) == ""


NARROW = BEFORE.replace("128)", "64)").replace(":+128", ":+64")
OTHER = BEFORE.replace("0:+128], K_s_full[k % 2])", "0:+128], R_s_full[k % 2])")


def test_columns_that_are_no_operands_alone_are_shared():
    """Half a slab of 128 bytes is none that wgmma finds: mma.sync would read it, warp by warp."""
    assert made(NARROW) == ""


def test_other_rings_stay_whole():
    found = made(OTHER)
    assert "told" in found
    assert "K_s_0" not in found


def test_a_group_waits_for_the_part_that_it_multiplies():
    text = made(BEFORE)
    for number in (0, 1):
        assert f"barrier_wait(K_s_full_{number}" in text
        assert text.count(f"give_back(K_s_empty_{number}") == 2 + number
    assert "K_s_empty_0 = alloc_barriers((1, 1))" in text


def test_rows_are_told_ahead_of_weights_and_heard_ahead_of_what_they_scale():
    text = made(BEFORE)
    told = text.index("copy(factor[0:+64], factor_told")
    assert told < text.index("barrier_arrive(told[0]") < text.index("exp2(S[") < text.index("copy(P_s_1[")
    heard = text.index("copy(factor_told")
    weights = text.index("barrier_wait(told[", heard)
    assert heard < text.index("acc[", heard) < weights < text.index("gemm(P_s[", heard)


def test_what_only_the_next_trip_reads_is_told_too():
    text = made(BEFORE.replace("copy(top[0:+64], most[0:+64])", ""))
    assert text.count("top_told") == 7  # a tile for each, told by both, heard in three places


def test_groups_meet_at_a_barrier_in_shared_memory():
    text = made(BEFORE)
    assert 'sync("threads"' not in text
    assert text.count("barrier_arrive(told[4])\n        barrier_wait(told[4], told_met") == 2


def test_what_is_staged_behind_the_meeting_takes_the_bytes_of_a_ring():
    launch = lower(parse_kernel(BEFORE), SM90A).launches[0]
    names = {
        str(tile.name): {str(other.name) for other in found} for tile, found in sharing(launch.body).items()
    }
    assert names["O_s"] & {"K_s_0", "K_s_1", "R_s"}


def test_who_hears_waits_for_no_product_of_its_own():
    text = format_kernel(lower(parse_kernel(BEFORE), SM90A))
    group = text[text.index("thread_group(128, 128)") :]
    before, _, behind = group.partition("barrier_wait(told[0]")
    assert before.count("tile=warp_tile") == 3  # two parts of K_s, and R_s
    assert "wgmma_wait" not in before
    assert "wgmma_wait(1" in behind[: behind.index("barrier_arrive(told[1]")]


@T.prim_func
def queries_gradient(
    Q: T.Tensor((256, 128), "float16"), K: T.Tensor((256, 128), "float16"),
    V: T.Tensor((256, 128), "float16"), dO: T.Tensor((256, 128), "float16"),
    lse: T.Tensor((256,), "float32"), delta: T.Tensor((256,), "float32"), dQ: T.Tensor((256, 128), "float16"),
):  # fmt: skip
    with T.Kernel(4, threads=256) as bx:
        q, do, k, v = (T.alloc_shared((64, 128), "float16") for _ in range(4))
        s, dp = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, 64), "float32")
        ds, dq = T.alloc_fragment((64, 64), "float16"), T.alloc_fragment((64, 128), "float32")
        rows, less = T.alloc_fragment((64,), "float32"), T.alloc_fragment((64,), "float32")
        T.copy(Q[bx * 64, 0], q)
        T.copy(dO[bx * 64, 0], do)
        T.copy(lse[bx * 64], rows)
        T.copy(delta[bx * 64], less)
        T.clear(dq)
        for t in T.Pipelined(4, num_stages=2):
            T.copy(K[t * 64, 0], k)
            T.copy(V[t * 64, 0], v)
            T.clear(s)
            T.clear(dp)
            T.gemm(q, k, s, transpose_B=True)
            T.gemm(do, v, dp, transpose_B=True)
            for i, j in T.Parallel(64, 64):
                p = T.exp2(s[i, j] * 0.1 - rows[i])
                ds[i, j] = p * (dp[i, j] - less[i]) * 0.5
            T.gemm(ds, k, dq)
        T.copy(dq, dQ[bx * 64, 0])


def test_weights_in_a_fragment_of_the_authors_own_are_computed_by_both() -> None:
    """They are there already, so that nobody allocates them again."""
    kernel = elaborate(queries_gradient, name="kernel", dims={}, args={}, config={})
    assert "told" not in format_kernel(lower(kernel, SM90A, until="take_turns"))
