"""Package records without machine code."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tilec.codegen.image import Image, LaunchCode, WorkspaceSlice
from tilec.ir.guards import Guard
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, ParamRecord, VariantRecord
from tilec.targets import parse_host


def tensor(
    name: str, *extents: str, access: str = "in", dtype: str = "float32", **more: object
) -> ParamRecord:
    return ParamRecord(name, "tensor", dtype, access, access == "out", extents, **more)


def scalar(name: str, dtype: str) -> ParamRecord:
    return ParamRecord(name, "scalar", dtype)


def variant(symbol: str, target: str = "x86-64-v3", workspace: str = "", **guards: Guard) -> VariantRecord:
    slices = (WorkspaceSlice("partial", workspace),) if workspace else ()
    launches = (LaunchCode(f"{symbol}_0", ("(M + 15) // 16", "2"), (128, 1, 1), 256),)
    code = symbol.encode()
    image = Image(target, code, hashlib.sha256(code).hexdigest(), launches, slices)
    return VariantRecord(target, tuple(guards.items()), image, {"block_M": 16}, ir_text=f"kernel {symbol}")


def kernel(
    params: Sequence[ParamRecord], dims: Sequence[str], *variants: VariantRecord, name: str = "matmul"
) -> KernelRecord:
    records = tuple(DimRecord(dim) for dim in dims)
    return KernelRecord(name, tuple(params), records, tuple(variants), "One line.")


def matmul() -> KernelRecord:
    params = (
        tensor("A", "M", "K // 2", dtype="int8"),
        tensor("B", "K", "64", strides=("S", "1")),
        tensor("C", "M", "64", access="out", dtype="float16"),
        scalar("alpha", "bfloat16"),
        scalar("default", "bool"),
    )
    variants = (
        variant("any", K=Guard(div=2), workspace="4 * M * K"),
        variant("pinned", K=Guard(eq=128), M=Guard(min=1, max=64)),
        variant("plain", "x86-64-v2", K=Guard(eq=128)),
    )
    return kernel(params, ("M", "K", "S"), *variants)


def spec(*kernels: KernelRecord) -> PackageSpec:
    return PackageSpec(
        "demo", "0.1.0", parse_host("x86_64-linux-gnu"), kernels or (matmul(),), {"tilec": "test"}
    )
