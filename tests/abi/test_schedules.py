"""Schedules of a list: the library takes the one of least cost, and so does whoever reads its metadata."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import MATMUL, image, scalar, tensor

from tilec.cli.main import run
from tilec.costs import cheapest, kept_cost
from tilec.errors import PackageError
from tilec.ir.guards import Guard
from tilec.package.dispatch.reasons import reasons
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, VariantRecord
from tilec.package.write import BuildReport, write_package
from tilec.portable.loader import Kernel, Library, load
from tilec.targets import native_host, native_target
from tilec.trials.chosen import chosen_dims
from tilec.trials.library import read_facts

Guards = tuple[tuple[str, Guard], ...]
UNITS = 3
COSTS = (
    "2 + waves(ceil(M / 128) * ceil(N / 192)) * (0.7 + 0.01 * K)",
    "1.5 + waves(ceil(M / 16) * ceil(N / 64)) * (0.3 + 0.004 * K)",
    "0.25 + max(rounds(M * N) * 0.0031, min(K, 40) - N / 7)",
)
#: A list with schedules for some calls alone: guards and costs.
NESTED: tuple[tuple[Guards, str], ...] = (
    ((("M", Guard(min=1, max=64)),), "1.4 + 0.001 * M * K"),
    ((("M", Guard(eq=7)),), "2.5"),
    ((("M", Guard(min=1, max=64)), ("N", Guard(div=16))), "2.2"),
    ((), COSTS[0]),
    ((), COSTS[1]),
)
#: Costs of processors that a feature tells apart, which some of those that run this have, and others not.
TOLD_APART = ("on(vnni, M, 2 * M)", "on(dotprod, 90, 60)")
EXPLAIN = """
import sys
from tilec.portable.loader import load
print(load(sys.argv[1]).kernels["told_apart"].explain(M=50, N=3, K=4))
"""
DIM = st.integers(0, 3000)
FEW = st.one_of(st.integers(0, 70), DIM)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    """Three schedules for N divisible by 8, one variant for M = 5, one for all else; and the others."""
    every_8 = (("N", Guard(div=8)),)
    kinds = [*((every_8, text) for text in COSTS), ((("M", Guard(eq=5)),), ""), ((), "")]
    apart = priced("told_apart", [((), text) for text in TOLD_APART], (), native_target().level)
    kernels = (priced("matmul", kinds), priced("nested", NESTED, ()), apart)
    spec = PackageSpec("choices", "1", native_host(), kernels)
    return write_package(spec, tmp_path_factory.mktemp("choices"))


def priced(
    name: str, kinds: Sequence[tuple[Guards, str]], listed_under: Guards | None = None, target: str = ""
) -> KernelRecord:
    """A product whose variants, for this machine or a lesser target, have such guards and costs."""
    host, target = native_host(), target or native_target().name
    variants = tuple(
        VariantRecord(
            *(target, guards, image(f"{name}_{number}", MATMUL, [("M",)], target, host)),
            config={"number": number},
            cost=text,
            listed_under=listed_under,
        )
        for number, (guards, text) in enumerate(kinds)
    )
    params = (
        tensor("A", "float32", "M", "K"),
        tensor("B", "float32", "K", "N"),
        tensor("C", "float32", "M", "N", access="out"),
        scalar("alpha", "float32", 1.0),
    )
    return KernelRecord(name, params, tuple(map(DimRecord, "MNK")), variants)


@pytest.fixture(scope="module")
def library(report: BuildReport) -> Iterator[Library]:
    """Opened where calls have `UNITS` threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEC_NUM_THREADS", str(UNITS))
        yield load(report.library)


def told(kernel: Kernel, **dims: int) -> list[str]:
    """What the metadata alone says of each variant."""
    return [str(each) for each in reasons(kernel.metadata, native_target().name, dims, UNITS)]


@settings(max_examples=300)
@given(m=DIM, n=DIM, k=DIM)
def test_c_and_python_choose_alike(library: Library, m: int, n: int, k: int) -> None:
    kernel, dims = library.kernels["matmul"], {"M": m, "N": n, "K": k}
    assert kernel.explain(**dims).splitlines() == told(kernel, **dims)
    texts = [variant.get("cost", "") for variant in kernel.metadata["variants"]]
    first = texts.index(COSTS[0])
    if n % 8 == 0 and m != 5:
        assert kernel.select(**dims).id == first + cheapest(COSTS, dims, UNITS)


