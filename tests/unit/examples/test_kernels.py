"""Every kernel that ships, elaborated and run by the interpreter, against its NumPy reference."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tilec.ir.guards import Guard
from tilec.ir.interp.interpreter import run
from tilec.ir.interp.values import numpy_dtype
from tilec.ir.nodes import Kernel, TensorParam
from tilec.language.frontend.elaborate import elaborate, load_entry

KERNELS = Path(__file__).resolve().parents[3] / "examples" / "kernels"


@dataclass(frozen=True)
class Case:
    """One kernel at one shape. ``pinned`` dims are compiled in, the others are run-time values."""

    entry: str
    dims: Mapping[str, int]
    pinned: tuple[str, ...] = ()
    args: Mapping[str, object] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)
    reference: str = ""
    inputs: str = ""
    rtol: float = 2e-5

    @property
    def id(self) -> str:
        extra = [f"{key}={value}" for key, value in self.args.items()]
        return "-".join([self.entry.replace(".py:", "."), *extra, *map(str, self.dims.values())])


TILES = {"bM": 8, "bN": 16, "bK": 8}
PANELS = {"bM": 8, "bN": 32, "bK": 8, "P": 16}
HALF = {"dtype": "float16"}
ROUNDED = {"weight_dtype": "float16"}

GEMMS = [
    Case("gemm.py:matmul", {"M": 13, "N": 21, "K": 19}, config=TILES),
    Case("gemm.py:matmul", {"M": 16, "N": 32, "K": 16}, ("N", "K"), config=TILES),
    Case("gemm.py:matmul", {"M": 5, "N": 17, "K": 9}, args=HALF, config=TILES, rtol=4e-3),
    Case("gemm.py:linear", {"M": 9, "N": 18, "K": 11}, config=TILES),
    Case("gemm.py:linear", {"M": 9, "N": 18, "K": 11}, args={"activation": "gelu"}, config=TILES,
         reference="linear_gelu_reference"),
    Case("gemm.py:linear", {"M": 9, "N": 18, "K": 11}, args={"activation": "silu"}, config=TILES,
         reference="linear_silu_reference"),
    Case("gemm.py:linear_residual", {"M": 3, "N": 5, "K": 24}, config=TILES),
    Case("gemm.py:linear_silu_mul", {"M": 9, "N": 18, "K": 11}, config=TILES),
    Case("gemm.py:linear_silu_mul", {"M": 9, "N": 18, "K": 24}, ("K",), {"dtype": "bfloat16"}, TILES,
         rtol=3e-2),
    Case("gemm.py:linear_int8", {"M": 7, "N": 19, "K": 40}, config=TILES),
    Case("packed.py:pack", {"N": 64, "K": 13, "ldw": 15}, config={"bK": 8}),
    Case("packed.py:pack", {"N": 32, "K": 1, "ldw": 1}, config={"bK": 8}),
    Case("packed.py:linear", {"M": 9, "K": 20, "N": 48}, config=PANELS),
    Case("packed.py:linear", {"M": 9, "K": 16, "N": 64}, ("K",), {"activation": "gelu"}, PANELS,
         reference="linear_gelu_reference"),
    Case("packed.py:linear", {"M": 9, "K": 16, "N": 64}, ("K",), {"activation": "silu"}, PANELS,
         reference="linear_silu_reference"),
    Case("packed.py:pack", {"N": 32, "K": 9, "ldw": 9}, (), ROUNDED, {"bK": 8}, rtol=4e-3),
    Case("packed.py:linear", {"M": 9, "K": 20, "N": 48}, (), ROUNDED, PANELS, rtol=4e-3),
    Case("packed.py:linear_residual", {"M": 17, "K": 24, "N": 32}, config=PANELS),
]  # fmt: skip

#: Arguments of products with scales, by what their inputs are called.
BLOCKSCALED = {
    "mxfp8": {},
    "mxfp4": {"dtype": "float4_e2m1fn"},
    "nvfp4": {"dtype": "float4_e2m1fn", "scale_dtype": "float8_e4m3fn", "sf_size": 16},
}

ROWS = [
    Case("softmax.py:softmax", {"M": 5, "N": 37, "ldx": 40}, config={"rows": 2, "bN": 16}),
    Case("softmax.py:softmax", {"M": 3, "N": 16, "ldx": 16}, (), HALF, {"rows": 2, "bN": 16}, rtol=4e-3),
    Case("softmax.py:softmax", {"M": 5, "N": 37, "ldx": 40}, config={"rows": 2, "bN": 16, "wait": True}),
    Case("softmax.py:softmax", {"M": 5, "N": 13, "ldx": 14}, config={"rows": 2, "bN": 16, "one_chunk": True}),
    Case("softmax.py:softmax", {"M": 5, "N": 13, "ldx": 14}, (), HALF,
         {"rows": 2, "bN": 16, "parts": 1, "one_chunk": True, "as_stored": True}, rtol=4e-3),
    Case("softmax.py:softmax", {"M": 3, "N": 37, "ldx": 40}, ("N",), config={"bN": 16, "keep_row": True}),
    Case("softmax.py:softmax", {"M": 2, "N": 32, "ldx": 32}, ("N",), HALF, {"bN": 16, "keep_row": True},
         rtol=4e-3),
    Case("norm.py:rmsnorm", {"M": 5, "N": 24, "ldx": 30}, ("N",), config={"rows": 2}),
    Case("norm.py:rmsnorm_residual", {"M": 5, "N": 24, "ldx": 24}, ("N",), config={"rows": 2}),
    Case("norm.py:layernorm", {"M": 3, "N": 17, "ldx": 17}, ("N",), config={"rows": 2}),
    Case("norm.py:layernorm_residual", {"M": 4, "N": 24, "ldx": 25}, ("N",), config={"rows": 2}),
    Case("norm.py:layernorm_residual", {"M": 4, "N": 24, "ldx": 25}, ("N",), HALF, {"rows": 2}, rtol=4e-3),
    Case("norm.py:rmsnorm", {"M": 5, "N": 9, "ldx": 9}, config={"rows": 2, "bN": 16}),
    Case("norm.py:rmsnorm", {"M": 5, "N": 37, "ldx": 40}, (), HALF, {"rows": 2, "bN": 16}, rtol=4e-3),
    Case("norm.py:rmsnorm_residual", {"M": 5, "N": 48, "ldx": 50}, config={"rows": 2, "bN": 16}),
    Case("norm.py:layernorm", {"M": 3, "N": 37, "ldx": 37}, config={"rows": 2, "bN": 16}),
    Case("norm.py:layernorm_residual", {"M": 4, "N": 21, "ldx": 25}, (), HALF, {"rows": 2, "bN": 16},
         rtol=4e-3),
    Case("norm.py:layernorm_residual", {"M": 3, "N": 37, "ldx": 40},
         config={"rows": 2, "bN": 16, "reread": True, "by_columns": True}),
    Case("elementwise.py:scale_add", {"n": 37}, config={"block": 16}),
    Case("elementwise.py:silu_mul", {"M": 3, "N": 21, "ldg": 42, "ldu": 50}, config={"rows": 2, "bN": 16}),
    Case(
        "elementwise.py:silu_mul",
        {"M": 3, "N": 21, "ldg": 42, "ldu": 50},
        config={"rows": 2, "bN": 16, "ahead": True},
    ),
    Case("rotary.py:rotary", {"tokens": 5, "H": 2, "D": 8, "S": 9, "ldx": 20, "ldy": 16}, ("D",),
         config={"rows": 2}, inputs="rotary_inputs"),
    Case("rotary.py:rotary", {"tokens": 3, "H": 3, "D": 4, "S": 4, "ldx": 12, "ldy": 14}, ("D",),
         {"interleaved": True}, {"rows": 2}, "rotary_interleaved_reference", "rotary_inputs"),
    Case("embedding.py:embedding", {"tokens": 7, "V": 11, "D": 6},
         config={"rows": 2}, inputs="embedding_inputs"),
    Case("embedding.py:embedding", {"tokens": 7, "V": 11, "D": 6},
         config={"rows": 2, "bN": 4}, inputs="embedding_inputs"),
    Case("embedding.py:bert_embedding", {"tokens": 7, "V": 11, "D": 12, "S": 5, "U": 2}, ("D",),
         config={"rows": 2}, inputs="bert_embedding_inputs"),
    Case("pool.py:mean_pool", {"tokens": 15, "D": 8, "B": 4, "ldx": 9}, ("D",), inputs="mean_pool_inputs"),
]  # fmt: skip

ATTENTION = {"B": 2, "Sq": 9, "Sk": 13, "H": 4, "Hkv": 2, "D": 8}
STRIDES = {"q_batch": 300, "q_row": 32, "kv_batch": 400, "kv_row": 30}
RAGGED = {"tokens": 21, "H": 2, "Hkv": 1, "D": 8, "q_row": 40, "kv_row": 40, "B": 3}
BLOCKS = {"bM": 4, "bN": 8}
HEADS = ("H", "Hkv", "D")

ATTENTIONS = [
    Case("attention.py:attention", ATTENTION | STRIDES, HEADS, {}, BLOCKS, inputs="attention_inputs"),
    Case("attention.py:attention", ATTENTION | STRIDES, HEADS, {"causal": True}, BLOCKS,
         "attention_causal_reference", "attention_inputs"),
    Case("attention.py:attention", ATTENTION | STRIDES, HEADS, HALF, BLOCKS,
         inputs="attention_inputs", rtol=4e-3),
    Case("attention.py:attention_dense", ATTENTION | STRIDES, HEADS, {}, BLOCKS,
         inputs="attention_dense_inputs"),
    Case("attention.py:attention_dense", ATTENTION | STRIDES | {"Sq": 13, "Sk": 9, "q_batch": 420}, HEADS,
         {"causal": True}, BLOCKS, "attention_dense_causal_reference", "attention_dense_inputs"),
    Case("attention.py:attention", ATTENTION | STRIDES, (), HALF, BLOCKS | {"width": 16},
         inputs="attention_inputs", rtol=4e-3),
    Case("attention.py:attention_dense", ATTENTION | STRIDES, (), {"causal": True}, BLOCKS | {"width": 12},
         "attention_dense_causal_reference", "attention_dense_inputs"),
    Case("attention.py:attention_dense", ATTENTION | STRIDES, HEADS, {}, BLOCKS | {"blocks": 64},
         inputs="attention_dense_inputs"),
    Case("attention.py:attention_dense", ATTENTION | STRIDES | {"Sq": 13, "Sk": 9, "q_batch": 420}, HEADS,
         {"causal": True}, BLOCKS | {"blocks": 64}, "attention_dense_causal_reference",
         "attention_dense_inputs"),
    Case("attention.py:attention_dense", ATTENTION | STRIDES | {"Sq": 13, "Sk": 9, "q_batch": 420}, HEADS,
         {"causal": True}, BLOCKS | {"blocks": 1}, "attention_dense_causal_reference",
         "attention_dense_inputs"),
    Case("attention.py:attention_dense", ATTENTION | STRIDES | {"B": 1, "Sq": 3, "Sk": 77, "kv_batch": 2400},
         HEADS, {}, BLOCKS | {"blocks": 64}, inputs="attention_dense_inputs"),
    Case("attention.py:attention", ATTENTION | STRIDES | {"H": 3}, HEADS, HALF, BLOCKS | {"blocks": 64},
         inputs="attention_inputs", rtol=4e-3),
    Case("attention.py:attention", ATTENTION | STRIDES | {"H": 3}, HEADS, HALF, BLOCKS | {"blocks": 1},
         inputs="attention_inputs", rtol=4e-3),
    Case("attention.py:attention_ragged", RAGGED, HEADS, {}, BLOCKS, inputs="attention_ragged_inputs"),
    Case("attention.py:attention_ragged", RAGGED, HEADS, {"causal": True}, BLOCKS,
         "attention_ragged_causal_reference", "attention_ragged_inputs"),
]  # fmt: skip


BF16 = {"dtype": "bfloat16"}
F32 = {"dtype": "float32"}
E4M3 = "float8_e4m3fn"
VARLEN = {"tokens": 21, "keys": 26, "H": 4, "Hkv": 2, "D": 8, "B": 3}
PAGED = {"B": 3, "Hkv": 2, "D": 8, "pages": 9, "longest": 4, "kv_page": 72, "kv_row": 8, "kv_head": 32}
PAGES = {"bM": 4, "bN": 8, "splits": 3}
QUANTISED = {"M": 5, "N": 11, "K": 300}
#: What weights of few bits become for many rows, and how far off results may be.
UNPACKED = (("float32", 4e-3), ("bfloat16", 2e-2))

EXPERTS = [
    Case("scan.py:cumsum", {"M": 5, "N": 37, "ldx": 40}, config={"rows": 2, "bN": 16}),
    Case("scan.py:cumsum", {"M": 3, "N": 16, "ldx": 16}, (), HALF, {"rows": 2, "bN": 16}, rtol=4e-3),
    Case("argmax.py:argmax", {"M": 5, "N": 37, "ldx": 40}, config={"rows": 2}),
    Case("argmax.py:argmax", {"M": 3, "N": 16, "ldx": 16}, ("N",), HALF),
    *(Case("sampling.py:sample", {"M": 10, "N": 77}, (), {"dtype": dtype}, {"bN": 32}, inputs="sample_inputs")
      for dtype in ("float32", "bfloat16", "float16")),
    Case("sampling.py:resolve", {"n": 9, "sampled": 4}, config={"block": 4}, inputs="resolve_inputs"),
    Case("gating.py:topk_gating", {"M": 5, "E": 16}, ("E",), {"k": 4}, {"rows": 2}),
    Case("gating.py:topk_gating", {"M": 3, "E": 9}, ("E",), {"k": 2, "renormalise": False}, {"rows": 2}),
    Case("gating.py:topk_gating", {"M": 5, "E": 9, "k": 3}, (), {}, {"rows": 2, "bE": 16, "bk": 4}),
    Case("gating.py:topk_gating", {"M": 5, "E": 3, "k": 3}, (), {"renormalise": False},
         {"rows": 2, "bE": 16, "bk": 4}),
    *(Case("experts.py:sum_of_experts", {"n": 10, "M": 5, "k": 2, "D": 37}, (), {"shared": shared, **F32},
           {"rows": 2, "bN": 16}, inputs="sum_of_experts_inputs") for shared in (False, True)),
    Case("fp8.py:linear_fp8", {"M": 9, "N": 17, "K": 40}, config=TILES, inputs="linear_fp8_inputs",
         rtol=1e-2),
    Case("fp8.py:linear_fp8_rows", {"M": 9, "N": 17, "K": 40}, config=TILES, inputs="linear_fp8_rows_inputs",
         rtol=1e-2),
    Case("fp8.py:linear_fp8_silu_mul", {"M": 9, "N": 17, "K": 40}, config=TILES,
         inputs="linear_fp8_silu_mul_inputs", rtol=2e-2),
    Case("fp8.py:round_rows", {"M": 5, "K": 40}, config={"bK": 16}, rtol=7e-2),
    Case("fp8.py:rmsnorm_residual_rounded", {"M": 5, "N": 40, "ldx": 42}, config={"bN": 16}, rtol=7e-2),
    Case("fp8.py:silu_mul_rounded", {"M": 5, "N": 40, "ldg": 80, "ldu": 44}, config={"bN": 16}, rtol=7e-2),
    Case("fp8.py:linear_fp8_blocks", {"M": 5, "N": 200, "K": 300}, config={"bM": 4, "bN": 64},
         inputs="linear_fp8_blocks_inputs", rtol=1e-2),
    Case("fp8.py:linear_fp8_blocks", {"M": 3, "N": 210, "K": 160}, config={"bM": 4, "bN": 96},
         inputs="linear_fp8_blocks_inputs", rtol=1e-2),
    *(Case("blockscaled.py:matmul_blockscaled", {"M": 9, "N": 17, "K": 96}, (), dict(form),
           {"bM": 8, "bN": 8, "bK": 64}, inputs=f"{name}_inputs", rtol=1e-2)
      for name, form in BLOCKSCALED.items()),
    *(Case(f"quantised.py:{name}", QUANTISED, (), {"bits": bits}, config,
           inputs="linear_quantised_inputs", rtol=4e-3)
      for bits in (4, 8)
      for name, config in (("linear_quantised", {"bM": 4, "bN": 8, "bK": 64}),
                           ("gemv_quantised", {"bN": 4, "bK": 256}),
                           ("gemv_quantised", {"bM": 1, "bN": 8, "bK": 64}))),
    *(Case("quantised_packed.py:linear_packed", {"M": 5, "N": 11, "K": 384}, (), {"bits": bits},
           {"bM": 4, "bN": 8, "bK": 256}, inputs="linear_packed_inputs", rtol=4e-3) for bits in (4, 8)),
    Case("quantised_packed.py:linear_packed", {"M": 5, "N": 11, "K": 384}, (), {"part": 32},
         {"bM": 4, "bN": 8, "bK": 256}, inputs="linear_packed_parts_inputs", rtol=4e-3),
    *(Case("quantised_packed.py:linear_packed", {"M": 3, "N": 11, "K": 384}, (), {"bits": bits},
           {"bM": 2, "bN": 8, "bK": 256, "gemv": True}, inputs="linear_packed_inputs", rtol=4e-3)
      for bits in (4, 8)),
    *(Case("quantised_packed.py:linear_packed", {"M": 19, "N": 11, "K": 384}, ("K",), {"bits": bits},
           {"bM": 16, "bN": 8, "bK": 256, "unpacked": unpacked}, inputs="linear_packed_inputs", rtol=rtol)
      for bits in (4, 8) for unpacked, rtol in UNPACKED),
    *(Case("gguf_blocks.py:linear_gguf", {"M": 3, "N": 11, "K": 768}, ("K",), {"form": form},
           {"bM": 2, "bN": 8, "bK": 512}, f"linear_{form}_reference", f"linear_{form}_inputs", rtol=4e-3)
      for form in ("q4_0", "q4_k")),
    *(Case("gguf_blocks.py:linear_gguf", {"M": 19, "N": 11, "K": 768}, ("K",), {"form": form},
           {"bM": 16, "bN": 8, "bK": 512, "unpacked": unpacked}, f"linear_{form}_reference",
           f"linear_{form}_inputs", rtol=rtol)
      for form in ("q4_0", "q4_k") for unpacked, rtol in UNPACKED),
    *(Case("quantised_groups.py:linear_groups", {"M": 19, "N": 11, "K": 384}, ("K",),
           {"group": group, "activations": 16}, {"bM": 16, "bN": 8, "bK": 256, "unpacked": unpacked},
           "linear_w4a16_reference", "linear_groups_inputs", rtol=rtol)
      for group in (32, 128) for unpacked, rtol in UNPACKED),
    *(Case("quantised_groups.py:linear_groups", {"M": 3, "N": 11, "K": 2176}, ("K",),
           {"group": group, "activations": bits}, {"bM": 2, "bN": 8, "bK": 2048},
           f"linear_w4a{bits}_reference", "linear_groups_inputs", rtol=4e-3)
      for group, bits in ((32, 8), (64, 16), (128, 8))),
    *(Case("quantised_groups.py:linear_groups", {"M": 19, "N": 11, "K": 384}, ("K",),
           {"group": group, "activations": 8}, {"bM": 16, "bN": 8, "bK": 128, "unpacked": "int8"},
           "linear_w4a8_reference", "linear_groups_inputs", rtol=4e-3) for group in (32, 128)),
    Case("quantised_groups.py:linear_groups", {"M": 1, "N": 11, "K": 2176}, ("K",),
         {"group": 128, "activations": 16}, {"bM": 1, "bN": 8, "bK": 2048},
         "linear_w4a16_reference", "linear_groups128_inputs", rtol=4e-3),
    Case("grouped.py:linear_grouped", {"tokens": 21, "N": 10, "K": 12, "G": 4}, (), F32, TILES,
         inputs="linear_grouped_inputs"),
    Case("grouped.py:linear_grouped_fp8", {"tokens": 21, "N": 10, "K": 40, "G": 4}, (), config=TILES,
         inputs="linear_grouped_fp8_inputs", rtol=1e-2),
    Case("grouped.py:linear_grouped_packed", {"tokens": 21, "N": 10, "K": 256, "G": 4}, ("K",), {"part": 32},
         {"bM": 8, "bN": 16}, inputs="linear_grouped_packed_inputs", rtol=3e-2),
    Case("grouped.py:linear_grouped_q4_0", {"tokens": 21, "N": 10, "K": 384, "G": 4}, ("K",), {},
         {"bM": 4, "bN": 8, "bK": 256}, inputs="linear_grouped_q4_0_inputs", rtol=3e-2),
    Case("attention_varlen.py:attention_varlen", VARLEN, HEADS, F32, BLOCKS,
         inputs="attention_varlen_inputs"),
    Case("attention_varlen.py:attention_varlen", VARLEN, HEADS, {"causal": True, **F32}, BLOCKS,
         "attention_varlen_causal_reference", "attention_varlen_inputs"),
    Case("attention_varlen.py:attention_varlen", VARLEN | {"Dv": 4}, (*HEADS, "Dv"), BF16, BLOCKS,
         inputs="attention_varlen_inputs", rtol=3e-2),
    Case("decode.py:decode_paged", PAGED, ("D",), {"group": 4, "page": 4, **F32}, PAGES,
         inputs="decode_paged_inputs"),
    Case("decode.py:decode_paged", PAGED, ("D",), {"group": 4, "page": 4, "stored": E4M3, **F32}, PAGES,
         inputs="decode_paged_inputs"),
    *(Case("paged.py:gather_pages", {"Hkv": 2, "D": 8, "B": 3, "pages": 9, "longest": 6, "keys": 20}, ("D",),
           {"page": 4, "stored": stored, **F32}, {"rows": 8}, inputs="gather_pages_inputs")
      for stored in ("", E4M3)),
    *(Case("decode_scaled.py:decode_scaled", PAGED, ("D",),
           {"group": 4, "page": 4, "cache": cache, "per": per, **F32}, PAGES, inputs="decode_scaled_inputs")
      for cache, per in (("int8", "token"), (E4M3, "head"))),
]  # fmt: skip


IMAGE = {"N": 2, "H": 5, "W": 6, "C": 16, "F": 11}
CONVOLUTIONS = [
    Case("conv.py:conv2d", IMAGE, ("C", "F"), F32, {"bM": 16, "bN": 8, "bK": 8}),
    Case("conv.py:conv2d", IMAGE, ("C",), {"stride": 2, "pad": 2, "dilation": 2},
         {"bM": 8, "bN": 8, "bK": 16}, rtol=4e-3),
    Case("conv.py:conv2d", IMAGE, ("C", "F"), {"R": 1, "pad": 0, "activation": "silu", **F32},
         {"bM": 16, "bN": 8, "bK": 16}, "conv2d_silu_reference"),
    Case("conv.py:conv1d", {"N": 2, "L": 13, "C": 16, "F": 10}, ("C", "F"), {"stride": 2, **F32},
         {"bM": 8, "bN": 8, "bK": 8}),
]  # fmt: skip


ALL = GEMMS + ROWS + ATTENTIONS + EXPERTS + CONVOLUTIONS


def build(case: Case) -> Kernel:
    """The case's kernel: pinned dims compiled in, the others left to run time."""
    dims = {name: Guard(eq=value) if name in case.pinned else Guard() for name, value in case.dims.items()}
    entry = load_entry(case.entry, KERNELS)
    return elaborate(entry, name="kernel", dims=dims, args=dict(case.args), config=dict(case.config))


