"""Products with a sparse operand as products of a dense tile, for targets and types without an instruction.

gemm_sp(A, E, B, acc)    ->    for i, k: dense[i, k] = the kept element of A that E puts there, or 0
                               gemm(dense, B, acc)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, Gemm, Launch, Parallel, Region, SparseGemm, Stmt, Store, walk
from tilec.ir.roads import Loss
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr


#: What carries a sparse product out where no instruction does.
DENSE = "T.gemm_sp multiplies a dense tile"
_LOSS = Loss("", "CPUs have no sparse products", "use T.gemm where the left operand is dense anyway")


class ExpandSparse(LaunchPass):
    """In: SparseGemm. Out: none of them; each is a Parallel that writes the left operand with its zeros to a
    shared tile, and a Gemm."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without sparse products."""
        roads = [
            road_of(stmt, "dense", DENSE, _LOSS) for stmt in walk(launch.body) if isinstance(stmt, SparseGemm)
        ]
        return with_roads(replace(launch, body=rewrite_blocks(launch.body, _expand_block)), roads)


def _expand_block(block: Block) -> list[Stmt]:
    return [
        new for stmt in block for new in (expand_sparse(stmt) if isinstance(stmt, SparseGemm) else [stmt])
    ]


def expand_sparse(stmt: SparseGemm) -> list[Stmt]:
    """The dense tile, the loop that fills it, and the product."""
    held = 2 * (int_value(stmt.a.extent[-2 if stmt.trans_a else -1]) or 0)
    rows = int_value(stmt.c.extent[-2]) or 0
    shape = (rows, held)
    tile = tirx.decl_buffer(
        shape, str(stmt.a.buffer.dtype), f"{stmt.a.buffer.name}_dense", scope="shared.dyn"
    )
    zero = tirx.const(0, "int32")
    dense = Region(tile, (zero, zero), shape)
    product = Gemm(dense, stmt.b, stmt.c, False, stmt.trans_b, stmt.clear, stmt.policy, loc=stmt.loc)
    return [Alloc(tile, loc=stmt.loc), _filled(stmt, dense), product]


def _filled(stmt: SparseGemm, dense: Region) -> Parallel:
    """One iteration for each group of four: its two values at their places, and zeros."""
    rows, columns = (int_value(extent) or 0 for extent in dense.extent)
    i, group = tirx.Var("i", "int32"), tirx.Var("group", "int32")
    four = tirx.const(4, "int32")
    places = _places(stmt, i, group)
    values = [_value(stmt.a, stmt.trans_a, i, group * tirx.const(2, "int32") + number) for number in (0, 1)]
    at = [tirx.bitwise_and(tirx.shift_right(places, _word(2 * number)), _word(3)) for number in (0, 1)]
    zero: Expr = tirx.const(0, str(stmt.a.buffer.dtype))
    body = tuple(
        Store(
            dense.buffer,
            (i, group * four + place),
            tirx.Select(
                tirx.EQ(at[0], _word(place)),
                values[0],
                tirx.Select(tirx.EQ(at[1], _word(place)), values[1], zero),
            ),
            loc=stmt.loc,
        )
        for place in range(4)
    )
    return Parallel((i, group), (rows, columns // 4), body, loc=stmt.loc)


def _places(stmt: SparseGemm, row: Expr, group: Expr) -> Expr:
    """The four bits of a group, lowest, as uint32."""
    groups = 2 * element_bytes(str(stmt.e.buffer.dtype))
    count = tirx.const(groups, "int32")
    word = _value(stmt.e, stmt.trans_e, row, tirx.floordiv(group, count))
    shift = tirx.floormod(group, count) * tirx.const(4, "int32")
    return tirx.shift_right(tirx.Cast("uint32", word), tirx.Cast("uint32", shift))


def _word(value: int) -> Expr:
    return tirx.const(value, "uint32")


def _value(region: Region, turned: bool, row: Expr, column: Expr) -> Expr:
    """An element of a matrix in a region."""
    *lead, first, second = region.start
    down, across = (column, row) if turned else (row, column)
    return tirx.BufferLoad(region.buffer, [*lead, first + down, second + across])
