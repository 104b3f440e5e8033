"""Blocks without statements of some classes."""

from __future__ import annotations

from tilec.ir import nodes as ir


def pruned(block: ir.Block, *kinds: type[ir.Stmt]) -> ir.Block:
    """``block`` without statements of ``kinds``, and without branches and loops of nothing else."""
    if not any(isinstance(stmt, kinds) for stmt in ir.walk(block)):
        return block
    kept: list[ir.Stmt] = []
    for stmt in block:
        blocks = [pruned(inner, *kinds) for inner in ir.children(stmt)]
        emptied = any(ir.children(stmt)) and not any(blocks) and not isinstance(stmt, ir.Launch)
        if not (isinstance(stmt, kinds) or emptied):
            kept.append(ir.with_children(stmt, blocks))
    return tuple(kept)
