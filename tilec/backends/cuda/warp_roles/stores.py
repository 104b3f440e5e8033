"""How the elements of an accumulator leave: through a staging buffer, by TMA or row by row, or each thread
its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.warp_roles.epilogue import moves_by_one
from tilec.backends.cuda.warp_roles.nodes import TensorMap, TileStore, WarpgroupTile
from tilec.backends.cuda.warp_roles.tma import tensor_map
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import int_value, loads, uses
from tilec.ir.nodes import Bind, Parallel, Store
from tilec.ir.roads import Loss
from tilec.ir.traits import expressions, loads_of
from tilec.lowering.analysis.scopes import conditioned
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Block
    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

#: Columns of a staging buffer, widest first; bytes that one may take for a warpgroup, and how many it has.
_COLUMNS, STAGING_BYTES, STAGING_BUFFERS = (64, 32, 16), 8192, 2
#: Shared memory for barriers and alignment.
_BARRIER_BYTES = 1280


def staging_room(ring_bytes: int, warpgroups: int, target: Target) -> int:
    """Bytes of shared memory that one warpgroup has for staging beside ``ring_bytes`` of a ring and what else
    there is; negative where that alone does not fit."""
    assert target.gpu is not None
    return (target.gpu.shared_bytes - ring_bytes - _BARRIER_BYTES) // warpgroups


def parts_bytes(tile: WarpgroupTile, parts: int) -> int:
    """Shared memory through which a warpgroup's ``parts`` of a share of its sums reach the block that adds
    them; none where there is one part."""
    return 0 if parts == 1 else parts * tile.rows * ROWS * tile.columns // tile.shares(parts) * 4


def plan_store(
    loop: Parallel, tile: WarpgroupTile, room: int, facts: Facts, parts: int, evict: Mapping[str, str]
) -> TileStore:
    """An elementwise loop over the accumulator (or a share of its columns, where a cluster holds it in
    ``parts``) as a TileStore, staged where its last store allows and ``room`` bytes suffice."""
    shares = tile.shares(parts)
    rows, width = tile.rows * ROWS, tile.columns // shares
    extents = (int_value(loop.extents[0]) or 0, width)
    turned = _is_turned(loop)
    plain = TileStore(loop.vars, extents, rows, loop.body, turned=turned, parts=shares, loc=loop.loc)
    if loop.hints.avoids_tma:
        return plain
    condition, body = conditioned(loop.body)
    loop = replace(loop, body=body)
    columns = _staged_columns(rows, width)
    buffers = min(STAGING_BUFFERS, -(-width // columns), room // (rows * columns * 2)) if columns else 0
    try:
        if condition is not None and not ends_rows(condition, loop.vars):
            raise Unfit("its condition is no bound of the row", remedy="write it as i < rows")
        if buffers <= 0:
            raise Unfit("no shared memory is left to stage it", remedy="choose fewer stages or smaller tiles")
        found = staged_map(loop, rows, columns, facts, turned)
    except Unfit as unfit:
        loss = Loss("", f"no TMA stores: {unfit}", unfit.remedy)
        if buffers <= 0 or not _leaves_by_rows(loop, condition, turned):
            return replace(plain, loss=loss)
        return replace(plain, columns=columns, buffers=buffers, loss=loss)
    if found is None:
        return plain
    when = loop.hints.eviction or evict.get(str(found.buffer.name))
    residual = _residual_map(loop, rows, columns, facts, turned) if condition is None else None
    return replace(plain, map=found, columns=columns, buffers=buffers, evict=when, residual=residual)


def _staged_columns(rows: int, width: int) -> int:
    """Columns of a staging buffer: as few as possible are stored twice, in buffers as wide as possible; 0
    where none fits."""
    fitting = [count for count in _COLUMNS if count <= width and rows * count * 2 <= STAGING_BYTES]
    return min(fitting, key=lambda count: (-width % count, -count), default=0)


def ends_rows(condition: Expr, loop_vars: Sequence[Var]) -> bool:
    """Whether a condition that holds for a row holds for all rows in front of it, whatever the column is: one
    that holds for the last row of a tile holds for all of it."""
    if not isinstance(condition, (tirx.LT, tirx.LE)):
        return False
    row, *others = loop_vars
    return moves_by_one(condition.a, row) and not uses(condition, others) and not uses(condition.b, (row,))


def stores_alone(body: Block) -> bool:
    """Whether rows that are not stored may be computed all the same."""
    last = body[-1]
    values = [value for inner in body for value in expressions(inner)]
    read = {load.source for value in values for load in loads(value)}
    binds = all(isinstance(inner, Bind) for inner in body[:-1])
    return binds and isinstance(last, Store) and last.buffer not in read


def _residual_map(loop: Parallel, rows: int, columns: int, facts: Facts, turned: bool) -> TensorMap | None:
    """The map of a tensor of 16-bit elements that the loop reads where it stores; None for none."""
    stored = {stmt.buffer for stmt in loop.body if isinstance(stmt, Store)}
    for load in loads_of(*loop.body):
        buffer = load.source
        wide = buffer.scope() != "global" or str(buffer.dtype) not in ("float16", "bfloat16")
        if (
            wide
            or buffer in stored
            or not _is_box(tuple(load.indices), loop.vars[::-1] if turned else loop.vars)
        ):
            continue
        try:
            return _staging_map(buffer, rows, columns, facts, turned)
        except Unfit:
            continue
    return None


def _staging_map(buffer: Var, rows: int, columns: int, facts: Facts, turned: bool) -> TensorMap:
    """The map between a tensor and staging buffers: boxes of all rows, or, ``turned``, of 64 of them that run
    along the tensor's rows. Unfit where TMA cannot address it."""
    if turned:
        return tensor_map(buffer, columns, ROWS, ROWS * 2, facts)
    return tensor_map(buffer, rows, columns, columns * 2, facts)


