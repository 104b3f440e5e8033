"""Scalar code: one element computed and stored after the other, and nothing else."""

from __future__ import annotations

from tilec.ir.nodes import Alloc, Bind, Block, For, If, Store, walk

_KINDS = (Alloc, Bind, For, If, Store)


def is_scalar_code(body: Block) -> bool:
    """Whether a body has nothing but names, variables, stores, branches and loops: nothing that other threads
    wait for, that leaves a loop early or that changes what others change at the same time."""
    return all(isinstance(stmt, _KINDS) for stmt in walk(body))
