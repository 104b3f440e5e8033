"""Costs in C come to the last bit to what Python computes, also those that are computed two at a time."""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

from tilec.codegen.image import Image
from tilec.codegen.toolchain import find_toolchain
from tilec.costs import cost
from tilec.manifest import load_manifest
from tilec.package.cost_table import costs_source
from tilec.package.model import DimRecord, KernelRecord, VariantRecord
from tilec.package.runtime import runtime_folder

SHIPPED = Path(__file__).parents[3] / "manifests" / "llm.toml"
UNITS = 132
SHAPES = 200


def shipped() -> dict[tuple[str, ...], tuple[str, ...]]:
    """The lists of costs that the shipped manifest has, by the dims of their kernel."""
    lists: dict[tuple[object, ...], list[str]] = {}
    for variant in load_manifest(SHIPPED).variants:
        if variant.cost:
            key = (tuple(variant.dims), variant.kernel, variant.target.name, *map(str, variant.dims.values()))
            lists.setdefault(key, []).append(variant.cost)
    return {tuple(texts): key[0] for key, texts in lists.items()}


def kernel_of(dims: tuple[str, ...], texts: tuple[str, ...]) -> KernelRecord:
    image = Image("sm_90a", b"", "", ())
    variants = tuple(VariantRecord("sm_90a", (), image, cost=text) for text in texts)
    return KernelRecord("k", (), tuple(map(DimRecord, dims)), variants)


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A library with the costs of list i as ``list_<i>_costs_0``."""
    folder = tmp_path_factory.mktemp("costs")
    texts = (
        costs_source(kernel_of(dims, each), f"list_{at}") for at, (each, dims) in enumerate(shipped().items())
    )
    source = folder / "costs.c"
    source.write_text('#include "costs.h"\n' + "".join(texts).replace("static void", "void"))
    flags = ("-O2", "-ffp-contract=off", "-fPIC", "-shared", "-I", str(runtime_folder() / "src"))
    subprocess.run(
        [*find_toolchain().driver, *flags, str(source), "-o", str(folder / "costs.so")], check=True
    )
    return ctypes.CDLL(str(folder / "costs.so"))


def test_shipped_costs_are_the_same_in_c(functions: ctypes.CDLL) -> None:
    rng = random.Random(0)
    for at, (texts, dims) in enumerate(shipped().items()):
        function = functions[f"list_{at}_costs_0"]
        for _ in range(SHAPES):
            sizes = {dim: int(2 ** rng.uniform(0, 17)) for dim in dims}
            given = (ctypes.c_int64 * len(dims))(*sizes.values())
            found = (ctypes.c_double * len(texts))()
            function(given, ctypes.c_double((1 - 2.0**-40) / UNITS), found)
            assert list(found) == [cost(text, sizes, UNITS) for text in texts]


def test_costs_are_computed_two_at_a_time() -> None:
    text = costs_source(kernel_of(("M",), ("1 + M * 2", "3 + M * 4", "ceil(M / 3)")), "k")
    assert (
        "COST_PAIR(out[0], out[1], (cost_two(1.0, 3.0) + (cost_both((double)dims[0]) * cost_two(2.0, 4.0))))"
        in text
    )
    assert "out[2] = cost_ceil(((double)dims[0] * 0.33333333333303017));" in text
