"""Two vectors that are rounded to bfloat16 and lie side by side, by one instruction and one store.

P[j:+16] = vcvtneps2bf16(a); ..; P[j + 16:+16] = vcvtneps2bf16(b)
->
low = a; ..; P[j:+32] = vcvtne2ps2bf16(b, low)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.emit.numbers.bfloat16 import PAIR_LANES, pair_of_bfloat16, rounds_to_zeros
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Store
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Block

#: What may stand among the steps of vectors whose stores wait for each other.
_PLAIN = (tirx.AllocBuffer, tirx.Bind, tirx.BufferStore)


def rounds_pairs(body: Block, width: int, ctx: LaneContext) -> bool:
    """Whether vectors of ``width`` lanes that a block stores may be rounded in pairs."""
    has = width in PAIR_LANES and ctx.target.has("avx512bf16")
    return has and any(isinstance(stmt, Store) and stmt.buffer in ctx.operands for stmt in body)


def in_pairs(vectors: Sequence[tirx.Stmt], ctx: LaneContext) -> list[tirx.Stmt]:
    """What is done to vectors one behind the other: each second one stores what it and the one before have
    rounded, where these lie side by side. Nothing reads a tile that is rounded so while it is made."""
    steps = [_steps(vector) for vector in vectors]
    for low, high in zip(steps[::2], steps[1::2], strict=False):
        if all(isinstance(step, _PLAIN) for step in (*low, *high)):
            _join(low, high, ctx)
    return [step for part in steps for step in part]


def _steps(stmt: tirx.Stmt) -> list[tirx.Stmt]:
    return list(stmt.seq) if isinstance(stmt, tirx.SeqStmt) else [stmt]


def _join(low: list[tirx.Stmt], high: list[tirx.Stmt], ctx: LaneContext) -> None:
    """Lets the stores among the steps ``low`` wait for those of ``high`` beside them."""
    others = _only_stores(high)
    for tile, (at, first) in _only_stores(low).items():
        behind, second = others.get(tile, (0, None))
        if second is None or not _are_neighbours(first, second):
            continue
        lanes = lanes_of(first.value)
        held = tirx.decl_buffer((lanes,), "float32", ctx.fresh(f"{tile.name}_low", "int32").name)
        place = [tirx.Ramp(tirx.const(0), tirx.const(1), lanes)]
        low[at] = tirx.SeqStmt([tirx.AllocBuffer(held), tirx.BufferStore(held, first.value.args[1], place)])
        both = pair_of_bfloat16(tirx.BufferLoad(held, place), second.value.args[1], ctx.functions)
        high[behind] = tirx.BufferStore(tile, both, [_twice(first.indices[0])])


def _only_stores(steps: Sequence[tirx.Stmt]) -> dict[Var, tuple[int, tirx.BufferStore]]:
    """The stores of vectors that are rounded so, by their tiles, to which there are no other stores."""
    stores = [(at, step) for at, step in enumerate(steps) if isinstance(step, tirx.BufferStore)]
    tiles = [step.buffer for _, step in stores]
    return {
        step.buffer: (at, step)
        for at, step in stores
        if rounds_to_zeros(step.value) and tiles.count(step.buffer) == 1
    }


def _are_neighbours(first: tirx.BufferStore, second: tirx.BufferStore) -> bool:
    """Whether a store begins where another one ends."""
    lanes = lanes_of(first.value)
    if lanes_of(second.value) != lanes or not all(_is_row(each.indices[0]) for each in (first, second)):
        return False
    return int_value(sym.Analyzer().simplify(second.indices[0].base - first.indices[0].base)) == lanes


def _is_row(index: Expr) -> bool:
    return isinstance(index, tirx.Ramp) and int_value(index.stride) == 1


def _twice(row: Expr) -> Expr:
    """As many neighbours again."""
    return tirx.Ramp(row.base, row.stride, 2 * int(row.lanes))
