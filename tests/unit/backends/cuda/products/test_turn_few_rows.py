"""Products of few rows: which launches compute them transposed, and what keeps others from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.backends.cuda.statement_roles.operands.turn_few_rows import TurnFewRows
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Gemm, Launch, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
PATH = Path(__file__).parents[2] / "pass_texts" / "sm_90a" / "turn_few_rows.txt"
TEXT = PATH.read_text(encoding="utf-8").partition("\n======== becomes ========\n")[0]
TOP = "reduce_max(s[0:+16, 0:+64], most[0:+16], axis=1, clear=True)"
SUMS = "s[0:+16, 0:+64]"
SCORES = 's = alloc(float32, (16, 64), "local.fragment")'
SUMMED = 'acc = alloc(float32, (16, 128), "local.fragment")'
LAST = "copy(acc[0:+16, 0:+128], O[0:+16, 0:+128])"
KEYS = "copy(K[k * 64:+64, 0:+128], k_s[0:+64, 0:+128])"


def turned(text: str) -> Launch:
    """The launch as the pass leaves it."""
    return TurnFewRows().apply(parse_kernel(text), SM90A).launches[0]


def sums(launch: Launch) -> list[tuple[int, ...]]:
    """The shapes of what products of a launch add to."""
    found = (stmt.c.buffer for stmt in walk(launch.body) if isinstance(stmt, Gemm))
    return [tuple(int(size) for size in buffer.shape) for buffer in found]


def test_sums_of_few_rows_are_transposed():
    launch = turned(TEXT)
    assert sums(launch) == [(64, 16), (128, 16)]
    assert launch.threads == (128, 1, 1)
    assert "s, acc: computed transposed, as wgmma takes 64 rows" in launch.notes


def test_weights_in_a_tile_of_the_author_stay_as_they_lie():
    tile = TEXT.replace(
        'p = alloc(float16, (16, 64), "local.fragment")', 'p = alloc(float16, (16, 64), "shared.dyn")'
    )
    second = [stmt for stmt in walk(turned(tile).body) if isinstance(stmt, Gemm)][1]
    assert (second.trans_a, second.trans_b) == (True, True)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (TOP, f"{TOP}\n        scan_sum({SUMS}, {SUMS}, axis=1)", "Scan takes s as it lies"),
        (SCORES, f'{SCORES[:-1]}, asked="16:64, 64:1@reg")', "T.annotate_layout says where s lies"),
        (KEYS, f"{KEYS[:-1]}, hints={{'disable_tma': True}})", "disable_tma keeps a load from TMA"),
        (SUMMED, SUMMED.replace("local.fragment", "shared.dyn"), "sums are in shared memory"),
    ],
    ids=["scan", "asked", "no-tma", "shared"],
)
def test_sums_stay_where_something_takes_them_as_they_lie(old: str, new: str, reason: str):
    assert old in TEXT
    launch = turned(TEXT.replace(old, new).replace("(32, 1, 1)", "(128, 1, 1)"))
    assert sums(launch) == [(16, 64), (16, 128)]
    assert [note for note in launch.notes if note.endswith(f"not computed transposed, as {reason}")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("64", "32"),
        ("as (bx,)", "as ((bx,), (tx, ty, tz))"),
        (SCORES, f'{SCORES[:-1]}, asked="16:64, 64:1@reg")'),
    ],
    ids=["few-columns", "names-threads", "asked"],
)
def test_launches_that_are_no_wgmma_then_stay_as_they_are(old: str, new: str):
    assert old in TEXT
    launch = turned(TEXT.replace(old, new))
    assert launch.threads == (32, 1, 1)
    assert not launch.notes


def test_few_threads_alone_become_a_warpgroup():
    launch = turned(TEXT.replace("16", "64").replace("float64", "float16"))
    assert sums(launch) == [(64, 64), (64, 128)]
    assert launch.notes == ("128 threads where 32 are asked for: wgmma takes as many",)


SUM = """reduce_sum(s[0:+16, 0:+64], part[0:+16], axis=1, clear=True)
        for i in parallel(16):
            total[i] = total[i] * most[i] + part[i]
        copy(s[0:+16, 0:+64], p[0:+16, 0:+64])"""
VECTORS = """most = alloc(float32, (16,), "local.fragment")
    part = alloc(float32, (16,), "local.fragment")
    total = alloc(float32, (16,), "local.fragment")
    fill(total[0:+16], 0.0)"""


@pytest.mark.parametrize("branch", [False, True], ids=["every-trip", "in-a-branch"])
def test_sums_across_warps_are_taken_behind_the_loop(branch: bool):
    text = TEXT.replace("copy(s[0:+16, 0:+64], p[0:+16, 0:+64])", SUM)
    text = text.replace('most = alloc(float32, (16,), "local.fragment")', VECTORS)
    text = text.replace(LAST, f"{LAST}\n    copy(total[0:+16], L[0:+16])")
    text = text.replace("with launch", 'L = tensor(float32, (16,), ("16",), access="out")\nwith launch')
    begin, end = text.index("        copy(K["), text.index(f"    {LAST}")
    if branch:
        inside = "".join(f"    {line}\n" for line in text[begin:end].splitlines())
        text = f"{text[:begin]}        if k > 2:\n{inside}{text[end:]}"
    made = format_kernel(lower(parse_kernel(text), SM90A, until="sum_behind_loops"))
    assert made.count("reduce_sum") == 1
    assert "\n        reduce_sum(s_sums[0:+64, 0:+16], total[0:+16], axis=0, clear=True)" in made


@pytest.mark.parametrize(("keys", "rotated"), [(64, False), (192, True)], ids=["blocks-beside", "one-block"])
def test_trips_whose_threads_put_weights_into_shared_memory_follow_each_other(keys: int, rotated: bool):
    text = TEXT.replace("(32, 1, 1)", "(128, 1, 1)").replace("dim(int32, div=64)", f"dim(int32, div={keys})")
    text = text.replace("64", str(keys))
    (launch,) = lower(parse_kernel(text), SM90A, until="rotate_trips").launches
    assert any("issues its first product" in note for note in launch.notes) == rotated
