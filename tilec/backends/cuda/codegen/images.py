"""Device TIR of a CUDA variant -> CUDA C++ through TVM -> a cubin or PTX through NVRTC or nvcc.

In: one function per launch with its thread extents in the body. Out: one image with all launches of the
variant. The source depends on the function bodies and the target alone, the bytes on the compilers, too:
NVRTC 12.9 numbers the registers of a few kernels in one of several ways.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from tilec.backends.cuda.codegen.compilers import Compiled, CudaCompiler, describe, find_compiler
from tilec.backends.cuda.codegen.cubin import read_cubin
from tilec.backends.cuda.codegen.device_source import device_functions, device_source, tir_text
from tilec.backends.cuda.codegen.header import header
from tilec.backends.cuda.codegen.ptxas_report import KernelReport, parse_report
from tilec.backends.cuda.codegen.sines import with_sines
from tilec.backends.cuda.codegen.wide_accesses import wide_tensors
from tilec.backends.cuda.gpu import gpu_of
from tilec.backends.cuda.launch import CudaLaunch, LoweredCudaLaunch, launches_of
from tilec.backends.cuda.limits import has_tma
from tilec.codegen.failures import failure
from tilec.codegen.image import Image, LaunchCode, image_with
from tilec.errors import CompileError, Kind
from tilec.ir import options
from tilec.ir.roads import encode, in_order, multipliers, road_at
from tilec.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilec.ir.roads import Loss
    from tilec.lowering.lowered import LoweredKernel

__all__ = ["assembly", "compile_kernel", "device_functions", "source", "tir_text"]

#: The first driver with cuLibraryLoadData and cuLaunchKernelEx, as drivers count.
_FIRST_DRIVER = 12000
_SHARED = "bytes of shared memory in a block"
_THREADS = "threads in a block"
_CLUSTER = "blocks in a cluster"
#: What to do where a launch has too many.
_REMEDIES = {
    _SHARED: "choose smaller blocks or fewer stages in the config",
    _THREADS: "give T.Kernel fewer threads, which are filled up to whole warps",
    _CLUSTER: "choose a smaller cluster",
}


def compile_kernel(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> Image:
    """The image of one variant; launch i is the kernel ``<symbol_prefix>_<i>``.

    CompileError when a launch asks for more than ``target`` has, found before anything is compiled, or when a
    compiler fails; EnvironmentError_ when there is no CUDA compiler."""
    check_limits(lowered, target)
    compiler = find_compiler(target.name)
    text = source(lowered, target, symbol_prefix)
    _check_waits(lowered, target, text)
    made = compiler.compile(text, target.name, author_flags(lowered))
    reports = read_cubin(made.code) | parse_report(made.log)
    launches = (
        _launch_code(lowered, index, f"{symbol_prefix}_{index}", target, reports)
        for index in range(len(lowered.launches))
    )
    return image_with(made.code, lowered, target, launches, describe(compiler), min_driver(target, compiler))


def source(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
    """The CUDA C++ of all launches, without includes."""
    text = device_source(lowered, target, symbol_prefix, header)
    return text if lowered.option(options.FAST_MATH) else with_sines(text)


def assembly(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
    """The PTX of all launches."""
    text = source(lowered, target, symbol_prefix)
    virtual = target.name.replace("sm_", "compute_")
    made: Compiled = find_compiler(virtual).compile(text, virtual, author_flags(lowered))
    return made.code.decode().rstrip("\0")


def author_flags(lowered: LoweredKernel) -> list[str]:
    """The flags that the options of a kernel come to."""
    flags = ["--use_fast_math"] if lowered.option(options.FAST_MATH) else []
    level = lowered.option(options.REGISTER_LEVEL)
    if level is not None:
        flags.append(f"--ptxas-options=--register-usage-level={level}")
    return [*flags, *cast("tuple[str, ...]", lowered.option(options.FLAGS) or ())]


def min_driver(target: Target, compiler: CudaCompiler) -> int:
    """The oldest driver that loads an image: PTX needs one as new as the compiler, a cubin one of its major
    version."""
    major, minor = compiler.version
    if gpu_of(target).is_ptx:
        return max(_FIRST_DRIVER, 1000 * major + 10 * minor)
    return max(_FIRST_DRIVER, 1000 * major)


# ---- limits ----


def check_limits(lowered: LoweredKernel, target: Target) -> None:
    """CompileError naming number and limit for a launch that no device of ``target`` can run."""
    gpu = gpu_of(target)
    for index, launch in enumerate(lowered.launches):
        threads = launch.threads[0] * launch.threads[1] * launch.threads[2]
        cluster = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        for what, number, limit in (
            (_THREADS, threads, gpu.threads),
            (_SHARED, launch.shared_bytes, gpu.shared_bytes),
            (_CLUSTER, cluster, gpu.cluster_blocks),
        ):
            if number > limit:
                raise _too_much(lowered, target, index, what, number, limit)


def _check_waits(lowered: LoweredKernel, target: Target, text: str) -> None:
    """A launch that may begin early and does not wait would read what the one in front has yet to write."""
    asked = any(launch.programmatic for launch in launches_of(lowered))
    if asked and "griddepcontrol.wait" not in text:
        raise failure(lowered, target, "a programmatic launch has no griddepcontrol.wait")
    if asked and not has_tma(target):
        raise failure(lowered, target, f"programmatic launches need sm_90, the target is {target.name}")


def _check_shared(lowered: LoweredKernel, target: Target, index: int, shared: int) -> None:
    """Static and dynamic shared memory come out of one pool."""
    limit = gpu_of(target).shared_bytes
    if shared > limit:
        raise _too_much(lowered, target, index, _SHARED, shared, limit)


def _too_much(
    lowered: LoweredKernel, target: Target, index: int, what: str, number: int, limit: int
) -> CompileError:
    return CompileError(
        f"launch {index} of {lowered.name!r} needs {number} {what}, {target.name} has {limit}",
        place=lowered.launches[index].place,
        why="the config asks for more than a device of this architecture gives to one block",
        remedy=_REMEDIES[what],
        kind=Kind.SHARED_MEMORY if what == _SHARED else Kind.THREADS,
    )


def _launch_code(
    lowered: LoweredKernel,
    index: int,
    symbol: str,
    target: Target,
    reports: dict[str, KernelReport],
) -> LaunchCode:
    launch = launches_of(lowered)[index]
    products = multipliers(launch.roads)
    if gpu_of(target).is_ptx:
        roads = encode(launch.roads)
        gpu = _gpu_launch(launch)
        return LaunchCode(symbol, launch.grid, launch.threads, 0, launch.notes, gpu, roads, products)
    if symbol not in reports:
        raise failure(lowered, target, f"neither the assembler nor its cubin says anything of {symbol}")
    report = reports[symbol]
    _check_shared(lowered, target, index, launch.shared_bytes + report.static_shared)
    if report.registers < launch.entry_registers:
        short = f"{report.registers} registers a thread at launch, the code hands on {launch.entry_registers}"
        raise failure(lowered, target, f"{symbol} has {short}")
    gpu = replace(
        _gpu_launch(launch),
        static_shared=report.static_shared,
        registers=report.registers,
        stack=report.stack,
        spills=report.spills,
    )
    roads = roads_told(launch, report.losses())
    notes = _notes(launch, report)
    return LaunchCode(symbol, launch.grid, launch.threads, 0, notes, gpu, roads, products)


def _gpu_launch(launch: LoweredCudaLaunch) -> CudaLaunch:
    """What is known before the assembler has run."""
    return CudaLaunch(
        dynamic_shared=launch.shared_bytes,
        cluster=launch.cluster,
        blocks_per_sm=launch.blocks_per_unit,
        programmatic=launch.programmatic,
        loaded=launch.loaded,
        cooperative=launch.cooperative,
        tensor_maps=launch.tensor_maps,
        wide=wide_tensors(launch),
    )


def roads_told(launch: LoweredCudaLaunch, losses: Iterable[tuple[str, Loss]]) -> str:
    """The roads of a launch as its image has them, and what the assembler says of it that costs time."""
    lost = (road_at(launch.place, "machine code", how, loss) for how, loss in losses)
    return encode(in_order((*launch.roads, *lost)))


def _notes(launch: LoweredCudaLaunch, report: KernelReport) -> tuple[str, ...]:
    if report.spills is not None:
        return launch.notes
    return (*launch.notes, "the assembler gave no report: whether registers spill is not known")
