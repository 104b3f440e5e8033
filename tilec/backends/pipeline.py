"""The loop that runs the passes of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.base import backend_of
from tilec.errors import InputError
from tilec.ir.rules.verifier import verify
from tilec.lowering.analysis.places import explained
from tilec.settings import read_settings

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.lowering.passes.base import Pass
    from tilec.targets import Target


def passes(target: Target) -> tuple[Pass, ...]:
    """The passes to the form that `to_tir` reads."""
    return backend_of(target).passes(target)


def stages(target: Target) -> tuple[str, ...]:
    """The names that ``until`` of `lower` takes, in order; "tile" is the kernel before all passes."""
    return ("tile", *(step.name for step in passes(target)))


def lower(kernel: Kernel, target: Target, *, until: str | None = None) -> Kernel:
    """``kernel`` after the passes of ``target``; ``until`` names the last one.

    Verified before the first and after the last one, between them too where TILEC_VERIFY is set. InputError
    for an ``until`` that is no stage; IRError when a pass breaks the rules of the IR."""
    if until is not None and until not in stages(target):
        raise InputError(
            f"lowering to {target.name} has no stage {until!r}",
            remedy=f"use one of {', '.join(stages(target))}",
        )
    verify(kernel)
    if until == "tile":
        return kernel
    with explained(kernel):
        return _lowered(kernel, target, until)


def _lowered(kernel: Kernel, target: Target, until: str | None) -> Kernel:
    verify_all = read_settings().verify
    for step in passes(target):
        kernel = step.apply(kernel, target)
        if verify_all:
            verify(kernel)
        if step.name == until:
            break
    verify(kernel)
    return kernel
