"""Small kernels for single instructions: a helper in C, run by one or a few warps.

Each case is a helper ``run(in, out, shared, sums, thread, rank, map...)`` in a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tilec.backends.cuda.launch import LoweredCudaLaunch, TensorMapCode
from tilec.lowering.lowered import LoweredKernel

Inputs = Callable[[np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Case:
    """``source`` is the body of the helper; ``inputs`` its words, ``outputs`` how many words it writes.
    ``floats`` compares them as float32 with a relative tolerance, else bit for bit."""

    name: str
    source: str
    inputs: Inputs
    outputs: int
    threads: int = 32
    blocks: int = 1
    cluster: int = 1
    shared: int = 1024
    sums: tuple[str, int] = ("float32", 1)
    floats: float | None = None
    maps: tuple[TensorMapCode, ...] = field(default=())


# ---- inputs ----


def words(count: int) -> Inputs:
    return lambda rng: rng.integers(0, 1 << 32, count, dtype=np.uint32)


def floats(count: int, scale: float = 1.0) -> Inputs:
    return lambda rng: (rng.standard_normal(count) * scale).astype(np.float32).view(np.uint32)


def positive(count: int) -> Inputs:
    return lambda rng: rng.uniform(0.01, 30.0, count).astype(np.float32).view(np.uint32)


def packed(count: int, dtype: np.dtype | type) -> Inputs:
    """Words of small floats or integers."""
    kind = np.dtype(dtype)
    each = 4 // kind.itemsize

    def made(rng: np.random.Generator) -> np.ndarray:
        if kind.kind in "iu":
            return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, count * each, kind, True).view(
                np.uint32
            )
        return rng.standard_normal(count * each).astype(np.float32).astype(kind).view(np.uint32)

    return made


def together(*parts: Inputs) -> Inputs:
    return lambda rng: np.concatenate([part(rng) for part in parts])


def by_thread(threads: int, *parts: Inputs) -> Inputs:
    """Parts that each give the same number of words to each thread, thread by thread."""

    def made(rng: np.random.Generator) -> np.ndarray:
        return np.concatenate([part(rng).reshape(threads, -1) for part in parts], axis=1).reshape(-1)

    return made


# ---- C ----


def asm(text: str, outputs: str = "", inputs: str = "") -> str:
    """Inline assembly."""
    return f'asm volatile("{text}" : {outputs} : {inputs} : "memory");'


def fill(threads: int, count: int) -> str:
    """C that copies ``count`` words of the input to shared memory."""
    place = f"[at * {threads} + thread]"
    return f"for (int at = 0; at < {count // threads}; ++at) ((unsigned*)shared){place} = in{place};"


def read_back(threads: int, count: int, start: str = "") -> str:
    """C that copies ``count`` words of shared memory to the output, from ``start`` on."""
    place = f"[at * {threads} + thread]"
    loop = f"for (int at = 0; at < {count // threads}; ++at)"
    return f"{loop} (out + {start or 0}){place} = ((unsigned*)shared){place};"


SYNC_PROXIES = asm("fence.proxy.async;")


# ---- kernels ----

_HEAD = """__device__ __forceinline__ void {name}(const unsigned* in, unsigned* out, void* shared,
                                              {sums}* sums, int thread, int rank{maps}) {{
  {body}
}}
"""


def launch(case: Case) -> LoweredCudaLaunch:
    """The kernel of a case: parameters are its input, its output and its tensor maps."""
    name = f"run_{case.name}"
    maps = "".join(f", unsigned long long map{at}" for at in range(len(case.maps)))
    kind = {"int32": "int", "uint32": "unsigned"}.get(case.sums[0], "float")
    source = _HEAD.format(name=name, sums=kind, maps=maps, body=case.source)
    with IRBuilder() as builder, T.prim_func(is_private=False, s_tir=False):
        T.func_name("kernel")
        T.func_attr({"tirx.noalias": True})
        pointers = [T.arg(text, T.handle("uint32", "global")) for text in ("in_ptr", "out_ptr")]
        given = [T.arg(f"map_{at}", T.TensorMap()) for at in range(len(case.maps))]
        tensors = [T.decl_buffer((tirx.const(1 << 40, "int64"),), "uint32", data=each) for each in pointers]
        with (
            T.launch_thread("blockIdx.x", case.blocks) as block,
            T.launch_thread("threadIdx.x", case.threads) as thread,
        ):
            memory = T.alloc_buffer((case.shared,), "uint8", scope="shared.dyn", align=1024)
            sums = T.alloc_buffer((case.sums[1],), case.sums[0], scope="local")
            args = [
                tensors[0].ptr_to([0]),
                tensors[1].ptr_to([0]),
                memory.ptr_to([0]),
                sums.ptr_to([0]),
                thread,
                block,
            ]
            T.evaluate(
                T.cuda.func_call(name, *args, *(T.address_of(each) for each in given), source_code=source)
            )
    return LoweredCudaLaunch(
        builder.get(),
        (str(case.blocks),),
        (case.threads, 1, 1),
        shared_bytes=case.shared,
        cluster=(case.cluster, 1, 1),
        tensor_maps=case.maps,
    )


def lowered(case: Case) -> LoweredKernel:
    """A kernel of one case."""
    return LoweredKernel(case.name, (launch(case),))


def inputs(case: Case) -> np.ndarray:
    """The input words of a case, always the same."""
    return np.ascontiguousarray(case.inputs(np.random.default_rng(sum(case.name.encode()))))