def _is_turned(loop: Parallel) -> bool:
    """Whether the last store's last index moves with the first loop variable: C's rows are columns here."""
    last = loop.body[-1]
    return isinstance(last, Store) and bool(last.indices) and uses(last.indices[-1], loop.vars[:1])


def staged_map(loop: Parallel, rows: int, columns: int, facts: Facts, turned: bool) -> TensorMap | None:
    """The map of the last store of a loop; None where its elements go the plain way in any form, Unfit where
    they do in this one."""
    last = loop.body[-1]
    if not isinstance(last, Store) or last.buffer.scope() != "global":
        return None
    if element_bytes(str(last.buffer.dtype)) != 2 or str(last.buffer.dtype) not in ("float16", "bfloat16"):
        return None
    if not _is_box(last.indices, loop.vars[::-1] if turned else loop.vars):
        raise Unfit(
            f"the tile is no box of the last two axes of {last.buffer.name}",
            remedy=f"store to {last.buffer.name}[..., start + i, start + j]",
        )
    return _staging_map(last.buffer, rows, columns, facts, turned)


def _leaves_by_rows(loop: Parallel, condition: Expr | None, turned: bool) -> bool:
    """Whether the last store's elements may be staged all the same, for threads to store row by row."""
    last = loop.body[-1]
    if not isinstance(last, Store) or last.buffer.scope() != "global":
        return False
    steps = last.buffer.strides
    together = not len(steps) or int_value(steps[-1]) == 1
    ends = condition is None or ends_rows(condition, loop.vars)
    return together and ends and _is_box(last.indices, loop.vars[::-1] if turned else loop.vars)


def _is_box(indices: Sequence[Expr], loop_vars: Sequence[Var]) -> bool:
    """Whether the last two indices are a start plus i and a start plus j, the others constant in the loop."""
    for axis, index in enumerate(reversed(indices)):
        if axis >= 2:
            if uses(index, loop_vars):
                return False
            continue
        own, other = loop_vars[1 - axis], loop_vars[axis]
        if uses(index, (other,)) or not moves_by_one(index, own):
            return False
    return len(indices) >= 2
