"""Kernels in process: what a warm call costs from Python, and how many kernels `par_compile` makes a second.

    python benchmarks/inprocess.py [--configs 64] [--target sm_90a] [--calls-only]

Calls are measured on the CUDA device if there is one, else on the CPU, beside the typed door through
ctypes. Compilation starts with an empty cache and needs no GPU."""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from gpu.runner.inprocess.kernels import matmul

import tilec
import tilec.language as T
from tilec.portable.loader import _Device, _Exec


@tilec.jit
def add(A, B, C, block: int = 256):
    """C = A + B."""
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B: T.Tensor[[N], T.float32]
    C: T.Tensor[[N], T.float32]
    with T.Kernel(T.ceildiv(N, block), threads=block) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] + B[bx * block + i]


def main() -> None:
    """Prints what was measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--configs", type=int, default=64)
    parser.add_argument("--target", default="sm_90a", help="the CUDA target of par_compile")
    parser.add_argument("--calls-only", action="store_true")
    options = parser.parse_args()
    measure_calls()
    if not options.calls_only:
        for target, dtype in (("cpu", "float32"), (options.target, "float16")):
            measure_compilation(target, dtype, options.configs)


# ---- calls ----


def measure_calls() -> None:
    """The three ways of a call with three torch tensors, and the key of one."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = [torch.randn(4096, device=device) for _ in range(3)]
    kernel = add.compile(N=4096)
    kernel(*tensors)
    print(f"a warm call with three torch tensors on {device}, us, median of 15 runs of 300")
    rows: dict[str, Callable[[], Any]] = {
        "JITKernel": lambda: kernel(*tensors),
        "eager @tilec.jit": lambda: add(*tensors),
        "the loader": lambda: kernel._call(*tensors),
        "parse_cache_key": lambda: add.parse_cache_key(*tensors),
        "torch.add(out=)": lambda: torch.add(tensors[0], tensors[1], out=tensors[2]),
    }
    launch = typed_door(kernel, tensors, device)
    for name, call in rows.items():
        print(f"  {name:20} {microseconds(call):7.2f}")
    print(f"  {'typed door, ctypes':20} {microseconds(launch):7.2f}")
    print(f"  {'ctypes alone':20} {microseconds(nothing()):7.2f}")


def typed_door(kernel: Any, tensors: list[Any], device: str) -> Callable[[], Any]:
    """The launch itself, but for what ctypes adds."""
    door = getattr(ctypes.CDLL(str(kernel.lib_path)), f"{kernel._card.package}_add")
    how = _Exec(struct_size=ctypes.sizeof(_Exec), device=_Device(2 if device == "cuda" else 1, 0))
    arguments = (
        ctypes.byref(how),
        *(ctypes.c_void_p(each.data_ptr()) for each in tensors),
        ctypes.c_int64(4096),
    )
    return lambda: door(*arguments)


def nothing() -> Callable[[], Any]:
    """A C function that does nothing, with as many arguments."""
    function = ctypes.CDLL(None).getpid
    arguments = (ctypes.byref(ctypes.c_int()), *(ctypes.c_void_p(1) for _ in range(3)), ctypes.c_int64(1))
    return lambda: function(*arguments)


def microseconds(call: Callable[[], Any], count: int = 300, runs: int = 15) -> float:
    """The median over runs of ``count`` calls that are waited for in between."""
    import torch

    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - begin) / count)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return 1e6 * statistics.median(times)


# ---- compilation ----


def measure_compilation(target: str, dtype: str, count: int) -> None:
    """`par_compile` of ``count`` configs of one GEMM, nothing cached."""
    tiles = itertools.product((32, 64, 128), (32, 64, 128), (32, 64), (2, 3, 4, 5))
    configs = [(1024, 1024, 1024, *tile, dtype) for tile in itertools.islice(tiles, count)]
    jitted = tilec.jit(matmul.func, out_idx=[-1], target=target)
    print(f"a GEMM for {target}: {cpu_seconds(jitted, configs[:4]):.2f} s of CPU time")
    workers = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEC_CACHE_DIR"] = folder
        begin = time.perf_counter()
        made = jitted.par_compile(configs, ignore_error=True)
        seconds = time.perf_counter() - begin
    done = sum(kernel is not None for kernel in made)
    print(f"par_compile for {target}: {done} of {len(configs)} GEMM configs in {seconds:.1f} s")
    each = seconds * workers / max(done, 1)
    print(f"  {workers} processes, {done / seconds:.2f} kernels a second, {each:.2f} core seconds each")


def cpu_seconds(jitted: Any, configs: list[tuple[Any, ...]]) -> float:
    """CPU time of one kernel, in this process and the C compiler; the first one warms up."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEC_CACHE_DIR"] = folder
        jitted.compile(*configs[0])
        before = _used()
        for config in configs[1:]:
            jitted.compile(*config)
        return (_used() - before) / (len(configs) - 1)


def _used() -> float:
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in found)


if __name__ == "__main__":
    main()
