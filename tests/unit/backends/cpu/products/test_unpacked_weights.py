"""Products of packed weights on the matrix unit of x86 as they ship, on an emulated one where none is."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library
from tile_unit import as_here, emulated_tiles

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.build.answers.dispatch import Server
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.ir.interp.values import numpy_dtype
from tilec.language.frontend.elaborate import load_entry
from tilec.manifest import KernelPlan, Variant, load_manifest
from tilec.portable.nearness import near
from tilec.targets import parse_target
from tilec.trials.comparison import default_tolerance

TARGET = "x86-64-v4+vnni+avx512bf16+amx"
MANIFESTS = Path(__file__).parents[5] / "manifests"
KERNELS = {
    "linear_packed_w4a16_bfloat16": "amx",
    "linear_packed_w8a16_bfloat16": "amx",
    "linear_q4_0_bfloat16": "amx",
    "linear_packed_w4a16": "llm",
    "linear_packed_w8a16": "llm",
    "linear_w4a16_g32": "llm",
    "linear_w4a8_g32": "llm",
    "linear_q4_0": "llm",
    "linear_q4_k": "llm",
}
BY_BYTES = {"linear_packed_w4a16": range(9, 17)}
"""Rows of kernels that are multiplied as bytes."""
PRODUCTS = (
    *((name, at, "tdpbf16ps") for name in KERNELS for at in (9, 33) if at not in BY_BYTES.get(name, ())),
    *((name, 16, "tdpbusd") for name in BY_BYTES),
)
FAST = [case for case in PRODUCTS if case[0] in {"linear_packed_w4a16_bfloat16", "linear_w4a8_g32"}]
SHAPES = ((16, 64, 256), (17, 70, 512), (75, 33, 768))


@lru_cache(maxsize=1)
def plan(name: str) -> KernelPlan:
    """A kernel of a manifest."""
    (found,) = load_manifest(MANIFESTS / f"{KERNELS[name]}.toml", targets=[TARGET], kernels=[name]).kernels
    return found


def served(name: str, rows: int) -> Variant:
    """The variant that multiplies so many rows."""
    found = Server(plan(name), TARGET).service({"M": rows, "N": 4096, "K": 4096}).variant
    assert found is not None
    return found


@parametrized("name", KERNELS, fast=("linear_packed_w4a16_bfloat16", "linear_q4_0"))
def test_five_rows_and_more_are_multiplied_by_the_unit(name: str) -> None:
    by_bytes = BY_BYTES.get(name, ())
    assert all("unpacked" not in served(name, rows).config for rows in (1, 2, 4))
    assert all(served(name, rows).config["unpacked"] == "int8" for rows in by_bytes)
    by_unit = [rows for rows in (5, 8, 9, 16, 17, 64, 4096) if rows not in by_bytes]
    assert all(served(name, rows).config["unpacked"] == "bfloat16" for rows in by_unit)


@pytest.mark.parametrize(
    ("name", "rounds"),
    [("linear_packed_w4a16_bfloat16", True), ("linear_q4_k", True), ("linear_w4a16_g32", False)],
)
def test_tables_of_weights_that_share_a_step_are_rounded(name: str, rounds: bool) -> None:
    target = parse_target(TARGET)
    lowered = to_tir(lower(elaborate_variant(served(name, 33)).kernel, target), target)
    assert ("permvar.hi.256" in tir_text(lowered, target, "k")) == rounds


@parametrized(("name", "rows", "product"), PRODUCTS, fast=FAST)
def test_weights_are_multiplied_as_exactly_as_the_manifest_says(name: str, rows: int, product: str) -> None:
    variant, rng = served(name, rows), np.random.default_rng(0)
    kernel = elaborate_variant(variant).kernel
    with emulated_tiles():
        built = Library({"k": kernel}, as_here(parse_target(TARGET)))
    products = built.images["k"].launches[-1].products
    assert products == (product,)
    entry = plan(name).entry
    reference, inputs = (load_entry(source, variant.base) for source in (entry.reference, entry.inputs))
    dtypes = (str(param.buffer.ty.dtype) for param in kernel.params)
    tolerance = replace(default_tolerance(dtypes), **variant.tolerance)
    for m, n, k in SHAPES:
        m = min(m, next(dim.guard.max for dim in kernel.dims if dim.name == "M") or m)  # that it is built for
        dims = {"M": m, "N": n, "K": k}
        types = [numpy_dtype(str(param.buffer.ty.dtype)) for param in kernel.params]
        given = [value.astype(kind) for value, kind in zip(inputs(dims, rng), types, strict=False)]
        result = np.full((m, n), np.nan, types[-1])
        built.run("k", [*given, result], dims)
        expected, found = reference(*given).astype(np.float64), result.astype(np.float64)
        assert near(found, expected, tolerance.rtol, tolerance.atol).all()