def helper(case: Case, name: str):
    """A function beside the case's kernel."""
    return load_entry(f"{case.entry.split(':')[0]}:{name}", KERNELS)


def helped(function, case: Case, *args):
    """``function`` of ``args`` and of those values of the case that it has parameters for."""
    wanted = list(inspect.signature(function).parameters)[len(args) :]
    values = {**case.dims, **case.args, **case.config}
    return function(*args, **{name: values[name] for name in wanted if name in values})


def evaluate(texts: tuple[str, ...], dims: Mapping[str, int]) -> tuple[int, ...]:
    """Extents or strides at a shape."""
    return tuple(int(eval(text, {"min": min, "max": max}, dict(dims))) for text in texts)


def tensor(param: TensorParam, dims: Mapping[str, int]) -> np.ndarray:
    """An array of the parameter's shape and strides, filled with a value that must not survive in outputs."""
    shape = evaluate(param.extents, dims)
    dtype = numpy_dtype(str(param.buffer.ty.dtype))
    poison = 99 if dtype.kind in "iu" else np.nan
    if param.strides is None:
        return np.full(shape, poison, dtype)
    strides = evaluate(param.strides, dims)
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    flat = np.full(size, poison, dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, [stride * dtype.itemsize for stride in strides])


def random_inputs(kernel: Kernel, dims: Mapping[str, int], rng: np.random.Generator) -> list[object]:
    """Standard normal floats, small ints, and 1.5 for scalars."""
    values: list[object] = []
    for param in kernel.params:
        if not isinstance(param, TensorParam):
            values.append(1.5)
        elif param.access != "out":
            shape = evaluate(param.extents, dims)
            dtype = np.dtype(str(param.buffer.ty.dtype))
            drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(-100, 100, shape)
            values.append(drawn.astype(dtype))
    return values


