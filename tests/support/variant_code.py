"""From a kernel to machine code: the passes, the TIR and the code generator of its target."""

from __future__ import annotations

from tilec.backends.base import backend_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.codegen.image import Image
from tilec.ir.nodes import Kernel
from tilec.targets import Target


def compile_variant(kernel: Kernel, target: Target, symbol_prefix: str) -> Image:
    """Lowers one variant and generates its code; launch i is the symbol ``<symbol_prefix>_<i>``."""
    lowered = to_tir(lower(kernel, target), target)
    return backend_of(target).generator().compile_kernel(lowered, target, symbol_prefix)
