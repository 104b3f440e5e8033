"""Statements with other blocks inside, and blocks without statements of some classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.ir import nodes as ir


def with_children(stmt: ir.Stmt, blocks: Sequence[ir.Block]) -> ir.Stmt:
    """``stmt`` with its inner blocks (in the order of `tilec.ir.nodes.children`) replaced."""
    if not blocks:
        return stmt
    if isinstance(stmt, ir.If):
        return replace(stmt, then=blocks[0], orelse=blocks[1])
    return replace(stmt, body=blocks[0])  # type: ignore[call-arg]


def pruned(block: ir.Block, *kinds: type[ir.Stmt]) -> ir.Block:
    """``block`` without statements of ``kinds``, and without branches and loops of nothing else."""
    if not any(isinstance(stmt, kinds) for stmt in ir.walk(block)):
        return block
    kept: list[ir.Stmt] = []
    for stmt in block:
        blocks = [pruned(inner, *kinds) for inner in ir.children(stmt)]
        emptied = any(ir.children(stmt)) and not any(blocks) and not isinstance(stmt, ir.Launch)
        if not (isinstance(stmt, kinds) or emptied):
            kept.append(with_children(stmt, blocks))
    return tuple(kept)
