"""Threads of a block, as warps."""

from __future__ import annotations

from tilec.errors import Place, UnsupportedError
from tilec.ir.nodes import Launch, Stmt
from tilec.lowering.cuda.fragments import WARP


def thread_count(launch: Launch) -> int:
    """Threads of one block."""
    x, y, z = launch.threads
    return x * y * z


def warps_of(launch: Launch) -> int:
    """Warps of one block; UnsupportedError for blocks that are no whole warps."""
    threads = thread_count(launch)
    if threads % WARP:
        raise UnsupportedError(
            f"a block of {threads} threads is no whole number of warps",
            place=place_of(launch),
            remedy=f"use {-(-threads // WARP) * WARP} threads",
        )
    return threads // WARP


def place_of(stmt: Stmt, construct: str | None = None) -> Place | None:
    """Where in the author's file a statement stands."""
    return Place(stmt.loc.file, stmt.loc.line, construct) if stmt.loc is not None else None
