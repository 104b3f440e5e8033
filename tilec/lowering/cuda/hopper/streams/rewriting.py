"""Passes over the Streamed statement of each launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilec.ir.nodes import Kernel, Launch
from tilec.lowering.cuda.hopper.streams.nodes import Streamed
from tilec.lowering.passes import rewrite_launches


def streamed(launch: Launch) -> Streamed | None:
    """The roles of a launch whose rows stay in registers; None for any other."""
    return next((stmt for stmt in launch.body if isinstance(stmt, Streamed)), None)


def rewrite_streamed(kernel: Kernel, rewrite: Callable[[Launch, Streamed], Streamed]) -> Kernel:
    """``kernel`` with every Streamed replaced."""

    def launch_of(launch: Launch) -> Launch:
        found = streamed(launch)
        if found is None:
            return launch
        made = rewrite(launch, found)
        return replace(launch, body=tuple(made if stmt is found else stmt for stmt in launch.body))

    return rewrite_launches(kernel, launch_of)
