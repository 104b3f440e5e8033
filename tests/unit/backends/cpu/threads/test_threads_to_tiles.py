"""What thread-level code becomes on a CPU: golden text of the loops over threads, and where there is none."""

from __future__ import annotations

import pytest

from tilec.backends.pipeline import lower
from tilec.errors import UnsupportedError
from tilec.ir.nodes import Alloc, Kernel, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

HEAD = """\
kernel("threads")
x = tensor(float32, (1024,), ("1024",), access="in")
y = tensor(float32, (1024,), ("1024",), access="out")
"""

TREE = """\
with launch(16, threads=(64, 1, 1)) as ((bx,), (tx, ty, tz)):
    s = alloc(float32, (64,), "shared.dyn")
    mine = alloc(float32, (1,), "local.var")
    i = bx * 64 + tx
    mine[0] = x[i] * 2.0
    s[tx] = mine[0]
    sync("threads")
    for p in serial(0, 6, 1):
        if tx < 32 >> p:
            s[tx] = s[tx] + s[tx + (32 >> p)]
        sync("threads")
    y[i] = s[0] - mine[0]
"""

PARTED = """\
with launch(16, threads=(32, 2, 1)) as ((bx,), (tx, ty, tz)):
    v = x[bx * 64 + ty * 32 + tx]
    n = x[bx]
    out = alloc(float32, (1,), "local")
    if v > n:
        w = lane_shfl_up(v, 1)
        out[0] = w
    out[0] = thread_reduce(lambda a, b: max(a, b), 0.0, out[0], tx > 3, axes=(0,))
    if n > 0.0 and tx < 4:
        sync("warp")
        y[bx * 64 + tx * 2 + ty] = out[0]
"""

HAZARDS = """\
with launch(1, threads=(64, 1, 1)) as ((bx,), (tx, ty, tz)):
    s = alloc(float32, (64,), "shared.dyn")
    for k in serial(0, 16, 1):
        s[tx] = x[k * 64 + tx]
        s[tx] = s[tx] + 1.0
        y[k * 64 + tx] = s[63 - tx]
    if tx == 5:
        for j in serial(1, 64, 1):
            s[0] = s[0] + s[j]
        y[0] = s[0]
"""

PROGRAMS = {"tree": TREE, "parted": PARTED, "hazards": HAZARDS}


def lowered(body: str) -> Kernel:
    """The kernel after the pass."""
    return lower(parse_kernel(HEAD + body), parse_target("x86-64-v3"), until="threads_to_tiles")


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_over_threads(name, golden):
    golden(format_kernel(lowered(PROGRAMS[name])))


def test_launches_without_threads_stay():
    body = TREE.replace("((bx,), (tx, ty, tz))", "(bx,)").split("    s[tx]")[0].replace(" + tx", "")
    assert format_kernel(lowered(body)) == HEAD + body


def test_storage_that_no_meeting_parts_stays_with_its_thread():
    body = TREE.split("    s[tx]")[0] + "    y[i] = mine[0]\n"
    found = [str(stmt.buffer.scope()) for stmt in walk(lowered(body).body) if isinstance(stmt, Alloc)]
    assert found == ["shared.dyn", "local.var"]


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (TREE.replace("for p in serial(0, 6, 1)", "for p in serial(0, tx, 1)"), "equally often"),
        (
            TREE.replace(
                '        sync("threads")\n    y', '        if tx < 9:\n            sync("threads")\n    y'
            ),
            "some threads",
        ),
        (PARTED.replace('sync("warp")', "c = lane_block_or(v > 0.0)"), "T.syncthreads_or"),
        (HAZARDS.replace("    if tx == 5:", "    atomic_add(y[0], 1.0)\n    if tx == 5:"), "by each thread"),
    ],
)
def test_where_threads_cannot_meet(body, match):
    with pytest.raises(UnsupportedError, match=match):
        lowered(body)
