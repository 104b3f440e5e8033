"""From a kernel to machine code: the passes, the TIR and the code generator of its target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tilec.codegen.image import Image
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target


def compile_variant(kernel: Kernel, target: Target, symbol_prefix: str) -> Image:
    """Lowers one variant and generates its code; launch i is the symbol ``<symbol_prefix>_<i>``."""
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir

    lowered = to_tir(lower(kernel, target), target)
    return code_generator(target).compile_kernel(lowered, target, symbol_prefix)


def code_generator(target: Target) -> CodeGenerator:
    """The module that makes code for ``target``."""
    if target.is_cpu:
        from tilec.backends.cpu.codegen import objects as cpu

        return cpu
    from tilec.backends.cuda.codegen import images as cuda

    return cuda


def source_suffix(text: str, target: Target) -> str:
    """The suffix of a file with the source of device code: CPU code that C has no words for is LLVM IR."""
    if not target.is_cpu:
        return ".cu"
    return ".ll" if text.startswith(";") else ".c"


class CodeGenerator(Protocol):
    """What the code generator of a family offers."""

    def compile_kernel(self, lowered: LoweredKernel, target: Target, symbol_prefix: str) -> Image:
        """The machine code of one variant."""

    def assembly(self, lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
        """The assembly of all launches; PTX for CUDA."""

    def source(self, lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
        """The code of all launches for people: CUDA C++ as the compiler gets it, or C for CPUs."""

    def tir_text(self, lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
        """The TIR that code is generated from."""
