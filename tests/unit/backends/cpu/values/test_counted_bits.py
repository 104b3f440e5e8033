"""Bits of numbers in vectors: counted by one instruction where the target names processors that have it."""

from __future__ import annotations

import pytest

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("count")
A = tensor({dtype}, (64,), ("64",), access="in")
Y = tensor({dtype}, (64,), ("64",), access="out", output=True)
with launch(1, threads=(32, 1, 1)) as (r,):
    for i in parallel(64):
        Y[i] = popcount(A[i])
"""


@pytest.mark.parametrize(("dtype", "instruction"), [("uint32", "vpopcntd"), ("uint64", "vpopcntq")])
def test_bits_are_counted_by_one_instruction(dtype: str, instruction: str) -> None:
    target = parse_target("x86-64-v4+avx512bf16+zen4")
    kernel = parse_kernel(TEXT.format(dtype=dtype))
    assert instruction in assembly(to_tir(lower(kernel, target), target), target, "k")
