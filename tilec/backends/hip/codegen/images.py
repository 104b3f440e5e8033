"""Device TIR of an AMD variant -> C++ -> a code object through clang and lld.

The bytes depend on the function bodies, the target and the compilers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.codegen.device_source import device_functions, device_source, tir_text
from tilec.backends.cuda.codegen.images import check_limits, roads_told
from tilec.backends.cuda.codegen.wide_accesses import wide_tensors
from tilec.backends.cuda.launch import LoweredCudaLaunch, launches_of
from tilec.backends.hip.codegen.compiler import assembly_text, code_object, compiler_name
from tilec.backends.hip.codegen.header import header
from tilec.backends.hip.codegen.notes import KernelNote, read_notes
from tilec.backends.hip.codegen.text import amd_text
from tilec.backends.hip.launch import HipLaunch
from tilec.codegen.image import Image, LaunchCode, image_with
from tilec.ir.roads import multipliers

if TYPE_CHECKING:
    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target

__all__ = ["assembly", "compile_kernel", "device_functions", "source", "tir_text"]


def compile_kernel(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> Image:
    """The image of one variant; launch i is the kernel ``<symbol_prefix>_<i>``.

    CompileError when a launch asks for more than ``target`` has, found before anything is compiled, or when
    the compiler fails; UnsupportedError for what AMD GPUs have no code for."""
    check_limits(lowered, target)
    code = code_object(source(lowered, target, symbol_prefix), target)
    notes = read_notes(code)
    launches = (
        _launch_code(launch, f"{symbol_prefix}_{index}", notes)
        for index, launch in enumerate(launches_of(lowered))
    )
    return image_with(code, lowered, target, launches, compiler_name())


def source(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
    """The C++ of all launches."""
    return amd_text(device_source(lowered, target, symbol_prefix, header))


def assembly(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
    """The assembly of all launches."""
    return assembly_text(source(lowered, target, symbol_prefix), target)


def _launch_code(launch: LoweredCudaLaunch, symbol: str, notes: dict[str, KernelNote]) -> LaunchCode:
    note = notes[symbol]
    gpu = HipLaunch(
        dynamic_shared=launch.shared_bytes,
        blocks_per_unit=launch.blocks_per_unit,
        wide=wide_tensors(launch),
        static_shared=note.shared,
        registers=note.registers,
        stack=note.scratch,
        spills=note.spills,
        lanes=note.lanes,
        scalars=note.scalars,
        kernarg_bytes=note.kernarg_bytes,
    )
    roads = roads_told(launch, note.losses())
    products = multipliers(launch.roads)
    return LaunchCode(symbol, launch.grid, launch.threads, 0, launch.notes, gpu, roads, products)
