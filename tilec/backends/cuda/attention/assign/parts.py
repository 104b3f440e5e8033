"""The parts of a launch whose rows stay in registers: which statements load tiles, which compute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.attention.assign.part_loads import tile_by_tile, with_parts
from tilec.backends.cuda.attention.assign.predicated_loads import plain_loads
from tilec.backends.cuda.attention.assign.products import async_product
from tilec.backends.cuda.attention.assign.tiles import check_places, check_tiles, is_load, is_shared
from tilec.backends.cuda.attention.assign.turned_operands import with_turned_operands
from tilec.backends.cuda.attention.nodes import ZeroRows
from tilec.backends.cuda.nodes import TurnTile
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.unfit import Unfit, about
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Copy,
    Fill,
    Gemm,
    If,
    Launch,
    Parallel,
    Pipelined,
    Reduce,
    Stmt,
    Store,
    walk,
)
from tilec.ir.traits import expressions
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from tvm.ir import Var

_MOST_WARPGROUPS = 3
_COMPUTE = (Alloc, Bind, Fill, Copy, Reduce, Parallel, Gemm, TurnTile, ZeroRows)


@dataclass(frozen=True, eq=False)
class Parts:
    """``tiles`` are the shared tiles, each filled by one Copy, by some for its parts, or by a TurnTile of
    such a one. ``producer`` holds the copies, ``turner`` what turns tiles, nothing where nothing does,
    ``consumer`` all else; all have the loop, whose bounds are bound before it."""

    warpgroups: int
    tiles: tuple[Var, ...]
    producer: Block
    turner: Block
    consumer: Block


def find_parts(launch: Launch) -> Parts:
    """The parts of ``launch``; Unfit where it has others."""
    warpgroups = _warpgroups(launch)
    body = _allocs_first(with_turned_operands(_with_plain_loads(launch.body)))
    tiles = tuple(stmt.buffer for stmt in body if isinstance(stmt, Alloc) and is_shared(stmt.buffer))
    _check_statements(body)
    _check_fragments(body, ROWS * warpgroups)
    check_tiles(body, tiles)
    body = _with_products(body, warpgroups)
    body = tuple(new for stmt in body for new in _bounded(stmt))
    producer = needed(tile_by_tile(_loop_last(tuple(kept for stmt in body for kept in _loads(stmt)))))
    check_places(producer, written_in(body))
    consumer = tuple(kept for stmt in body for kept in _computing(stmt))
    return Parts(warpgroups, tiles, producer, _turner(body), needed(consumer))


def _warpgroups(launch: Launch) -> int:
    """One for each 64 rows of the sums of products, where these are one to three and nothing uses the index
    of a thread: more would have to share the columns of a row, and meet for each sum of it. Else those of
    the author's threads."""
    sums = {int_value(stmt.c.buffer.shape[0]) or 0 for stmt in walk(launch.body) if isinstance(stmt, Gemm)}
    rows = sums.pop() if len(sums) == 1 else 0
    if not launch.thread_vars and rows in range(ROWS, ROWS * _MOST_WARPGROUPS + 1, ROWS):
        return rows // ROWS
    threads = thread_count(launch)
    warpgroups = threads // WARPGROUP
    if threads % WARPGROUP or not 1 <= warpgroups <= _MOST_WARPGROUPS:
        raise Unfit(
            f"{threads} threads are not one to {_MOST_WARPGROUPS} warpgroups",
            remedy="give T.Kernel threads=128, 256 or 384",
        )
    return warpgroups


def _with_plain_loads(block: Block) -> Block:
    return tuple(
        replace(stmt, body=plain_loads(with_parts(stmt.body))) if isinstance(stmt, Pipelined) else stmt
        for stmt in plain_loads(with_parts(block))
    )


def _allocs_first(body: Block) -> Block:
    """The allocations of a loop before it: registers have no scope."""
    inside = [
        stmt for loop in body if isinstance(loop, Pipelined) for stmt in loop.body if isinstance(stmt, Alloc)
    ]
    rest = tuple(
        replace(stmt, body=tuple(part for part in stmt.body if not isinstance(part, Alloc)))
        if isinstance(stmt, Pipelined)
        else stmt
        for stmt in body
    )
    return (*inside, *rest)


# ---- checks ----


