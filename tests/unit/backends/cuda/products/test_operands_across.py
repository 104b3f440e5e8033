"""Operands of 8 and 32 bits stored across K: which ones lanes bring to registers, and where sums lie then."""

from __future__ import annotations

from itertools import product

import pytest
from breadth import diagonal, parametrized

from tilec.backends.cuda.analysis.layouts.fragments import ROWS_ACROSS, accumulator_layout
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.cuda.nodes import BringOperand, TurnTile, WarpgroupProduct, WarpTile
from tilec.backends.pipeline import lower
from tilec.ir.layout_algebra import element_at
from tilec.ir.nodes import Kernel, Stmt, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
HEAD = """
kernel("across")
K = dim(int32, div=128)
A = tensor({dtype}, ({A}), ("{A}",), access="in")
"""


def kernel(
    flags: str, behind: str = "", dtype: str = "int8", sums: str = "int32", depth: int = 128
) -> Kernel:
    """A product of two tiles in a loop over K, stored as ``flags`` say, and statements behind it."""
    sides = [(128, depth), (128, depth)]
    if "trans_a" in flags:
        sides[0] = (depth, 128)
    if "trans_b" not in flags:
        sides[1] = (depth, 128)
    tiles, boxes = [], []
    for name, (rows, columns) in zip("AB", sides, strict=True):
        place = f"k * {depth}:+{depth}"
        tiles.append(f'{name.lower()} = alloc({dtype}, ({rows}, {columns}), "shared.dyn")')
        start = (
            f"{place}, 0:+128"
            if columns == 128 and rows == depth and _across(name, flags)
            else f"0:+128, {place}"
        )
        boxes.append(f"copy({name}[{start}], {name.lower()}[0:+{rows}, 0:+{columns}])")
    shapes = {name: "K, 128" if _across(name, flags) else "128, K" for name in "AB"}
    (ra, ca), (rb, cb) = sides
    return parse_kernel(f"""
kernel("across")
K = dim(int32, div=128)
A = tensor({dtype}, ({shapes["A"]}), ("{shapes["A"].replace(", ", '", "')}"), access="in")
B = tensor({dtype}, ({shapes["B"]}), ("{shapes["B"].replace(", ", '", "')}"), access="in")
C = tensor({sums}, (128, 128), ("128", "128"), access="out")
with launch(1, threads=(256, 1, 1)) as (bx,):
    {tiles[0]}
    {tiles[1]}
    held = alloc({dtype}, (128, 128), "local.fragment")
    sums = alloc({sums}, (128, 128), "local.fragment")
    fill(sums[0:+128, 0:+128], {"0" if sums == "int32" else "0.0"})
    for k in pipelined(0, K // {depth}, num_stages=3):
        {boxes[0]}
        {boxes[1]}
        gemm(a[0:+{ra}, 0:+{ca}], b[0:+{rb}, 0:+{cb}], sums[0:+128, 0:+128]{flags}, clear=False)
{behind}    copy(sums[0:+128, 0:+128], C[0:+128, 0:+128])
""")


def _across(name: str, flags: str) -> bool:
    return "trans_a" in flags if name == "A" else "trans_b" not in flags


def lowered(made: Kernel) -> list[Stmt]:
    """Its statements on sm_90a."""
    return list(walk(lower(made, SM90A).launches[0].body))


FLAGS = {"tt": ", trans_a=True, trans_b=True", "nn": "", "tn": ", trans_a=True"}


@pytest.mark.parametrize(
    ("flags", "names", "turned"),
    [("tt", ("a", "b"), 0), ("nn", ("b", "a"), 0), ("tn", ("a", "b_turned"), 1)],
)
def test_one_operand_comes_from_registers(flags, names, turned) -> None:
    stmts = lowered(kernel(FLAGS[flags]))
    (found,) = (stmt for stmt in stmts if isinstance(stmt, WarpgroupProduct))
    assert (found.a.buffer.name, found.b.buffer.name) == names
    assert [stmt.registers for stmt in stmts if isinstance(stmt, BringOperand)] == [found.registers]
    assert sum(isinstance(stmt, TurnTile) for stmt in stmts) == turned


OTHER = "    gemm(held[0:+128, 0:+128], b[0:+128, 0:+128], sums[0:+128, 0:+128], trans_b=True, clear=False)\n"
NEXT = """    for i, j in parallel(128, 128):
        held[i, j] = cast(int8, sums[i, j])
    gemm(held[0:+128, 0:+128], b[0:+128, 0:+128], sums[0:+128, 0:+128], trans_b=True, clear=True)
"""


@pytest.mark.parametrize("behind", [OTHER, NEXT], ids=["other products", "an operand of the next one"])
def test_sums_of_others_keep_their_order(behind) -> None:
    stmts = lowered(kernel(FLAGS["tt"], behind))
    assert not any(isinstance(stmt, BringOperand) for stmt in stmts)
    assert any(isinstance(stmt, TurnTile) for stmt in stmts)


@pytest.mark.parametrize("size", ROWS_ACROSS)
@pytest.mark.parametrize("warps", [(4, 1), (8, 1), (4, 2)])
def test_every_sum_has_one_place(size, warps) -> None:
    layout = accumulator_layout(WarpTile("m64n16k32", warps, (2, 2), 1), (1, 1), size)
    places = product(range(warps[0] * warps[1]), range(32), range(2 * 2 * 4))
    found = {
        tuple(
            int(value) for value in element_at(layout, {"warp": warp, "lane": lane, "reg": reg, "group": 0})
        )
        for warp, lane, reg in places
    }
    assert layout.shape == (warps[0] // 4 * 128, warps[1] * 16)
    assert len(found) == layout.shape[0] * layout.shape[1]


def test_lanes_load_before_they_wait_and_turn_behind_that() -> None:
    source = lower_kernel(lower(kernel(FLAGS["tt"]), SM90A), SM90A)
    text = cuda.source(source, SM90A, "across")
    loop = text[text.index("for (int k") :]
    loop = loop[loop.index("ldmatrix") :]
    order = [
        loop.index(word) for word in ("ldmatrix", "wait_group", "tilec_turn_by", "mma_async", "commit_group")
    ]
    assert order == sorted(order)


TYPES = [("int8", "int32", 64), ("int8", "int32", 128), ("float32", "float32", 32)]


@pytest.mark.nvrtc
@parametrized(
    ("flags", "types"),
    [(flags, types) for flags in FLAGS for types in TYPES],
    fast=diagonal(list(FLAGS), TYPES),
    ids=str,
)
def test_the_assembler_lets_products_run_on(flags, types) -> None:
    dtype, sums, depth = types
    made = kernel(FLAGS[flags], dtype=dtype, sums=sums, depth=depth)
    (launch,) = cuda.compile_kernel(lower_kernel(lower(made, SM90A), SM90A), SM90A, "k").launches
    assert "serialized" not in str(launch.roads)
    assert launch.gpu is not None
    assert launch.gpu.spills == 0
