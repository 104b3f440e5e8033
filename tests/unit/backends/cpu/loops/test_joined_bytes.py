"""Numbers of two bytes that lanes read at any distance: the same numbers, by whole vectors if there are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

#: Rows of 640 bytes, of which lane i of 16 joins two.
TEXT = """
kernel("{name}")
X = tensor(uint8, (4, 640), ("4", "640"), access="in")
Y = tensor(uint16, (4, 16), ("4", "16"), access="out")
with launch(4, threads=(64, 1, 1)) as (b,):
    for i in parallel(16):
        Y[b, i] = cast(uint16, X[b, {first}]) | (cast(uint16, X[b, {second}]) << uint16({bits}))
"""
#: Name to the place of the lower byte, and how many vectors have all of them, which begin where those of
#: other places do; 0: read one by one.
PLACES = {
    "blocks": ("i * 18 + 4", 5),
    "shared": ("i // 4 * 36 + i % 4 // 2 * 2", 2),
    "backwards": ("600 - i * 6", 3),
    "far": ("i * 40", 0),
    "odd": ("i // 8 * 99 + i % 8 * 2", 0),
    "near": ("i // 2 * 4", 1),
}
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def _text(name: str, first: str, apart: int = 1, bits: int = 8) -> str:
    return TEXT.format(name=name, first=first, second=f"{first} + {apart}", bits=bits)


TEXTS = {
    **{name: _text(name, first) for name, (first, _) in PLACES.items()},
    "apart": _text("apart", "i * 18", 2),
    "less": _text("less", "i * 18", 1, 4),
}


@parametrized(
    ("target", "name"),
    [(target, name) for target in TARGETS for name in (*PLACES, "apart", "less")],
    fast=[("x86-64-v4", name) for name in (*PLACES, "apart", "less")],
)
def test_numbers_of_two_bytes(target: str, name: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, (4, 640), dtype=np.uint8)
    y = np.zeros((4, 16), np.uint16)
    Library({name: TEXTS[name]}, target).run(name, [x, y], {})
    i, wide = np.arange(16), x.astype(np.uint16)
    first = i * 18 if name in ("apart", "less") else eval(PLACES[name][0], {"i": i})
    apart, bits = 2 if name == "apart" else 1, 4 if name == "less" else 8
    np.testing.assert_array_equal(y, wide[:, first] | wide[:, first + apart] << bits)


@pytest.mark.parametrize("name", PLACES)
def test_vectors_that_are_read(name: str) -> None:
    first, count = PLACES[name]
    target = parse_target("x86-64-v4")
    lowered = to_tir(lower(parse_kernel(_text("k", first)), target), target)
    read = set(
        re.findall(r'"uint16x32", X\[T.Ramp\((.*?), T.int64\(1\), 64\)', tir_text(lowered, target, "k"))
    )
    assert len(read) == count


#: Lane i of 16 joins four bytes, a distance apart.
FOUR = """
kernel("words")
X = tensor({stored}, (640,), ("640",), access="in")
Y = tensor(int32, (16,), ("16",), access="out")
with launch(1, threads=(64, 1, 1)) as (b,):
    for i in parallel(16):
        Y[i] = {value}
"""


@pytest.mark.parametrize("stored", ["uint8", "int8"])
@pytest.mark.parametrize(("apart", "vectors"), [(4, 1), (5, 0)])
def test_numbers_of_four_bytes(stored: str, apart: int, vectors: int) -> None:
    """Those that lie side by side are one vector; others are read one by one."""
    parts = [f"cast(int32, cast(uint8, X[i * {apart} + {at}]))" for at in range(4)]
    parts[1:] = [f"({part} << {8 * at})" for at, part in enumerate(parts[1:], 1)]
    text = FOUR.format(stored=stored, value=" | ".join(parts))
    target = parse_target("x86-64-v4")
    lowered = to_tir(lower(parse_kernel(text), target), target)
    assert (
        len(set(re.findall(r"X\[T.Ramp\(.*?, T.int64\(1\), 64\)", tir_text(lowered, target, "k")))) == vectors
    )
    x = np.random.default_rng(0).integers(0, 256, 640).astype(np.uint8).view(stored)
    y = np.zeros(16, np.int32)
    Library({"k": text}, target).run("k", [x, y], {})
    places = np.arange(16)[:, None] * apart + np.arange(4)
    np.testing.assert_array_equal(y, np.ascontiguousarray(x[places]).view(np.int32)[:, 0])
