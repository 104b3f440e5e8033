"""Device TIR of a Metal variant -> source, which is the image: the system compiles it where it runs.

The bytes depend on the function bodies alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.backends.cuda.codegen.device_source import device_functions, tir_text
from tilec.backends.cuda.codegen.images import check_limits
from tilec.backends.cuda.codegen.wide_accesses import wide_tensors
from tilec.backends.cuda.launch import LoweredCudaLaunch, launches_of
from tilec.backends.metal.codegen.header import header
from tilec.backends.metal.codegen.helpers import Helpers
from tilec.backends.metal.codegen.writer import FunctionWriter
from tilec.codegen.image import Image, LaunchCode, PersistentLaunch, image_with
from tilec.ir.roads import encode, multipliers

if TYPE_CHECKING:
    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target

__all__ = ["compile_kernel", "device_functions", "source", "tir_text"]


def compile_kernel(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> Image:
    """The image of one variant, ended by a NUL; launch i is the kernel ``<symbol_prefix>_<i>``.

    CompileError when a launch asks for more than ``target`` has; UnsupportedError for what Metal has no words
    for."""
    check_limits(lowered, target)
    code = source(lowered, target, symbol_prefix).encode() + b"\0"
    launches = (
        _launch_code(launch, f"{symbol_prefix}_{index}") for index, launch in enumerate(launches_of(lowered))
    )
    return image_with(code, lowered, target, launches, "Metal, at run time")


def source(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
    """The source of all launches."""
    helpers = Helpers()
    functions = [
        FunctionWriter(f"{symbol_prefix}_{index}", func, math.prod(launch.threads), helpers).text()
        for index, (func, launch) in enumerate(
            zip(device_functions(lowered, target, symbol_prefix), launches_of(lowered), strict=True)
        )
    ]
    body = "\n".join([helpers.text, *functions])
    return f"{header(body)}\n{body}"


def _launch_code(launch: LoweredCudaLaunch, symbol: str) -> LaunchCode:
    gpu = PersistentLaunch(
        static_shared=launch.shared_bytes,
        blocks_per_unit=launch.blocks_per_unit,
        wide=wide_tensors(launch),
    )
    products = multipliers(launch.roads)
    return LaunchCode(
        symbol, launch.grid, launch.threads, 0, launch.notes, gpu, encode(launch.roads), products
    )
