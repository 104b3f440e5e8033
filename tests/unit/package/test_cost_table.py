"""Costs in C come to the last bit to what Python computes, also those that are computed several at a time, by
vectors of any length."""

from __future__ import annotations

import ctypes
import random
import re
import struct
from collections.abc import Mapping
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from breadth import parametrized
from linked import link

from tilec.capacity import CAPACITY
from tilec.codegen.image import Image
from tilec.costs import cheapest, cost
from tilec.ir.guards import Guard
from tilec.manifest import load_manifest
from tilec.package.library.runtime import dlpack_folder, runtime_folder
from tilec.package.model import DimRecord, KernelRecord, VariantRecord
from tilec.package.tables.costs import costs_source
from tilec.targets import FEATURE_BITS, native_target

SHIPPED = Path(__file__).parents[3] / "manifests" / "llm.toml"
UNITS = 132
#: Costs that are 0 for few rows, which some ways to round up make a negative one.
ZEROS = {("ceil(M / 10 - 0.9)", "ceil(M / 20 - 0.8)", "M * 0"): ("M",)}
#: Values of all dims but the first where these are pinned: 1 besides what is a whole number of tiles or none.
PINNED = (4096, 11008, 1, 4097)
#: Shapes at which the costs of a list are compared: a few, and many.
FEW, MANY = 40, 200
NUMBERS = CAPACITY.max_choices - 1
#: Costs of processors that one or two features tell apart, and sets of these: none, one, both, others.
TOLD_APART = {
    ("on(zen4, M * 2, M * 3)", "M * 2.5", "on(zen4, on(amx, M, M * 4), 1 + on(amx, ceil(M / 7), M))"): ("M",)
}
KINDS: tuple[tuple[str, ...], ...] = ((), ("zen4",), ("vnni", "amx"), ("amx", "zen4"))
_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_float,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_float,
    ctypes.c_uint64,
    ctypes.POINTER(ctypes.c_float),
)


@cache
def compared() -> dict[tuple[str, ...], tuple[str, ...]]:
    """The costs of several schedules with the same guards that the shipped manifest has, `ZEROS` and
    `TOLD_APART`, by the dims of their kernel."""
    lists: dict[tuple[object, ...], list[str]] = {}
    for variant in load_manifest(SHIPPED).variants:
        if variant.cost:
            key = (tuple(variant.dims), variant.kernel, variant.target.name, *map(str, variant.dims.values()))
            lists.setdefault(key, []).append(variant.cost)
    return {tuple(texts): key[0] for key, texts in lists.items() if len(texts) > 1} | ZEROS | TOLD_APART


@cache
def cases() -> list[tuple[tuple[str, ...], tuple[str, ...], dict[str, int]]]:
    """The costs of each list with its dims, all of them open, and of every fourth again with one value for
    all but the first dim, as a kernel for given weights has."""
    chosen = list(compared().items())[::4]
    pinned = [(texts, dims, dict(zip(dims[1:], PINNED, strict=False))) for texts, dims in chosen if dims[1:]]
    return [*((texts, dims, {}) for texts, dims in compared().items()), *pinned]


