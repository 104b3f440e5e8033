"""Shipped kernels and small ones that tests of the passes for CUDA GPUs lower."""

from __future__ import annotations

from pathlib import Path

from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel, walk
from tilec.ir.text.parser import parse_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

SHIPPED = Path(__file__).parents[3] / "examples" / "kernels"
SM80 = parse_target("sm_80")
EIGHTS = Guard(div=8)

ATTENTION = {
    "B": Guard(), "Sq": Guard(), "Sk": Guard(), "H": Guard(), "Hkv": Guard(), "D": Guard(eq=64),
    "q_batch": EIGHTS, "q_row": EIGHTS, "kv_batch": EIGHTS, "kv_row": EIGHTS,
}  # fmt: skip


def shipped(source: str, dims: dict[str, Guard], config: dict[str, object], dtype: str = "float16") -> Kernel:
    """A kernel of examples/kernels."""
    return elaborate(
        load_entry(source, SHIPPED), name="kernel", dims=dims, args={"dtype": dtype}, config=config
    )


def gemm(dtype: str = "float16", columns: Guard = EIGHTS, **config: int) -> Kernel:
    """The plain product with three stages."""
    tiles = {"bM": 128, "bN": 128, "bK": 32, "num_stages": 3, **config}
    dims = {"M": Guard(), "N": columns, "K": columns}
    return shipped("gemm.py:matmul", dims, tiles, dtype)


def attention() -> Kernel:
    """Flash attention of one head size."""
    return shipped("attention.py:attention", ATTENTION, {"bM": 64, "bN": 64})


def kinds(kernel: Kernel, *classes: type) -> list[str]:
    """The class names of the statements of some classes, in program order."""
    return [type(stmt).__name__ for stmt in walk(kernel.body) if isinstance(stmt, classes)]


def tile_kernel(*lines: str) -> Kernel:
    """One block of 64 threads over x and y of 64 numbers."""
    text = [
        'kernel("tile")',
        'x = tensor(float32, (64,), ("64",), access="in")',
        'y = tensor(float32, (64,), ("64",), access="out")',
        "with launch(1, threads=(64, 1, 1)) as (bx,):",
        *(f"    {line}" for line in lines),
    ]
    return parse_kernel("\n".join(text) + "\n")
