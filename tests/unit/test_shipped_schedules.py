"""Schedules of `manifests/llm.toml`: `tilec verify` runs each at its edges and where a library takes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import groupby, islice
from pathlib import Path

import pytest
from breadth import diagonal, parametrized

from tilec.build.answers.dispatch import Server
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.costs import cheapest
from tilec.manifest import Variant, load_manifest
from tilec.package.model import signature
from tilec.trials.chosen import chosen_dims
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.shapes import cases
from tilec.verify.walk import MOST_CASES, Walk

MANIFEST = Path(__file__).parents[2] / "manifests" / "llm.toml"
UNITS = 132
GUARDS = ({"M": "129..255", "N": "%16", "K": "%16"}, {"M": "<=128", "N": "%16", "K": "%16"})


@cache
def schedules() -> tuple[Variant, ...]:
    """Those of `linear_fp8_blocks` on sm_90a."""
    (plan,) = load_manifest(MANIFEST, targets=["sm_90a"], kernels=["linear_fp8_blocks"]).kernels
    return tuple(variant for variant in plan.variants if variant.cost)


@cache
def facts(number: int) -> KernelFacts:
    """The kernel with the schedules of some guards."""
    chosen = [each for each in schedules() if {k: str(g) for k, g in each.dims.items()} == GUARDS[number]]
    about = signature(elaborate_variant(chosen[0]).kernel)
    variants = tuple(
        VariantFacts(at, "sm_90a", dict(each.dims), _tiles(each.config), "", (), {}, each.cost)
        for at, each in enumerate(chosen)
    )
    return KernelFacts("linear_fp8_blocks", about.params, tuple(chosen[0].dims), variants, {})


def _tiles(config: Mapping[str, object]) -> frozenset[int]:
    return frozenset(value for value in config.values() if type(value) is int and value >= 4)


@pytest.mark.parametrize("number", range(len(GUARDS)))
def test_each_schedule_runs_where_a_library_takes_it(number: int) -> None:
    kernel = facts(number)
    found = [chosen_dims(kernel, variant, UNITS, (), Walk.most_elements) for variant in kernel.variants]
    assert len(found) >= 5
    assert None not in found


@pytest.mark.parametrize("number", range(len(GUARDS)))
def test_each_schedule_runs_at_ends_of_its_guards_and_inside_of_tiles(number: int) -> None:
    for variant in facts(number).variants:
        rows = {dims["M"] for dims in islice(cases(facts(number), variant, 0), MOST_CASES)}
        guard = variant.guard("M")
        assert {guard.min, guard.max} - {None} <= rows
        assert any(row % tile for row in rows for tile in variant.tiles)


#: And the machines that multiply their elements by words.
LINEAR = {"linear_bfloat16": "x86-64-v4+vnni+avx512bf16", "linear_int8": "x86-64-v4+vnni"}
#: Of rows that come: those of tiles.
TILES = {1: 4, 4: 4, 5: 16, 16: 16, 17: 32, 64: 64}


@parametrized(
    ("rows", "kernel"),
    [(rows, kernel) for rows in TILES for kernel in LINEAR],
    fast=diagonal(list(TILES), list(LINEAR)),
)
def test_few_rows_take_tiles_of_their_size(rows: int, kernel: str) -> None:
    tile = TILES[rows]
    (plan,) = load_manifest(MANIFEST, kernels=[kernel]).kernels
    variant = Server(plan, LINEAR[kernel]).service({"M": rows, "N": 4096, "K": 4160}).variant
    assert variant is not None
    assert variant.config["bM"] == tile


@pytest.mark.parametrize(("rows", "tile"), [(1, 4), (4, 4), (5, 16), (16, 16)])
@pytest.mark.parametrize("depth", [1024, 1040])
def test_up_to_four_rows_of_bytes_leave_the_matrix_unit_idle(rows: int, tile: int, depth: int) -> None:
    target = "x86-64-v4+vnni+avx512bf16+amx"
    (plan,) = load_manifest(MANIFEST, targets=[target], kernels=["linear_int8"]).kernels
    variant = Server(plan, target).service({"M": rows, "N": 4096, "K": depth}).variant
    assert variant is not None
    assert variant.config["bM"] == tile


#: Of float32 products: few and many rows, few and many columns, short and long K, and none a round number.
PRODUCTS = (
    (3, 960, 6543),
    (27, 39, 473),
    (64, 64, 4096),
    (99, 60, 2748),
    (191, 1277, 884),
    (444, 7, 182),
    (1528, 2928, 134),
)


@pytest.mark.parametrize("shape", PRODUCTS, ids=str)
def test_threads_choose_among_tiles_that_add_in_the_same_order(shape: tuple[int, int, int]) -> None:
    """Else results would differ with the number of threads (docs/cpu.md#what-is-exact)."""
    dims = dict(zip("MNK", shape, strict=True))
    (plan,) = load_manifest(MANIFEST, targets=["x86-64-v4"], kernels=["matmul_float32"]).kernels
    served = [each for each in plan.variants if all(g.admits(dims[name]) for name, g in each.dims.items())]
    lists = [each for each in served if each.dims == served[0].dims and each.cost]
    assert len(lists) >= 10
    chosen = [
        lists[cheapest([each.cost for each in lists], dims, threads)].config for threads in (1, 2, 4, 16)
    ]
    assert len({config.get("spread_k", 1) for config in chosen}) == 1
    if any(config != chosen[0] for config in chosen):
        assert all(config["bK"] % 64 == 0 and config["bM"] % 8 == 0 for config in chosen)


def test_schedules_for_the_same_calls_stand_together() -> None:
    """Else the first alone is taken, whatever the others cost."""
    for kernel in load_manifest(MANIFEST).kernels:
        for target in {variant.target.name for variant in kernel.variants}:
            served = [each.dims for each in Server(kernel, target).candidates if each.target.name == target]
            runs = [dims for dims, _ in groupby(served)]
            assert all(runs.count(dims) == 1 for dims in runs), kernel.name
