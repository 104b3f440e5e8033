"""Sums of products of bytes in lanes: the same numbers by any instruction, and words where they may be."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pytest
from aarch64 import QEMU, EmulatedLibrary
from breadth import parametrized
from compiled import Library

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("{name}")
U = tensor(uint8, (4, 8, 18), ("4", "8", "18"), access="in")
X = tensor(int8, (4, 256), ("4", "256"), access="in")
Z = tensor(int8, (4, 256), ("4", "256"), access="in")
Y = tensor(int32, (4, 32), ("4", "32"), access="out")
with launch(4, threads=(64, 1, 1)) as (bx,):
    for p in parallel(32):
        Y[bx, p] = {value}
"""


def _sum(left: str, right: str, start: str = "", count: int = 4) -> str:
    products = (f"({left.format(b=b)}) * ({right.format(b=b)})" for b in range(count))
    return " + ".join([start, *products] if start else products)


SIGNED = "cast(int32, X[bx, p * 4 + {b}])"
OTHER = "cast(int32, Z[bx, p * 4 + {b}])"
#: Four bytes of each block of 18, behind two others.
BLOCKS = "cast(int32, U[bx, p // 4, p % 4 * 4 + 2 + {b}])"
NIBBLES, UPPER = f"{BLOCKS} & 15", f"{BLOCKS} >> 4"
MOVED = "cast(int32, Z[bx, p * 4 + {b}]) + 128"
APART = "cast(int32, X[bx, p * 4 + {b} % 2 * 2])"
#: Name to a sum, and whether it is one of words on a target that multiplies bytes.
SUMS = {
    "nibbles": (_sum(NIBBLES, SIGNED), True),
    "upper": (_sum(SIGNED, UPPER, "p"), True),
    "unsigned": (_sum(BLOCKS, SIGNED, "3"), True),
    "moved": (_sum(MOVED, SIGNED, "Y[bx, p]"), True),
    "signed": (_sum(SIGNED, OTHER), True),
    "both": (f"({_sum(NIBBLES, SIGNED)}) * 256 + ({_sum(UPPER, OTHER)})", True),
    "no_sign": (_sum(BLOCKS, MOVED), False),
    "apart": (_sum(NIBBLES, APART), False),
    "three": (_sum(NIBBLES, SIGNED, count=3), False),
}
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v3+avxvnni", "x86-64-v4", "x86-64-v4+vnni")
ARM = ("aarch64", "aarch64+dotprod")


def _texts() -> dict[str, str]:
    return {name: TEXT.format(name=name, value=value) for name, (value, _) in SUMS.items()}


@lru_cache(maxsize=1)
def library(target: str) -> Library:
    return EmulatedLibrary(_texts(), target) if target in ARM else Library(_texts(), target)


def _expected(name: str, u: np.ndarray, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """What the sums are, in NumPy: bytes of a word on the last axis."""
    blocks, x, z = (part.astype(np.int32).reshape(4, 32, 4) for part in (u[..., 2:], x[:, :128], z[:, :128]))
    lower, upper = blocks & 15, blocks >> 4
    made = {
        "nibbles": lower * x,
        "upper": upper * x,
        "unsigned": blocks * x,
        "moved": (z + 128) * x,
        "signed": x * z,
        "both": lower * x * 256 + upper * z,
        "no_sign": blocks * (z + 128),
        "apart": lower * x[..., [0, 2, 0, 2]],
        "three": (lower * x)[..., :3],
    }
    first = {"upper": np.arange(32), "unsigned": 3, "moved": 7}
    return made[name].sum(-1) + first.get(name, 0)


def _check(target: str, name: str) -> None:
    rng = np.random.default_rng(0)
    u = rng.integers(0, 256, (4, 8, 18), dtype=np.uint8)
    x, z = (rng.integers(-128, 128, (4, 256), dtype=np.int8) for _ in range(2))
    u[0], x[0], z[0] = 255, -128, -128
    y = np.full((4, 32), 7, np.int32)
    library(target).run(name, [u, x, z, y], {})
    np.testing.assert_array_equal(y, _expected(name, u, x, z))


@parametrized(
    ("target", "name"),
    [(target, name) for target in TARGETS for name in SUMS],
    fast=[(target, name) for target in ("x86-64-v3", "x86-64-v4+vnni") for name in SUMS],
)
def test_sum(target: str, name: str) -> None:
    _check(target, name)


@pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 (package qemu-user) is not installed")
@parametrized(
    ("target", "name"),
    [(target, name) for target in ARM for name in SUMS],
    fast=[("aarch64+dotprod", name) for name in SUMS],
)
def test_sum_on_aarch64(target: str, name: str) -> None:
    _check(target, name)


@pytest.mark.parametrize(
    ("target", "instruction"),
    [("x86-64-v4+vnni", "vpdpbusd.512"), ("x86-64-v3", "pmadd"), ("aarch64+dotprod", "sdot")],
)
@pytest.mark.parametrize("name", SUMS)
def test_words_of_bytes_take_one_instruction(name: str, target: str, instruction: str) -> None:
    value, wanted = SUMS[name]
    wanted = wanted or (name == "no_sign" and instruction != "sdot")
    assert (instruction in _code(TEXT.format(name=name, value=value), target)) == wanted


@pytest.mark.parametrize(("target", "places"), [("x86-64-v4+vnni", {"2", "8"}), ("x86-64-v3", set())])
def test_blocks_are_read_as_two_vectors(target: str, places: set[str]) -> None:
    """The first one begins with what is read, the other one ends with it."""
    code = _code(TEXT.format(name="k", value=SUMS["nibbles"][0]), target)
    starts = re.findall(r'"uint16x32", U\[T.Ramp\((.*?), T.int64\(1\), 64\)', code)
    assert {"".join(re.findall(r"\+ T.int64\((\d+)\)$", start)) for start in starts} == places


def test_products_begin_with_what_is_read() -> None:
    """What is computed is added at last: products do not wait for it."""
    value = f"({_sum(NIBBLES, SIGNED)}) * 256 + ({_sum(UPPER, OTHER, 'Y[bx, p]')})"
    code = _code(TEXT.format(name="k", value=value), "x86-64-v4+vnni")
    begins = re.findall(r'vpdpbusd.512", ([^,]*)', code)
    assert begins
    assert all(begin.startswith(("Y[", "T.Broadcast(0")) for begin in begins), begins


def _code(text: str, target: str) -> str:
    aim = parse_target(target)
    return tir_text(to_tir(lower(parse_kernel(text), aim), aim), aim, "k")
