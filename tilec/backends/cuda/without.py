"""Statements that GPUs other than NVIDIA's have nothing for."""

from __future__ import annotations

from tilec.errors import UnsupportedError
from tilec.ir.nodes import Check, Kernel, Print, Stmt, walk
from tilec.ir.nodes.barriers import GridBarrier
from tilec.ir.places import place_of


def refuse_nvidia_alone(kernel: Kernel, gpu: str) -> None:
    """UnsupportedError for a line or a check, as there is no printf, and for a barrier of the grid. ``gpu``:
    `Family.word`."""
    for stmt in walk(kernel.body):
        if isinstance(stmt, (Print, Check)):
            raise _without_printf(stmt, gpu)
        if isinstance(stmt, GridBarrier):
            raise _without_grid_barriers(stmt, gpu)


def _without_printf(stmt: Print | Check, gpu: str) -> UnsupportedError:
    name = "T.print" if isinstance(stmt, Print) else "T.device_assert"
    return UnsupportedError(
        f"{name} on an {gpu}",
        place=place_of(stmt, name),
        why="its code has nothing that writes a line",
        remedy="look into the kernel on a CPU or with CUDA; libraries drop it unless `debug` is true",
    )


def _without_grid_barriers(stmt: Stmt, gpu: str) -> UnsupportedError:
    return UnsupportedError(
        f"blocks that wait for each other, on an {gpu}",
        place=place_of(stmt, "T.sync_grid"),
        remedy="split the kernel at T.sync_grid into two T.Kernel",
    )