def arguments(kernel: Kernel, inputs: list[object], dims: Mapping[str, int]) -> list[object]:
    """All parameters in order: the inputs in arrays of the parameters' strides, outputs poisoned."""
    left = iter(inputs)
    args: list[object] = []
    for param in kernel.params:
        if not isinstance(param, TensorParam):
            args.append(next(left))
            continue
        array = tensor(param, dims)
        if param.access != "out":
            array[...] = next(left)
        args.append(array)
    return args


def prepared(case: Case, kernel: Kernel, seed: int) -> tuple[list[object], list[object]]:
    """All arguments in kernel order, and copies of those that the kernel reads."""
    rng = np.random.default_rng(seed)
    inputs = (
        helped(helper(case, case.inputs), case, case.dims, rng)
        if case.inputs
        else random_inputs(kernel, case.dims, rng)
    )
    args = arguments(kernel, inputs, case.dims)
    given = [
        np.array(arg) if isinstance(arg, np.ndarray) else arg
        for param, arg in zip(kernel.params, args, strict=True)
        if getattr(param, "access", "in") != "out"
    ]
    return args, given


def check(case: Case, kernel: Kernel, args: list[object], given: list[object]) -> None:
    """The outputs among ``args`` are what the case's reference makes of ``given``."""
    reference = helper(case, case.reference or f"{case.entry.split(':')[1]}_reference")
    expected = helped(reference, case, *given)
    expected = expected if isinstance(expected, tuple) else (expected,)
    outputs = [
        arg for param, arg in zip(kernel.params, args, strict=True) if getattr(param, "access", "in") == "out"
    ]
    assert len(outputs) == len(expected)
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(got.astype(np.float32), want, rtol=case.rtol, atol=case.rtol)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_kernel_computes_what_its_reference_says(case: Case) -> None:
    kernel = build(case)
    args, given = prepared(case, kernel, seed=7)
    run(kernel, args, case.dims)
    check(case, kernel, args, given)


