"""The end of lowering: one TIR function per launch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.base import backend_of
from tilec.ir.nodes import Assume
from tilec.ir.places import place_of
from tilec.lowering.analysis.places import explained
from tilec.lowering.emission.parameters import names, spelled
from tilec.lowering.emission.texts import int_text

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target


def to_tir(kernel: Kernel, target: Target) -> LoweredKernel:
    """TIR of a kernel that all passes of ``target`` have run over (`tilec.backends.pipeline.lower`).

    The functions have the entry signature that `tilec.codegen.image` documents. UnsupportedError for
    constructs that have no code."""
    with explained(kernel):
        made = backend_of(target).lower_kernel(kernel, target)
        lowered = replace(made, options=kernel.options, needs=_needs(kernel))
    if len(lowered.launches) != len(kernel.launches):
        return lowered
    places = [place_of(launch, "T.Kernel") for launch in kernel.launches]
    placed = (replace(one, place=place) for one, place in zip(lowered.launches, places, strict=True))
    return replace(lowered, launches=tuple(placed))


def _needs(kernel: Kernel) -> str:
    """What the kernel assumes before its launches, as one condition."""
    assumed = [spelled(stmt.cond, kernel) for stmt in kernel.body if isinstance(stmt, Assume)]
    return " and ".join(f"({int_text(cond, names(kernel))})" for cond in assumed)
