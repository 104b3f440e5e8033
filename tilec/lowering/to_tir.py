"""The end of lowering: one TIR function per launch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target


def to_tir(kernel: Kernel, target: Target) -> LoweredKernel:
    """TIR of a kernel that all passes of ``target`` have run over (`tilec.lowering.pipeline.lower`).

    The functions have the entry signature that `tilec.codegen.image` documents. UnsupportedError for
    constructs that have no code."""
    if target.is_cpu:
        from tilec.lowering.cpu.entry import lower_kernel
    else:
        from tilec.lowering.cuda.entry import lower_kernel
    return replace(lower_kernel(kernel, target), options=kernel.options)