def kernel_of(
    dims: tuple[str, ...], texts: tuple[str, ...], pins: Mapping[str, int] | None = None
) -> KernelRecord:
    image = Image("sm_90a", b"", "", ())
    guards = tuple((dim, Guard(eq=value)) for dim, value in (pins or {}).items())
    variants = tuple(VariantRecord("sm_90a", guards, image, cost=text) for text in texts)
    return KernelRecord("k", (), tuple(map(DimRecord, dims)), variants)


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A library with ``list_<i>(level)``, which gives the function of list i."""
    folder = tmp_path_factory.mktemp("costs")
    texts = (
        costs_source(kernel_of(dims, each, pins), f"list_{at}", [(0, 0)] * len(each))
        + f"costs_fn list_{at}(int level) {{ return list_{at}_costs_0_levels[level]; }}\n"
        for at, (each, dims, pins) in enumerate(cases())
    )
    source = folder / "costs.c"
    source.write_text('#include "dispatch/costs.h"\n' + "".join(texts))
    folders = (runtime_folder() / "src", runtime_folder() / "include", dlpack_folder())
    flags = ("-O2", "-ffp-contract=off", "-fPIC", "-shared", *(f"-I{each}" for each in folders))
    link(*flags, source, "-o", folder / "costs.so")
    return ctypes.CDLL(str(folder / "costs.so"))


def levels() -> int:
    """How many of the functions for one list this machine runs."""
    name = native_target().name
    return 1 + sum(f"x86-64-v{level}" in name for level in (3, 4, 4)) if "x86" in name else 1


@cache
def computed(count: int) -> list[list[tuple[dict[str, int], tuple[str, ...], list[int], int]]]:
    """For every list, at ``count`` shapes on processors in turns: the sizes, the features, the bits of each
    cost with its number in the last ones, and the number of the cheapest."""
    rng = random.Random(0)
    found = []
    for texts, dims, pins in cases():
        shapes = [{dim: int(2 ** rng.uniform(0, 17)) for dim in dims} | pins for _ in range(count)]
        found.append(
            [
                (sizes, kind, marked(texts, sizes, kind), cheapest(texts, sizes, UNITS, kind))
                for sizes, kind in zip(shapes, cycle(KINDS), strict=False)
            ]
        )
    return found


def marked(texts: tuple[str, ...], sizes: dict[str, int], features: tuple[str, ...]) -> list[int]:
    each = (bits_of(cost(text, sizes, UNITS, features)) for text in texts)
    return [bits & ~NUMBERS | number for number, bits in enumerate(each)]


@pytest.mark.parametrize("level", range(levels()))
@parametrized("count", [FEW, MANY], fast=[FEW])
def test_shipped_costs_are_the_same_in_c(functions: ctypes.CDLL, count: int, level: int) -> None:
    assert computed(count)
    for at, shapes in enumerate(computed(count)):
        find = functions[f"list_{at}"]
        find.restype = _FUNCTION
        function = find(level)
        for sizes, features, wanted, first in shapes:
            bits = sum(FEATURE_BITS[feature].mask for feature in features)
            given = (ctypes.c_int64 * len(sizes))(*sizes.values())
            found = np.zeros(8 * CAPACITY.max_choices, np.float32)
            room = found.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            least = function(given, (1 - 2.0**-22) / UNITS, bits, room)
            assert set(wanted) <= set(found.view(np.uint32).tolist())
            assert bits_of(least) & NUMBERS == first


def bits_of(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


def test_costs_of_one_form_are_computed_at_once() -> None:
    texts = ("1 + M * 2", "3 + M * 4", "ceil(M / 3)")
    text = costs_source(kernel_of(("M",), texts), "k", [(0, 0)] * len(texts))
    assert "{1.0f, 3.0f, 3.0f, 3.0f},\n  {2.0f, 4.0f, 4.0f, 4.0f}," in text
    assert "const cost_4 v1 = v0 * k_costs_0_narrow_of_cost_4[1];" in text
    assert "const cost_4 v2 = k_costs_0_narrow_of_cost_4[0] + v1;" in text
    assert "= v0 * 0.33333325386047363f;" in text


def test_a_function_has_no_longer_vectors_than_its_level() -> None:
    texts = tuple(f"{number} + ceil(M / {16 + number})" for number in range(1, 11))
    text = costs_source(kernel_of(("M",), texts), "k", [(0, 0)] * len(texts))
    functions = dict(re.findall(r"float k_costs_0_(\w+)\((.*?)\n}", text, re.DOTALL))
    vectors = {width: set(re.findall(r"const cost_(\d+) ", body)) for width, body in functions.items()}
    assert vectors == {"narrow": {"4"}, "wide": {"4", "8"}, "widest": {"16"}}
    assert text.endswith("#endif\nCOST_LEVELS(k_costs_0)\n")


def test_statements_that_most_wait_for_come_first() -> None:
    texts = ("1 - ceil(M / 3)", "3 / max(1, M)")
    text = costs_source(kernel_of(("M",), texts), "k", [(0, 0)] * len(texts))
    forms = re.findall(r"cost_max|\*|/|COST_RAISED", text[text.index("= (float)") : text.index("\n}\n")])
    assert forms == ["cost_max", "/", "*", "COST_RAISED"]


def test_statements_of_all_groups_come_in_turns() -> None:
    texts = tuple(f"{number} + ceil(M / {16 + number})" for number in range(1, 6))
    text = costs_source(kernel_of(("M",), texts), "k", [(0, 0)] * len(texts))
    kinds = re.findall("COST_RAISED|(?:COST_MARKED|cost_marked)", text[: text.index("\n}\n")])
    assert kinds == ["COST_RAISED"] * 2 + ["COST_MARKED", "cost_marked"], text


def test_what_pinned_dims_decide_is_computed_at_build() -> None:
    texts = ("1 + ceil(N / 3) * M", "2 + ceil(N / 7) * M")
    text = costs_source(kernel_of(("M", "N"), texts, {"N": 21}), "k", [(0, 0)] * len(texts))
    assert "{7.0f, 3.0f, 3.0f, 3.0f}," in text
    assert "dims[1]" not in text
    assert not re.search("COST_CEIL|COST_RAISED", text)


def test_processors_that_costs_tell_apart_have_functions_of_their_own() -> None:
    texts = ("on(zen4, M * 2, M * 3)", "M * 2.5")
    text = costs_source(kernel_of(("M",), texts), "k", [(0, 0)] * len(texts))
    assert "  if ((bits & UINT64_C(256)) == UINT64_C(256)) return k_costs_0_narrow_0(" in text
    assert "{2.0f, 2.5f, 2.5f, 2.5f}," in text
    assert "{3.0f, 2.5f, 2.5f, 2.5f}," in text


def test_a_pinned_part_without_a_value_stays() -> None:
    texts = ("M + N * 1e30 * 1e30", "M + 2")
    text = costs_source(kernel_of(("M", "N"), texts, {"N": 21}), "k", [(0, 0)] * len(texts))
    assert "inf" not in text
