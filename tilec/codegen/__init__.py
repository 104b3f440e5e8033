"""Machine code: TIR -> images, and the C compiler that makes libraries of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilec.codegen.image import Image
    from tilec.ir.nodes import Kernel
    from tilec.targets import Target


def compile_variant(kernel: Kernel, target: Target, symbol_prefix: str) -> Image:
    """Lowers one variant and generates its code; launch i is the symbol ``<symbol_prefix>_<i>``."""
    from tilec.codegen.cpu import compile_kernel
    from tilec.lowering.pipeline import lower
    from tilec.lowering.to_tir import to_tir
    from tilec.targets import require_codegen

    require_codegen(target)
    return compile_kernel(to_tir(lower(kernel, target), target), target, symbol_prefix)