def test_signature_of_a_strided_kernel_lists_shapes_before_strides() -> None:
    kernel = build(ATTENTIONS[0])
    assert [dim.name for dim in kernel.dims] == ["B", "Sq", "H", "D", "Sk", "Hkv", *STRIDES]
    assert kernel.params[0].strides == ("q_batch", "q_row", "D", "1")


@pytest.mark.parametrize(("n", "experts"), [(0, 3), (2, 3), (40, 5), (64, 1), (30, 40)])
def test_rows_of_experts_lie_back_to_back_in_the_order_of_tokens(n: int, experts: int) -> None:
    dims = {"n": n, "G": experts}
    case = Case("experts.py:tokens_by_expert", dims, config={"blk": 16}, inputs="tokens_by_expert_inputs")
    kernel = build(case)
    args, (chosen, k) = prepared(case, kernel, seed=3)
    run(kernel, args, dims)
    offsets, tokens, rows = args[2:]
    np.testing.assert_array_equal(np.diff(offsets, prepend=0), [0, *np.bincount(chosen, minlength=experts)])
    order = np.argsort(chosen, kind="stable")
    np.testing.assert_array_equal(tokens, order // k)
    np.testing.assert_array_equal(rows[order], np.arange(n))


def test_unknown_activation_names_the_known_ones() -> None:
    with pytest.raises(Exception, match="none, gelu, silu"):
        build(Case("gemm.py:linear", {"M": 1, "N": 1, "K": 1}, args={"activation": "tanh"}))


def test_attention_of_a_sequence_without_keys_gives_zeros() -> None:
    case = Case("attention.py:attention", ATTENTION | STRIDES, HEADS, {}, BLOCKS, inputs="attention_inputs")
    kernel = build(case)
    inputs = helper(case, case.inputs)(case.dims, np.random.default_rng(1))
    inputs[3] = np.array([0, 5], np.int32)
    args = arguments(kernel, inputs, case.dims)
    run(kernel, args, case.dims)
    assert not args[-1][0].any()


def test_garbage_past_the_key_length_does_not_leak() -> None:
    case = Case("attention.py:attention", ATTENTION | STRIDES, HEADS, {}, BLOCKS, inputs="attention_inputs")
    kernel = build(case)
    inputs = helper(case, case.inputs)(case.dims, np.random.default_rng(1))
    inputs[3] = np.array([3, 13], np.int32)
    expected = helper(case, "attention_reference")(*inputs)
    inputs[1][0, 3:] = inputs[2][0, 3:] = np.nan
    args = arguments(kernel, inputs, case.dims)
    run(kernel, args, case.dims)
    np.testing.assert_allclose(args[-1], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("size", [64, 96, 128, 192, 256])
def test_products_with_the_lowest_maximum_are_exact(size) -> None:
    """Else a fused difference of two of them is not 0, and a row without a visible key becomes NaN."""
    names = load_entry("attention.py:attention_reference", KERNELS).__globals__
    scale = np.float32(size**-0.5 * names["LOG2_E"])
    assert float(np.float32(names["LOWEST"]) * scale) == names["LOWEST"] * float(scale)


def test_the_twin_of_silu_takes_any_number() -> None:
    silu = load_entry("tile_math.py:silu_reference", KERNELS)
    x = np.array([-1e30, -1000, -89, -2, -0.0, 2, 89, 1e30], np.float32)
    with np.errstate(over="raise", invalid="raise"):
        found = silu(x)
    assert found.dtype == np.float32
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found, wide * 0.5 * (1 + np.tanh(wide / 2)), rtol=1e-6, atol=1e-30)
