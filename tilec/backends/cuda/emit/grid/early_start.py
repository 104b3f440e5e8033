"""Launches that begin before the one in front of them has ended (programmatic dependent launch)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.limits import has_tma
from tilec.ir.nodes import Kernel, Launch

if TYPE_CHECKING:
    from tilec.targets import Target

#: What a launch that starts early executes before it touches memory.
WAIT = ("griddepcontrol.launch_dependents", "griddepcontrol.wait")


def is_asked(launch: Launch) -> bool:
    """Whether the config (``pdl``) or the author (`T.pdl_sync`) asks for it."""
    return bool(launch.schedule.pdl)


def starts_early(launch: Launch, target: Target) -> bool:
    """Whether a launch is asked to start early and ``target`` can do it."""
    return is_asked(launch) and has_tma(target)


def wait_for_predecessor() -> list[tirx.Stmt]:
    """`WAIT` as statements: the next launch may start, and this one waits until all in front have ended."""
    return [tirx.Evaluate(instruction(step)()) for step in WAIT]


def release_successor(kernel: Kernel, launch: Launch, target: Target) -> list[tirx.Stmt]:
    """Where the launch of the kernel behind this one starts early, it may as soon as this one has begun: it
    waits for this one's end."""
    behind = kernel.launches[kernel.launches.index(launch) + 1 :]
    lets = bool(behind) and starts_early(behind[0], target)
    return [tirx.Evaluate(instruction(WAIT[0])())] if lets else []
