"""Golden text of the CPU passes, one form after the other."""

from __future__ import annotations

import pytest
from statements import KERNELS

from tilec.backends.cpu.passes.loops.carry_columns import CarryColumns
from tilec.backends.cpu.passes.loops.fuse_elementwise import FuseElementwise
from tilec.backends.cpu.passes.loops.fuse_rows import FuseRows
from tilec.backends.cpu.passes.loops.privatise_tiles import PrivatiseTiles
from tilec.backends.cpu.passes.loops.shrink_rows import ShrinkRows
from tilec.backends.cpu.passes.order import CPU_PASSES
from tilec.backends.cpu.passes.place_tiles import PlaceTiles, scratch_bytes
from tilec.backends.pipeline import lower, stages
from tilec.errors import InputError
from tilec.ir.nodes import Alloc, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.lowering.passes.base import Pass
from tilec.lowering.passes.expand_copies import ExpandCopies
from tilec.lowering.passes.expand_reduces import ExpandReduces
from tilec.targets import parse_target

TARGET = parse_target("x86-64-v4")

NORM = """
kernel("norm")
M = dim(int32)
X = tensor(float32, (M, 96), ("M", "96"), access="in")
G = tensor(float32, (96,), ("96",), access="in")
Y = tensor(float32, (M, 96), ("M", "96"), access="out")
with launch((M + 3) // 4, threads=(128, 1, 1)) as (bx,):
    x = alloc(float32, (4, 96), "local.fragment")
    sq = alloc(float32, (4, 96), "local.fragment")
    ss = alloc(float32, (4,), "local.fragment")
    copy(X[bx * 4:+4, 0:+96], x[0:+4, 0:+96])
    for i, j in parallel(4, 96):
        sq[i, j] = x[i, j] * x[i, j]
    reduce_sum(sq[0:+4, 0:+96], ss[0:+4], axis=1, clear=True)
    for i, j in parallel(4, 96):
        Y[bx * 4 + i, j] = x[i, j] * rsqrt(ss[i] / 96.0) * G[j]
"""

ORDER = (
    ExpandReduces(),
    ExpandCopies(),
    FuseElementwise(),
    CarryColumns(),
    PrivatiseTiles(),
    FuseRows(),
    ShrinkRows(),
    PlaceTiles(),
)


def after(text: str, last: str) -> str:
    """The text of a kernel after the passes of this file up to the one named ``last``."""
    kernel = parse_kernel(text)
    for step in ORDER:
        kernel = step.apply(kernel, TARGET)
        if step.name == last:
            break
    return format_kernel(kernel)


@pytest.mark.parametrize("step", [step.name for step in ORDER if step.name != "carry_columns"])
def test_norm(step, golden):
    golden(after(NORM, step))


def test_column_sums(golden):
    golden(after(KERNELS["reduce_columns"], "carry_columns"))


def test_loops_that_need_each_others_elements_stay_apart():
    text = after(KERNELS["large"].replace("a[16383 - i] + c[3]", "a[16383 - i]"), "fuse_elementwise")
    assert text.count("in parallel(16384)") == 3


def test_a_copy_joins_loops_of_one_row():
    one = NORM.replace("4:+4", "1:+1").replace("(4", "(1").replace("0:+4", "0:+1").replace("bx * 4", "bx")
    text = after(one, "fuse_elementwise")
    assert text.count("in parallel(96)") == 1
    assert text.index("ss[0] + sq[0, i]") < text.index("in parallel(1, 96)")


def test_a_tile_carried_around_a_loop_is_not_private():
    text = """
kernel("carried")
n = dim(int32)
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (16,), ("16",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    f = alloc(float32, (16,), "local.fragment")
    for k in serial(0, n, 1):
        for i in parallel(16):
            y[i] = f[i]
            f[i] = x[k]
"""
    assert 'f = alloc(float32, (16,), "local.fragment")' in after(text, "privatise_tiles")


def test_statistics_of_many_rows_stay_vectors():
    text = NORM.replace("4:+4", "16:+16").replace("(4", "(16").replace("0:+4", "0:+16")
    assert "parallel(16, 96)" in after(text, "fuse_rows")


def test_rows_that_other_rows_need_are_kept():
    text = """
kernel("crossed")
X = tensor(float32, (4, 32), ("4", "32"), access="in")
Y = tensor(float32, (4, 32), ("4", "32"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    f = alloc(float32, (4, 32), "local.fragment")
    for i, j in parallel(4, 32):
        f[i, j] = X[i, j]
    for i, j in parallel(4, 32):
        Y[i, j] = f[3 - i, j]
"""
    assert after(text, "shrink_rows").count("parallel(4, 32)") == 2


def test_big_tiles_follow_each_other_in_scratch():
    kernel = PlaceTiles().apply(parse_kernel(KERNELS["large"]), TARGET)
    places = {str(s.buffer.name): s.place for s in walk(kernel.launches[0].body) if isinstance(s, Alloc)}
    assert places == {"c": "stack", "a": ("scratch", 0), "b": ("scratch", 65536)}
    assert scratch_bytes(kernel.launches[0]) == 131072


def test_the_stack_takes_the_small_tiles_first():
    kernel = PlaceTiles(stack_bytes=400).apply(parse_kernel(NORM), TARGET)
    places = {str(s.buffer.name): s.place for s in walk(kernel.launches[0].body) if isinstance(s, Alloc)}
    assert places == {"ss": "stack", "x": ("scratch", 0), "sq": ("scratch", 1536)}


def test_stages_name_the_passes_in_order():
    assert stages(TARGET) == ("tile", *(step.name for step in CPU_PASSES))
    assert all(isinstance(step, Pass) for step in CPU_PASSES)


def test_lowering_stops_where_it_is_told():
    kernel = parse_kernel(NORM)
    assert lower(kernel, TARGET, until="tile") is kernel
    assert "reduce_sum" not in format_kernel(lower(kernel, TARGET, until="expand_reduces"))


def test_unknown_stages_are_errors():
    with pytest.raises(InputError, match="no stage 'nowhere'"):
        lower(parse_kernel(NORM), TARGET, until="nowhere")