def _check_statements(body: Block) -> None:
    loops = [stmt for stmt in body if isinstance(stmt, Pipelined)]
    if len(loops) != 1:
        raise Unfit(
            "it is not one pipelined loop",
            loops[1] if loops else None,
            "write the loop over keys as for k in T.Pipelined(...), one in a launch",
        )
    for stmt in (*body, *loops[0].body):
        if stmt is not loops[0] and not isinstance(stmt, _COMPUTE):
            raise Unfit(
                f"{type(stmt).__name__} stands beside its products",
                stmt,
                "use T.copy, T.gemm, T.reduce_*, T.fill and T.Parallel alone",
            )
    products = [stmt for stmt in loops[0].body if isinstance(stmt, Gemm)]
    if not products:
        raise Unfit("its loop has no product", loops[0], "multiply by T.gemm inside of the loop")
    alone = all(isinstance(stmt, (Alloc, Bind, Copy, Gemm)) for stmt in loops[0].body)
    if alone and all(is_shared(product.a.buffer) for product in products):
        raise Unfit("its loop does nothing but multiply", loops[0], "other roles serve such loops better")
    for stmt in walk(body):
        if isinstance(stmt, Parallel) and not all(
            isinstance(inner, (Bind, Store, If)) for inner in walk(stmt.body)
        ):
            raise Unfit(
                "a parallel loop of it is no plain arithmetic",
                stmt,
                "use assignments and conditions alone there",
            )


def _check_fragments(body: Block, rows: int) -> None:
    for stmt in walk(body):
        if not isinstance(stmt, Alloc) or is_shared(stmt.buffer):
            continue
        shape = tuple(int_value(extent) for extent in stmt.buffer.shape)
        if stmt.buffer.scope() != "local.fragment" or len(shape) not in (1, 2) or shape[0] != rows:
            raise Unfit(
                f"{stmt.buffer.name} is no fragment of {rows} rows",
                stmt,
                f"give it {rows} rows, 64 for each 128 threads, or other threads",
            )


# ---- roles ----


def _with_products(block: Block, warpgroups: int) -> Block:
    turned = {stmt.dst.buffer for stmt in walk(block) if isinstance(stmt, TurnTile)}

    def made(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Gemm):
            with about(stmt):
                return replace(async_product(stmt, warpgroups), turned=stmt.b.buffer in turned)
        if isinstance(stmt, Pipelined):
            return replace(stmt, body=tuple(made(inner) for inner in stmt.body))
        return stmt

    return tuple(made(stmt) for stmt in block)


def _bounded(stmt: Stmt) -> tuple[Stmt, ...]:
    """A loop with names for its bounds: both roles read them once."""
    if not isinstance(stmt, Pipelined):
        return (stmt,)
    dtype = dtype_of(stmt.var)
    first, end = tirx.Var("first", dtype), tirx.Var("end", dtype)
    loop = replace(stmt, start=first, stop=end, stage=None, order=None)
    return Bind(first, stmt.start), Bind(end, stmt.stop), loop


def _loop_last(block: Block) -> Block:
    """``block`` with its loop behind all loads: consumers wait before it for what is loaded once."""
    return tuple(sorted(block, key=lambda stmt: isinstance(stmt, Pipelined)))


def _loads(stmt: Stmt) -> tuple[Stmt, ...]:
    """What of a statement loads tiles, and bindings."""
    if isinstance(stmt, Pipelined):
        kept = tuple(inner for inner in stmt.body if _is_for_producer(inner))
        return (replace(stmt, body=tile_by_tile(kept)),)
    return (stmt,) if _is_for_producer(stmt) else ()


def _is_for_producer(stmt: Stmt) -> bool:
    return isinstance(stmt, Bind) or is_load(stmt)


def _turner(body: Block) -> Block:
    """What turns tiles, and bindings; nothing where nothing does."""
    made: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Pipelined):
            turns = tuple(inner for inner in stmt.body if isinstance(inner, (Bind, TurnTile)))
            made.append(replace(stmt, body=turns))
        elif isinstance(stmt, Bind):
            made.append(stmt)
    return needed(tuple(made)) if any(isinstance(stmt, TurnTile) for stmt in walk(tuple(made))) else ()


def _is_for_others(stmt: Stmt) -> bool:
    return isinstance(stmt, TurnTile) or is_load(stmt)


def _computing(stmt: Stmt) -> tuple[Stmt, ...]:
    """What of a statement computes."""
    if isinstance(stmt, Pipelined):
        return (replace(stmt, body=tuple(inner for inner in stmt.body if not _is_for_others(inner))),)
    shared = isinstance(stmt, Alloc) and is_shared(stmt.buffer)
    return () if shared or _is_for_others(stmt) else (stmt,)


def needed(block: Block) -> Block:
    """``block`` without bindings that nothing in it uses."""
    kept: list[Stmt] = []
    used: set[Var] = set()
    for stmt in reversed(block):
        if isinstance(stmt, Bind) and stmt.var not in used:
            continue
        if isinstance(stmt, Pipelined):
            stmt = replace(stmt, body=needed(stmt.body))
        used |= _variables((stmt,))
        kept.insert(0, stmt)
    return tuple(kept)


def _variables(block: Block) -> set[Var]:
    exprs = [expr for stmt in walk(block) for expr in expressions(stmt)]
    return {var for expr in exprs for var in undefined_vars(expr)}
