"""Threads of a block, as warps."""

from __future__ import annotations

from tilec.errors import UnsupportedError
from tilec.ir.nodes import Launch
from tilec.lowering.cuda.fragments import WARP
from tilec.lowering.places import place_of


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