@settings(max_examples=300)
@given(m=FEW, n=DIM, k=DIM)
def test_guards_of_a_schedule_hide_no_cheaper_one(library: Library, m: int, n: int, k: int) -> None:
    kernel, dims = library.kernels["nested"], {"M": m, "N": n, "K": k}
    assert kernel.explain(**dims).splitlines() == told(kernel, **dims)
    costs = {each["id"]: each["cost"] for each in kernel.metadata["variants"]}
    admitting = [text for guards, text in NESTED if all(guard.admits(dims[name]) for name, guard in guards)]
    for _ in range(2):  # chosen, and kept from before
        cost = costs[kernel.select(**dims).id]
        assert kept_cost(cost, dims, UNITS) == min(kept_cost(text, dims, UNITS) for text in admitting)


def test_processors_have_costs_of_their_own(report: BuildReport, library: Library) -> None:
    kernel, dims = library.kernels["told_apart"], {"M": 50, "N": 3, "K": 4}
    assert kernel.explain(**dims).splitlines() == told(kernel, **dims)
    target = native_target()
    first = kernel.metadata["variants"][0]["id"]
    assert kernel.select(**dims).id == first + cheapest(TOLD_APART, dims, UNITS, target.features)
    # A processor that is to be taken for a lesser one has no more than that.
    done = subprocess.run(
        [sys.executable, "-c", EXPLAIN, str(report.library)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TILEC_CPU": target.level},
    )
    assert "taken, 60.0 us" in done.stdout


def test_a_narrow_schedule_that_costs_more_is_not_taken(library: Library) -> None:
    said = [
        line.partition("): ")[2] for line in library.kernels["nested"].explain(M=64, N=8, K=100).splitlines()
    ]
    assert said == [
        "rejected: M = 64 is not 7",
        "rejected: N = 8 is not a multiple of 16",
        "admits too, 7.8 us, but variant 9 costs less",
        "admits too, 3.7 us, but variant 9 costs less",
        "taken, 2.9 us",
    ]


def test_each_schedule_is_taken_somewhere(library: Library) -> None:
    shapes = [(3000, 3000, 500), (100, 64, 100), (8, 3000, 3000)]
    select = library.kernels["matmul"].select
    assert len({select(M=m, N=n, K=k).id for m, n, k in shapes}) == len(COSTS)


def test_explain_says_what_each_costs(library: Library) -> None:
    lines = library.kernels["matmul"].explain(M=16, N=64, K=100).splitlines()
    said = [line.partition("): ")[2] for line in lines]
    assert said == [
        "rejected: M = 16 is not 5",
        "admits too, 3.7 us, but variant 2 costs less",
        "taken, 2.2 us",
        "admits too, 31.1 us, but variant 2 costs less",
        "admits too, but variant 2 comes first",
    ]


def test_a_call_runs_what_was_chosen(library: Library) -> None:
    a, b = np.ones((16, 8), "f4"), np.ones((8, 64), "f4")
    assert (library.kernels["matmul"](a, b) == 8).all()


def test_inspect_tells_the_same(report: BuildReport, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(report.library), "--shape", "M=16,N=64,K=100", "--json"]) == 0
    for answer in json.loads(capsys.readouterr().out):
        assert sum(each["reason"].startswith("taken, ") for each in answer["variants"]) == 1


def test_more_schedules_than_the_runtime_has_room_for(tmp_path: Path) -> None:
    host, target = native_host(), native_target().name
    made = image("crowd", MATMUL, [("M",)], target, host)
    variants = tuple(VariantRecord(target, (), made, {"n": n}, cost=f"{n}") for n in range(65))
    kernel = KernelRecord("crowd", (scalar("s", "float32"),), (DimRecord("M"),), variants)
    with pytest.raises(PackageError, match="65 schedules for the same calls"):
        write_package(PackageSpec("crowd", "1", host, (kernel,)), tmp_path)


def test_verify_runs_each_schedule_where_it_is_taken(report: BuildReport, library: Library) -> None:
    for facts in read_facts(report.library):
        for variant in facts.variants:
            dims = chosen_dims(facts, variant, UNITS, native_target().features, 1 << 24)
            assert (dims is not None) == bool(variant.cost)
            if dims is not None:
                assert library.kernels[facts.name].select(**dims).id == variant.id
        assert chosen_dims(facts, facts.variants[-1], UNITS, (), 0) is None
