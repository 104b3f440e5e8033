"""Fences between what threads write to shared memory and the hardware units that read it for themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.units import tiles_filled_by_units, tiles_read_by_units
from tilec.backends.cuda.nodes import (
    AsyncCopy,
    AsyncGather,
    ProxyFence,
    ThreadLoop,
    ThreadVector,
    TurnTile,
    WaitGroup,
)
from tilec.backends.cuda.passes.waits.place_shared import sharing
from tilec.ir.nodes import Atomic, Block, Launch, Stmt, Store, children, walk, with_children
from tilec.ir.traits import written
from tilec.lowering.passes.base import BlockRewrite, LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Var

#: Loops whose bodies are one thread's, and may become one move: a fence stands behind them.
_LOOPS = (ThreadLoop, ThreadVector)
_WRITERS = (Store, Atomic, *_LOOPS, TurnTile)


class FenceProxies(LaunchPass):
    """In: barriers between threads. Out: a ProxyFence behind statements by which threads write tiles that
    wgmma reads, or memory that TMA writes later, and behind waits for their asynchronous copies: PTX ISA,
    "Async proxy"."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its fences."""
        filled, shared = tiles_filled_by_units(launch.body), sharing(launch.body)
        beside = {other for tile in filled for other in shared.get(tile, ())}
        tiles = tiles_read_by_units(launch.body) | filled | beside
        if not tiles:
            return launch
        copied = any(_writes(stmt, tiles, (AsyncCopy, AsyncGather)) for stmt in walk(launch.body))

        def rewrite(block: Block) -> list[Stmt]:
            made: list[Stmt] = []
            for stmt in block:
                if made and isinstance(made[-1], ProxyFence) and _writes(stmt, tiles, _WRITERS):
                    made.pop()
                made.append(stmt)
                if _writes(stmt, tiles, _WRITERS) or (copied and isinstance(stmt, WaitGroup)):
                    made.append(ProxyFence(loc=stmt.loc))
            return made

        return replace(launch, body=_rewritten(launch.body, rewrite))


def _rewritten(block: Block, rewrite: BlockRewrite) -> Block:
    """``block`` with ``rewrite`` applied to blocks of statements, outside of loops that stay whole."""
    inside = (
        stmt
        if isinstance(stmt, (*_LOOPS, AsyncGather))
        else with_children(stmt, [_rewritten(inner, rewrite) for inner in children(stmt)])
        for stmt in block
    )
    return tuple(rewrite(tuple(inside)))


def _writes(stmt: Stmt, tiles: set[Var], kinds: tuple[type, ...]) -> bool:
    if not isinstance(stmt, kinds):
        return False
    inside = walk((stmt,)) if isinstance(stmt, _LOOPS) else (stmt,)
    return any(tiles & set(written(inner)) for inner in inside)
