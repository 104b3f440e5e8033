"""Which shared tiles a launch has whose rows stay in registers: those that TMA brings, for products or for
loops over elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.attention.assign.part_loads import fill_once
from tilec.backends.cuda.attention.nodes import ZeroRows
from tilec.backends.cuda.attention.passes.rewriting import touched
from tilec.backends.cuda.nodes import TurnTile
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, Copy, Gemm, Parallel, Pipelined, Stmt, is_global, walk
from tilec.ir.traits import buffers, loads_of
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var


def is_shared(buffer: Var) -> bool:
    """Whether a buffer is a tile that threads share."""
    return bool(buffer.scope() == "shared.dyn")


def is_load(stmt: Stmt) -> bool:
    """Whether a statement brings a tile from a tensor."""
    return isinstance(stmt, Copy) and is_global(stmt.src.buffer) and is_shared(stmt.dst.buffer)


def check_tiles(body: Block, tiles: tuple[Var, ...]) -> None:
    """Each tile is filled by loads of one block from tensors that stay as they are, or is such a one that is
    turned, and read by products, or by elements."""
    written = written_in(body)
    turned = {stmt.dst.buffer for stmt in walk(body) if isinstance(stmt, TurnTile)}
    for tile in tiles:
        if tile in turned:
            continue
        loads = [stmt for stmt in walk(body) if isinstance(stmt, Copy) and stmt.dst.buffer.same_as(tile)]
        if not _is_filled(tile, loads, body):
            users = [stmt for stmt in walk(body) if tile in set(buffers(stmt))]
            raise Unfit(
                f"{tile.name} is not filled by one copy of a tensor",
                next(iter(loads or users), None),
                f"fill {tile.name} by one T.copy, or keep what it holds in a fragment",
            )
        for load in loads:
            _check_load(load)
            if load.src.buffer in written:
                raise Unfit(
                    f"{load.src.buffer.name} is written by the launch", load, "write to another tensor"
                )
    elements = _read_by_element(tiles, body)
    for stmt in walk(body):
        plain = isinstance(stmt, (Alloc, Gemm, TurnTile, ZeroRows)) or is_load(stmt)
        if not plain and any(buffer in tiles and buffer not in elements for buffer in buffers(stmt)):
            raise Unfit(
                "a shared tile is used outside of products",
                stmt,
                "keep what loops compute in fragments; they go to products as they are",
            )


def _read_by_element(tiles: tuple[Var, ...], body: Block) -> set[Var]:
    """The tiles of trips that only loops over elements and copies to fragments read, such as a bias: they
    have rows of whole slabs."""
    (trips,) = (stmt.body for stmt in body if isinstance(stmt, Pipelined))
    brought = {stmt.dst.buffer for stmt in trips if isinstance(stmt, Copy) and is_load(stmt)}
    others = {buffer for stmt in body if not isinstance(stmt, Pipelined) for buffer in touched(stmt)[0]}
    for stmt in trips:
        if not is_load(stmt):
            others |= touched(stmt)[isinstance(stmt, (Parallel, Copy))]
    return {tile for tile in tiles if tile in brought - others and _has_slabs(tile)}


def _has_slabs(tile: Var) -> bool:
    columns = int_value(tile.shape[-1]) or 0
    return len(tile.shape) == 2 and columns * element_bytes(str(tile.dtype)) % ROW_BYTES == 0


def _is_filled(tile: Var, copies: list[Copy], body: Block) -> bool:
    """Whether copies of tensors in one block fill a tile once."""
    first = sum(stmt in body for stmt in copies)
    return all(map(is_load, copies)) and first in (0, len(copies)) and fill_once(tile, copies)


def check_places(producer: Block, written: set[Var]) -> None:
    """Unfit where the places of loads are looked up in what the launch writes."""
    for stmt in walk(producer):
        tables = {load.source for load in loads_of(stmt)}
        for table in tables & written:
            raise Unfit(
                f"places of loads are looked up in {table.name}, which the launch writes",
                stmt,
                "look them up in a tensor that another launch has written",
            )


def _check_load(copy: Copy) -> None:
    tile = copy.dst.buffer
    if str(copy.src.buffer.dtype) != str(tile.dtype):
        raise Unfit(
            f"{tile.name} is converted on its way",
            copy,
            f"allocate it with the type of {copy.src.buffer.name}",
        )
    wide = [extent for extent in copy.src.extent if int_value(extent) != 1]
    last = int_value(copy.src.extent[-1]) == int_value(tile.shape[-1]) == int_value(copy.dst.extent[-1])
    if len(tile.shape) != 2 or len(wide) != 2 or not last:
        raise Unfit(
            f"{tile.name} is no box of two axes of a tensor",
            copy,
            "copy whole tiles of two axes, the tensor's last one among them",
        )
