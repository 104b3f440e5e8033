"""The instruction that a product is said to take stands in its machine code."""

from __future__ import annotations

import re

from breadth import parametrized
from cpu_products import Product

from tilec.backends.base import backend_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.roads import Road, multipliers
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

SMALL = {"bM": 8, "bN": 32, "bK": 32}
FLOATS, BYTES = Product(**SMALL), Product(dtype="int8", acc="int32", out="int32", **SMALL)
HALVES, NUMBERS = (
    Product(dtype="bfloat16", **SMALL),
    Product(dtype="int32", acc="int32", out="int32", **SMALL),
)
SUMS16 = Product(dtype="float16", acc="float16", out="float16", **SMALL)
FAST = [
    ("x86-64-v2", BYTES, "pmaddwd"),
    ("x86-64-v3", BYTES, "vpmaddwd"),
    ("x86-64-v3+avxvnni", BYTES, "vpdpbusd"),
    ("x86-64-v4+avx512bf16", HALVES, "vdpbf16ps"),
    ("x86-64-v4+amx", HALVES, "tdpbf16ps"),
    ("aarch64", FLOATS, "fmla"),
    ("aarch64+dotprod", BYTES, "sdot"),
    ("aarch64+bf16", HALVES, "bfmmla"),
    ("aarch64+i8mm", BYTES, "smmla"),
]
FURTHER = [
    ("x86-64-v2", FLOATS, "mulps"),
    ("x86-64-v3", FLOATS, "vfmadd231ps"),
    ("x86-64-v3", NUMBERS, "vpmulld"),
    ("x86-64-v4+avx512fp16", SUMS16, "vfmadd231ph"),
    ("aarch64+fp16", SUMS16, "fmla"),
    ("aarch64", NUMBERS, "mla"),
]


@parametrized(("target", "product", "instruction"), FAST + FURTHER, fast=FAST)
def test_a_product_is_by_what_its_road_says(target: str, product: Product, instruction: str) -> None:
    wanted = parse_target(target)
    lowered = to_tir(lower(parse_kernel(product.text("k")), wanted), wanted)
    (launch,) = lowered.launches
    assert multipliers(launch.roads) == (instruction,)
    assert any(f", {instruction}" in road.instruction for road in launch.roads)
    assembly = backend_of(wanted).text("asm", lowered, wanted, "k")
    assert re.search(rf"^\s*(\{{\w+\}}\s+)?{instruction}\s", assembly, re.MULTILINE)


def test_tensor_cores_are_named_by_their_kind() -> None:
    roads = [Road("a, b -> c", kind, "how") for kind in ("wgmma", "tma", "mma.sync", "wgmma")]
    assert multipliers(roads) == ("mma.sync", "wgmma")
