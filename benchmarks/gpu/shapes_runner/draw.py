"""Shapes that nobody chose, by a seed: log-uniform sizes of products, attention, rows, quantised products."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: What one set of tensors may take, in bytes, and one call of a matrix kernel, in operations: beyond, a shape
#: is drawn again, so that a run takes a minute and one GPU holds it.
MOST_BYTES, MOST_OPERATIONS = 4 << 30, 4 << 40
PRODUCTS = ("matmul_float16", "matmul_bfloat16", "linear_bfloat16")
ATTENTION = tuple(
    f"attention_dense{causal}_{dtype}" for causal in ("", "_causal") for dtype in ("float16", "bfloat16")
)
ROWS = (
    *(f"{name}_float32" for name in ("softmax", "rmsnorm", "rmsnorm_residual", "scale_add", "silu_mul")),
    *("softmax_float16", "rmsnorm_bfloat16", "rmsnorm_residual_bfloat16", "silu_mul_bfloat16"),
    *("layernorm", "cumsum"),
)
#: What the name of a kernel has beside that of one of these, whose rows are whole vectors.
EVEN = "_even"
QUANTISED = ("linear_fp8", "linear_fp8_blocks", "linear_int8", "linear_packed_w4a16", "linear_packed_w8a16")
#: Of four shapes three have sizes that are multiples of this.
_USUAL_MULTIPLE = 8
_PACKED_GROUP = 128


@dataclass(frozen=True)
class Drawn:
    """A kernel of ``family`` and the sizes that it is called with."""

    family: str
    kernel: str
    dims: dict[str, int]


def drawn(seed: int, counts: dict[str, int]) -> list[Drawn]:
    """So many shapes of each family; a family's do not depend on the others' counts."""
    made = []
    for family, count in counts.items():
        source = random.Random(f"{seed} {family}")
        found = _FAMILIES[family](source)
        made += [next(found) for _ in range(count)]
    return made


def _products(source: random.Random) -> Iterator[Drawn]:
    while True:
        kernel, step = source.choice(PRODUCTS), _step(source)
        dims = {
            "M": log_uniform(source, 1, 16384),
            **{name: log_uniform(source, 128, 32768, step) for name in ("N", "K")},
        }
        if _fits_product(dims):
            yield Drawn("products", kernel, dims)


def drawn_attention(source: random.Random) -> Iterator[Drawn]:
    """Attention of any size, for ever."""
    while True:
        kernel = source.choice(ATTENTION)
        queries, keys = log_uniform(source, 1, 16384), log_uniform(source, 16, 16384)
        groups, key_heads = source.choice((1, 4, 8)), source.choice((1, 2, 4, 8, 16))
        # Two sizes of heads in five are among the manifest's neighbours.
        size = source.choice((64, 128, 64, 128, source.choice((32, 80, 96, 256))))
        dims = {
            "B": log_uniform(source, 1, 64),
            "Sq": keys if "causal" in kernel else queries,
            "Sk": keys,
            "H": groups * key_heads,
            "Hkv": key_heads,
            "D": size,
        }
        rows = dims["B"] * dims["H"] * (dims["Sq"] + dims["Sk"]) * size
        operations = 4 * dims["B"] * dims["H"] * dims["Sq"] * dims["Sk"] * size
        if rows * 8 <= MOST_BYTES and operations <= MOST_OPERATIONS:
            yield Drawn("attention", kernel, dims)


def _rows(source: random.Random) -> Iterator[Drawn]:
    while True:
        dims = {"M": log_uniform(source, 1, 65536), "N": log_uniform(source, 16, 131072, _step(source))}
        kernel = source.choice(ROWS)
        if dims["M"] * dims["N"] * 16 <= MOST_BYTES:
            yield Drawn("rows", kernel, dims)


def _quantised(source: random.Random) -> Iterator[Drawn]:
    while True:
        kernel, step = source.choice(QUANTISED), _step(source)
        depth = _PACKED_GROUP if "packed" in kernel else 2 * step
        dims = {
            "M": log_uniform(source, 1, 16384),
            "N": log_uniform(source, 128, 32768, 2 * step if step > 1 else 1),
            "K": log_uniform(source, 128, 32768, depth if step > 1 or "packed" in kernel else 1),
        }
        if _fits_product(dims):
            yield Drawn("quantised", kernel, dims)


def family_of(kernel: str) -> str:
    """The family that draws a kernel."""
    if kernel.startswith("attention"):
        return "attention"
    if kernel.replace(EVEN, "") in ROWS:
        return "rows"
    return "quantised" if kernel.startswith(QUANTISED) else "products"


_FAMILIES: dict[str, Callable[[random.Random], Iterator[Drawn]]] = {
    "products": _products,
    "attention": drawn_attention,
    "rows": _rows,
    "quantised": _quantised,
}
#: Shapes of each family in a run.
COUNTS = {"products": 60, "attention": 20, "rows": 20, "quantised": 12}


def _step(source: random.Random) -> int:
    return source.choice((_USUAL_MULTIPLE, _USUAL_MULTIPLE, _USUAL_MULTIPLE, 1))


def log_uniform(source: random.Random, least: int, most: int, multiple: int = 1) -> int:
    """Log-uniform between the two, down to a multiple."""
    found = round(math.exp(source.uniform(math.log(least), math.log(most))))
    return max(found // multiple * multiple, least)


def _fits_product(dims: dict[str, int]) -> bool:
    m, n, k = dims["M"], dims["N"], dims["K"]
    return 2 * (m * k + n * k + 2 * m * n) <= MOST_BYTES and 2 * m * n * k <= MOST_OPERATIONS
