"""Pairs of 16 bits that are made together: which values are, and from what."""

from __future__ import annotations

import re

import numpy as np
import pytest
from agree import agree

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target


def text(value, stored="uint8", dtype="float16", target="sm_90a") -> str:
    """The CUDA source of ``W[i, j] = value(B, scales, i, j)``."""

    @T.prim_func
    def kernel(B: T.Tensor((64, 64), stored), scales: T.Tensor((64,), dtype), W: T.Tensor((64, 64), dtype)):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(64, 64):
                W[i, j] = value(B, scales, i, j)

    gpu = parse_target(target)
    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    return cuda.source(to_tir(lower(made, gpu), gpu), gpu, "kernel").rsplit("__global__", 1)[1]


def nibble(B, i, j):
    return (B[i, j // 2] >> (j % 2 * 4).astype("uint8")) & T.uint8(15)


def word(B, i, j):
    return (B[i, j // 8] >> (j % 8 // 2 * 4 + j % 2 * 16)) & 15


@pytest.mark.parametrize(
    ("value", "stored", "dtype", "called"),
    [
        (lambda B, s, i, j: B[i, j].astype("float16"), "int8", "float16", "pair8_f16_128_16_24"),
        (lambda B, s, i, j: B[i, j].astype("float16") * s[i], "uint8", "float16", "scaled_f16"),
        (lambda B, s, i, j: B[i, j].astype("bfloat16"), "int8", "bfloat16", "pair8_bf16_128_0_8"),
        (lambda B, s, i, j: B[i, j].astype("bfloat16") - 7, "uint8", "bfloat16", "pair8_bf16_7_16_24"),
        (lambda B, s, i, j: nibble(B, i, j).astype("float16"), "uint8", "float16", "counted_f16_u4_0"),
        (
            lambda B, s, i, j: (nibble(B, i, j).astype("int8") - T.int8(8)).astype("bfloat16") * s[i],
            "uint8", "bfloat16", "counted_bf16_u4_less_8",
        ),
        (
            lambda B, s, i, j: (nibble(B, i, j).astype("float16") - 8) * s[i],
            "uint8", "float16", "counted_f16_u4_less_8",
        ),
        (
            lambda B, s, i, j: (-7.0 + nibble(B, i, j).astype("float32")) * s[i].astype("float32"),
            "uint8", "bfloat16", "counted_bf16_u4_less_7",
        ),
        (lambda B, s, i, j: word(B, i, j).astype("bfloat16"), "int32", "bfloat16", "counted_bf16_u4_0"),
        (lambda B, s, i, j: B[i, j].astype("float16"), "float8_e4m3fn", "float16", "halves_e4m3"),
        (lambda B, s, i, j: B[i, j].astype("float16") * s[j], "float8_e5m2", "float16", "scaled_f16"),
        (lambda B, s, i, j: nibble(B, i, j).astype("float16") * s[j] + s[i], "uint8", "float16", "fused_f16"),
        (lambda B, s, i, j: s[i] - nibble(B, i, j).astype("float16") * s[j], "uint8", "float16", "fused_f16"),
        (
            lambda B, s, i, j: B[i, j].astype("float32") * s[i].astype("float32") - s[j].astype("float32"),
            "int8", "bfloat16", "fused_bf16",
        ),
        (lambda B, s, i, j: B[i, j].astype("float16") - s[i], "int8", "float16", "summed_f16"),
        (lambda B, s, i, j: s[j] - B[i, j].astype("float16"), "int8", "float16", "summed_f16"),
        (
            lambda B, s, i, j: (word(B, i, j) - word(B, 0, j)).astype("float16") * s[j],
            "int32", "float16", "apart_f16_u4",
        ),
        (
            lambda B, s, i, j: (word(B, i, j).astype("bfloat16") - word(B, 0, j).astype("bfloat16")) * s[j],
            "int32", "bfloat16", "apart_bf16_u4",
        ),
    ],
)  # fmt: skip
def test_neighbours_are_made_together(value, stored, dtype, called):
    made = text(value, stored, dtype)
    assert f"tilec_{called}(" in made
    assert not re.search(r"tilec_pack|tilec_from|\(half\)", made)


@pytest.mark.parametrize(
    ("value", "stored", "dtype", "target"),
    [
        (lambda B, s, i, j: B[i, j].astype("float16"), "int8", "float16", "sm_80"),
        (lambda B, s, i, j: (B[i, j].astype("float16") - s[i]) * s[i], "int8", "float16", "sm_90a"),
        (lambda B, s, i, j: B[i, j].astype("float16") * s[i] * s[i], "int8", "float16", "sm_90a"),
        (lambda B, s, i, j: B[i, j].astype("float16"), "int16", "float16", "sm_90a"),
        (
            lambda B, s, i, j: (nibble(B, i, j) - nibble(B, 0, j)).astype("float16"),
            "uint8",
            "float16",
            "sm_90a",
        ),
        (lambda B, s, i, j: (nibble(B, i, j).astype("float16") - 0.5) * s[i], "uint8", "float16", "sm_90a"),
        (lambda B, s, i, j: (nibble(B, i, j).astype("bfloat16") + 250) * s[i], "uint8", "bfloat16", "sm_90a"),
    ],
)
def test_what_would_be_rounded_otherwise_is_not(value, stored, dtype, target):
    made = text(value, stored, dtype, target)
    assert "tilec_pack" in made
    assert not re.search(r"tilec_(counted|halves|scaled)", made)


@pytest.mark.parametrize(
    ("value", "stored", "dtype", "called"),
    [
        (
            lambda B, s, i, j: (word(B, i, j).astype("bfloat16") - s[i]) * s[i],
            "int32", "bfloat16", ("field4_0_0", "field4_16_0", "pack_bfloat16x2"),
        ),
        (
            lambda B, s, i, j: (nibble(B, i, j).astype("int8") - T.int8(8)).astype("float32")
            * (s[i].astype("float32") + 1),
            "uint8", "float16", ("field4_0_less_8", "field4_4_less_8", "pack_float16x2"),
        ),
    ],
)  # fmt: skip
def test_integers_of_one_word_become_float32_together(value, stored, dtype, called):
    made = text(value, stored, dtype)
    assert all(f"tilec_{name}(" in made for name in called)
    assert "tilec_from_natural" not in made


@pytest.mark.parametrize("scale", [lambda s, i: 1.0, lambda s, i: s[i].astype("float32")])
def test_two_8_bit_floats_become_float32_by_one_conversion(scale):
    made = text(lambda B, s, i, j: B[i, j].astype("float32") * scale(s, i), "float8_e4m3fn", "bfloat16")
    assert re.search(r"tilec_half_1\(tilec_halves_e4m3\(", made)
    assert "tilec_from_e4m3" not in made


def test_two_numbers_of_a_byte_take_two_instructions():
    made = text(lambda B, s, i, j: nibble(B, i, j).astype("float16"))
    assert re.search(
        r"counted_f16_u4_0\(\(\(\(uint\)\w+\[0\]\) \+ \(\(\(uint\)\w+\[0\]\) << \(uint\)12\)\)\)", made
    )


def test_sums_and_differences_agree():
    @T.prim_func
    def main(
        B: T.Tensor((32, 32), "uint8"),
        Z: T.Tensor((32,), "uint8"),
        s: T.Tensor((32,), "float16"),
        W: T.Tensor((32, 64), "float16"),
        X: T.Tensor((32, 64), "float16"),
        Y: T.Tensor((32, 64), "bfloat16"),
    ):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(32, 64):
                W[i, j] = s[i] - nibble(B, i, j).astype("float16") * s[j // 2]
            for i, j in T.Parallel(32, 64):
                q = nibble(B, i, j).astype("int32") - (Z[i] >> T.uint8(4)).astype("int32")
                X[i, j] = q.astype("float16") * s[i]
            for i, j in T.Parallel(32, 64):
                Y[i, j] = nibble(B, i, j).astype("float32") + s[i].astype("float32")

    rng = np.random.default_rng(0)
    b, z = rng.integers(0, 256, (32, 32)).astype(np.uint8), rng.integers(0, 256, 32).astype(np.uint8)
    agree(main, b, z, rng.standard_normal(32).astype(np.float16))
