"""Every kernel that ships has CUDA source for sm_80, with the tile sizes of GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.manifest import load_manifest
from tilec.targets import parse_target

ROOT = Path(__file__).parents[4]
KERNELS = ROOT / "examples" / "kernels"
SM80 = parse_target("sm_80")
HALF = {"dtype": "float16"}
TILES = {"bM": 64, "bN": 64, "bK": 64, "num_stages": 3}
HEADS = {"H": 0, "Hkv": 0, "D": 64}
STRIDES = {"q_batch": 8, "q_row": 8, "kv_batch": 8, "kv_row": 8}

#: Entry, dims (32 and more: pinned; less: a divisor; 0: dynamic), arguments, config.
SHIPPED = [
    ("gemm.py:matmul", {"M": 0, "N": 8, "K": 8}, HALF, TILES),
    ("gemm.py:matmul", {"M": 0, "N": 0, "K": 0}, {"dtype": "bfloat16"}, TILES),
    ("gemm.py:linear", {"M": 0, "N": 8, "K": 8}, {**HALF, "activation": "gelu"}, TILES),
    ("gemm.py:linear_residual", {"M": 0, "N": 4, "K": 4}, {"dtype": "float32"}, {**TILES, "bK": 32}),
    ("gemm.py:linear_silu_mul", {"M": 0, "N": 8, "K": 8}, HALF, {**TILES, "threads": 128}),
    ("fp8.py:linear_fp8_silu_mul", {"M": 0, "N": 16, "K": 16}, {}, {"bM": 64, "bN": 64, "threads": 128}),
    ("gemm.py:linear_int8", {"M": 0, "N": 16, "K": 16}, {}, TILES),
    ("packed.py:pack", {"N": 16, "K": 0, "ldw": 0}, HALF, {"P": 16}),
    ("packed.py:linear", {"M": 0, "K": 8, "N": 1024}, HALF, {"bM": 64, "bN": 128, "bK": 64}),
    ("softmax.py:softmax", {"M": 0, "N": 8, "ldx": 8}, HALF, {}),
    ("norm.py:rmsnorm", {"M": 0, "N": 4096, "ldx": 8}, {**HALF, "rows": 1}, {}),
    ("norm.py:rmsnorm_residual", {"M": 0, "N": 1000, "ldx": 0}, {**HALF, "rows": 4}, {}),
    ("norm.py:layernorm", {"M": 0, "N": 384, "ldx": 8}, {"rows": 4}, {}),
    ("norm.py:layernorm_residual", {"M": 0, "N": 768, "ldx": 8}, {**HALF, "rows": 4}, {}),
    ("elementwise.py:scale_add", {"n": 0}, HALF, {}),
    ("elementwise.py:silu_mul", {"M": 0, "N": 8, "ldg": 8, "ldu": 8}, HALF, {}),
    ("rotary.py:rotary", {"tokens": 0, "H": 0, "D": 128, "S": 0, "ldx": 8, "ldy": 8}, HALF, {}),
    ("embedding.py:embedding", {"tokens": 0, "V": 0, "D": 0}, HALF, {}),
    ("embedding.py:bert_embedding", {"tokens": 0, "V": 0, "D": 384, "S": 0, "U": 0}, {}, {}),
    ("pool.py:mean_pool", {"tokens": 0, "D": 384, "B": 0, "ldx": 0}, {}, {}),
    ("attention.py:attention", {"B": 0, "Sq": 0, "Sk": 0, **HEADS, **STRIDES}, HALF, {"bM": 64, "bN": 64}),
    ("attention.py:attention_ragged", {"tokens": 0, **HEADS, "q_row": 0, "kv_row": 0, "B": 0}, {},
     {"bM": 32, "bN": 16}),
]  # fmt: skip


def guard(number: int) -> Guard:
    """What a number of the list above means."""
    if number == 0:
        return Guard()
    return Guard(eq=number) if number >= 32 else Guard(div=number)


@pytest.mark.parametrize(
    ("entry", "dims", "args", "config"), SHIPPED, ids=[f"{case[0]}-{case[2]}" for case in SHIPPED]
)
def test_shipped_kernel_has_source(entry, dims, args, config) -> None:
    guards = {name: guard(number) for name, number in dims.items()}
    kernel = elaborate(load_entry(entry, KERNELS), name="kernel", dims=guards, args=args, config=config)
    lowered = to_tir(lower(kernel, SM80), SM80)
    text = cuda.source(lowered, SM80, "test")
    assert text.count('extern "C" __global__') == 2 * len(lowered.launches)


@pytest.mark.parametrize("name", ["matmul_nt_float16", "matmul_nt_late_bfloat16"])
def test_small_products_share_loads_where_rows_of_operands_may_be_unaligned(name) -> None:
    plan = load_manifest(ROOT / "benchmarks" / "gpu" / "bundle.toml")
    kernel = next(kernel for kernel in plan.kernels if kernel.name == name)
    small = [variant for variant in kernel.variants if variant.dims["M"].admits(1000)]
    small = [variant for variant in small if not variant.dims["M"].admits(2000)]
    shared = {(variant.dims["K"].div, variant.config["cluster"] != 1) for variant in small}
    assert shared == {(64, False), (8, True)}
