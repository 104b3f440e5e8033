"""Atomic updates in code for AMD GPUs: each kind, type and order compiles, by instructions that there are."""

from __future__ import annotations

from breadth import diagonal, parametrized

import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.hip.codegen import images
from tilec.backends.hip.codegen.header import ATOMICS
from tilec.backends.hip.codegen.text import amd_text
from tilec.backends.pipeline import lower
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

WHOLE = ("int32", "uint32", "int64", "uint64")
REAL = ("float32", "float64", "float16", "bfloat16")
CHIPS, ORDERS = ("gfx942", "gfx1100"), ("relaxed", "seq_cst")


def updates(dtype: str, order: str, M=None):
    """All kinds of updates of shared and of global memory, an atomic load and a store."""
    kinds = ("add", "max", "min", "or") if dtype in WHOLE else ("add", "max", "min")

    @T.prim_func
    def main(X: T.Tensor((M,), dtype), places: T.Tensor((M,), "int32"), Y: T.Tensor((16,), dtype)):
        with T.Kernel(T.ceildiv(M, 128), threads=128) as b:
            s = T.alloc_shared((16,), dtype)
            T.clear(s)
            for i in T.Parallel(128):
                if b * 128 + i < M:
                    for kind in kinds:
                        getattr(T, f"atomic_{kind}")(
                            s[places[b * 128 + i]], X[b * 128 + i], memory_order=order
                        )
            for i in T.Parallel(16):
                for kind in kinds:
                    getattr(T, f"atomic_{kind}")(Y[i], s[i], memory_order=order)
                T.atomic_store(X[i], T.atomic_load(Y[i], memory_order=order), memory_order=order)

    return main


@parametrized(
    ("chip", "dtype", "order"),
    [(chip, dtype, order) for chip in CHIPS for dtype in (*WHOLE, *REAL) for order in ORDERS],
    fast=diagonal(CHIPS, (*WHOLE, *REAL), ORDERS),
)
def test_updates(chip: str, dtype: str, order: str) -> None:
    target = parse_target(chip)
    kernel = elaborate(
        updates, name="p", dims={"M": Guard()}, args={"dtype": dtype, "order": order}, config={}
    )
    lowered = backend_of(target).lower_kernel(lower(kernel, target), target)
    assert images.compile_kernel(lowered, target, "p").code
    text = images.assembly(lowered, target, "p")
    assert "global_atomic_cmpswap" in text or dtype in WHOLE, "numbers have no maximum of their own"
    if dtype == "int32":
        assert "global_atomic_or" in text
        assert "ds_or" in text


def test_instructions_that_load_and_store() -> None:
    load = 'asm volatile("ld.relaxed.gpu.b32 %0, [%1];" : "=r"(before) : "l"(at) : "memory");'
    assert amd_text(load) == "before = tilec_ld_relaxed_gpu_b32(at);"
    store = 'asm volatile("st.relaxed.gpu.b16 [%0], %1;" : : "l"(at), "h"(f(bits)) : "memory");'
    assert amd_text(store) == "tilec_st_relaxed_gpu_b16(at, f(bits));"
    body = 'unsigned short b; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(f)); return b;'
    lambdas = f"([](float f) {{ {body} }})(made)"
    assert amd_text(lambdas).count("(f);") == 1
    assert "__hip_atomic_fetch_add" not in ATOMICS.split("#else")[1]
