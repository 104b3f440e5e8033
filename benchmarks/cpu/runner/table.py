"""What is measured: kernels of manifests/llm.toml and shapes."""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One kernel at one shape; ``group`` is what ``--only`` names."""

    group: str
    kernel: str
    shape: tuple[Any, ...]


PRODUCT = "matmul_float32"
#: M, N, K.
PRODUCTS = (
    (1024, 1024, 1024),
    (512, 4096, 4096),
    (384, 1536, 384),
    (1000, 1000, 1000),
    (64, 64, 4096),
    (2048, 32, 2048),
    (1, 4096, 4096),
)
#: One row and weights that no cache holds, as in a model of many layers.
FROM_MEMORY = (1, 28672, 8192)
NARROW = ((1024, 1024, 1024), (16, 4096, 4096), (1, 4096, 4096), FROM_MEMORY)
#: Weights that lie in the last cache of servers, whole and in part, and others.
WEIGHTS = (*((rows, 4096, 4096) for rows in (1, 4, 16, 64)), (1, 14336, 4096), FROM_MEMORY)
#: B, Sq, Sk, H, D.
ATTENTION = (
    (1, 1024, 1024, 12, 64),
    (8, 256, 256, 12, 64),
    (1, 4096, 4096, 4, 64),
    (1, 1024, 1024, 12, 128),
    (16, 1, 1024, 12, 64),
)
#: Sequences, keys of each, key heads, queries of one of them, D, and how many of the last keys count.
DECODING = ((1, 4096, 8, 4, 128, 4096), (8, 1024, 8, 4, 128, 1024), (4, 4096, 8, 8, 64, 1024))
#: Lengths of sequences, heads, key heads, D.
RAGGED = (((37, 411, 64, 512), 16, 4, 128), ((256,) * 4, 12, 12, 64))
#: Rows and columns.
ROWS = ((256, 1024), (4096, 1024), (256, 1000), (512, 384), (256, 4096))
#: Tokens and experts.
GATING = ((1024, 64), (1024, 128))
#: Tokens, rows of the table, D.
LOOKUPS = ((1024, 30000, 384), (1024, 30000, 1024))
#: Tokens, heads, D.
ROTARY = ((2048, 32, 128),)

_TABLE = (
    ("products", PRODUCT, PRODUCTS),
    ("16-bit", "linear_bfloat16", NARROW),
    ("8-bit", "linear_int8", NARROW),
    ("packed", "linear_packed_w4a16", WEIGHTS),
    ("packed", "linear_packed_w8a16", WEIGHTS),
    ("packed", "linear_w4a8_g32", WEIGHTS),
    ("packed", "linear_w4a8_g128", WEIGHTS),
    ("packed", "linear_w4a16_g32", WEIGHTS),
    ("packed", "linear_q4_0", WEIGHTS),
    ("packed", "linear_q4_k", WEIGHTS),
    ("attention", "attention_dense_bfloat16", ATTENTION),
    ("attention", "attention_float32", ATTENTION),
    ("caches", "decode_paged_bfloat16", tuple((*shape[:5], shape[1]) for shape in DECODING)),
    ("caches", "decode_paged_int8_token", DECODING),
    ("caches", "decode_paged_int8_head", DECODING),
    ("caches", "decode_paged_float8_e4m3fn_token", DECODING),
    ("ragged", "attention_varlen_bfloat16", RAGGED),
    ("ragged", "attention_varlen_causal_bfloat16", RAGGED),
    ("rows", "softmax_float32", ROWS),
    ("rows", "rmsnorm_float32", ROWS),
    ("rows", "layernorm", ROWS),
    ("rows", "silu_mul_float32", ROWS),
    ("rows", "linear_gelu_float32", ((512, 1536, 384),)),
    ("rows", "rotary_float32", ROTARY),
    ("rows", "cumsum", ROWS),
    ("rows", "topk_gating", GATING),
    ("rows", "embedding_float32", LOOKUPS),
    ("rows", "argmax", (*ROWS, (64, 128000))),
)
KERNELS = tuple(kernel for _, kernel, _ in _TABLE)
GROUPS = tuple(dict.fromkeys(group for group, _, _ in _TABLE))
_LARGE = tuple(Row(group, kernel, (4096, 4096, 4096)) for group, kernel, _ in _TABLE[:3])

#: Random products: M from 1, N and K from 16 to ``_LONGEST``, at most ``_MULTIPLICATIONS``.
_LONGEST, _MULTIPLICATIONS = 8192, 1 << 32


def rows(groups: list[str], large: bool, random_shapes: int, seed: int) -> list[Row]:
    """The table's rows of some groups, or of all; ``large``: 4096^3, too; then products drawn by a seed."""
    named = [Row(group, kernel, shape) for group, kernel, shapes in _TABLE for shape in shapes]
    drawn = [Row("random", PRODUCT, shape) for shape in _drawn(random_shapes, random.Random(seed))]
    wanted = groups or [*GROUPS, "random"]
    return [row for row in (*named, *(_LARGE if large else ()), *drawn) if row.group in wanted]


def _drawn(count: int, generator: random.Random) -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = []
    while len(shapes) < count:
        shape = tuple(_length(least, generator) for least in (1, 16, 16))
        if math.prod(shape) <= _MULTIPLICATIONS:
            shapes.append(shape)
    return shapes


def _length(least: int, generator: random.Random) -> int:
    """Log-uniform."""
    return round(math.exp(generator.uniform(math.log(least), math.log(_LONGEST))))
