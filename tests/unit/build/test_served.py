"""Variants that others serve as well are left out, and no others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tilec.build.answers.served import without_served
from tilec.build.library import build
from tilec.codegen.image import Image, LaunchCode
from tilec.manifest.guards import parse_guard
from tilec.package.model import DimRecord, KernelRecord, VariantRecord

V2, V3, V4 = "x86-64-v2", "x86-64-v3", "x86-64-v4"
NARROW, WIDE = {"M": "dynamic", "N": "%8"}, {"M": "dynamic", "N": "dynamic"}


def of(code: str, target: str = V3, cost: str = "", **dims: str) -> VariantRecord:
    data = code.encode()
    image = Image(target, data, hashlib.sha256(data).hexdigest(), (LaunchCode("k_0", ("M",), (1, 1, 1)),))
    guards = tuple((name, parse_guard(text)) for name, text in dims.items() if text != "dynamic")
    return VariantRecord(target, guards, image, cost=cost)


def left(*variants: VariantRecord) -> list[int]:
    """The places of those that a library keeps."""
    kernel = KernelRecord("k", (), (DimRecord("M"), DimRecord("N")), variants)
    kept = without_served(kernel).variants
    return [at for at, variant in enumerate(variants) if any(variant is each for each in kept)]


def test_a_wider_variant_with_the_same_code_serves_a_narrower_one() -> None:
    assert left(of("a", **NARROW), of("a", **WIDE)) == [1]
    assert left(of("a", **NARROW), of("b", **WIDE)) == [0, 1]


def test_what_stands_between_the_two_keeps_the_narrower_one() -> None:
    narrow, between, wide = of("a", N="16"), of("b", N="%8"), of("a", **WIDE)
    assert left(narrow, between, wide) == [0, 1, 2]
    assert left(of("a", N="17"), between, wide) == [1, 2]


def test_a_wider_variant_takes_every_call_of_the_narrower_one() -> None:
    assert left(of("a", N="1..16"), of("a", N=">=8")) == [0, 1]
    assert left(of("a", N="8..16"), of("a", N=">=8")) == [1]
    assert left(of("a", N="%8"), of("a", N=">=1")) == [0, 1], "a dim may be 0"


def test_divisors_may_be_large() -> None:
    assert left(of("a", N="%4611686018427387904"), of("a", **WIDE)) == [1]
    assert left(of("a", N="%1000003"), of("b", N="%999983"), of("a", **WIDE)) == [0, 1, 2]
    assert left(of("a", N="%1000003"), of("b", N="%2000006"), of("a", **WIDE)) == [1, 2]
    assert left(of("a", N="%2000006"), of("b", N="%1000003"), of("b", **WIDE)) == [0, 2]


def test_layouts_of_rows_come_down_to_one() -> None:
    every = [of("a", M=m, N=n) for m in ("%8", "dynamic") for n in ("%8", "dynamic")]
    assert left(*every) == [3]


def test_guards_of_one_dim_go_together() -> None:
    """A tile of rows that no code of a CPU needs, beside divisors that it does."""
    few = [of(f"{n}", M="1..16", N=n) for n in ("%8", "dynamic")]
    assert left(*few, *(of(f"{n}", M="dynamic", N=n) for n in ("%8", "dynamic"))) == [2, 3]


def test_demands_on_alignment_may_hold_or_not() -> None:
    aligned = replace(of("a"), align=(("A", 64),))
    assert left(aligned, of("b")) == [0, 1]
    assert left(aligned, of("a")) == [1]
    assert left(of("b", N="%8"), replace(of("b"), align=(("A", 64),)), of("a")) == [0, 1, 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda image: replace(image, needs="M < 9"),
        lambda image: replace(image, launches=(replace(image.launches[0], grid=("N",)),)),
    ],
)
def test_launches_and_conditions_count_as_code(change: Callable[[Image], Image]) -> None:
    narrow = of("a", **NARROW)
    assert left(replace(narrow, image=change(narrow.image)), of("a", **WIDE)) == [0, 1]


def test_names_notes_and_roads_do_not_count() -> None:
    narrow = of("a", **NARROW)
    launch = LaunchCode("other_0", ("M",), (1, 1, 1), notes=("a note",), roads="road")
    assert left(replace(narrow, image=replace(narrow.image, launches=(launch,))), of("a", **WIDE)) == [1]


def test_schedules_go_together_or_stay() -> None:
    narrow = [of("a", cost="M", **NARROW), of("b", cost="2", **NARROW)]
    assert left(*narrow, of("a", cost="M", **WIDE), of("b", cost="2", **WIDE)) == [2, 3]
    assert left(*narrow, of("a", cost="M", **WIDE), of("b", cost="3", **WIDE)) == [0, 1, 2, 3]
    assert left(*narrow, of("a", **WIDE)) == [0, 1, 2]


def test_a_schedule_for_some_calls_goes_where_its_list_has_the_same_one_for_all() -> None:
    rest = [listed(of("a", cost="M")), listed(of("b", cost="9"))]
    assert left(listed(of("a", cost="M", N="1..16")), *rest) == [1, 2]
    assert left(listed(of("a", cost="2 * M", N="1..16")), *rest) == [0, 1, 2]
    assert left(listed(of("c", cost="M", N="1..16")), *rest) == [0, 1, 2]


def listed(variant: VariantRecord) -> VariantRecord:
    return replace(variant, listed_under=())


def test_a_feature_that_changes_no_code_is_left_out() -> None:
    features = f"{V4}+vnni"
    both = [of("a", N="%8", target=V4), of("b", target=V4)]
    assert left(of("a", N="%8", target=features), of("b", target=features), *both) == [2, 3]
    assert left(of("c", N="%8", target=features), of("b", target=features), *both) == [0, 2, 3]
    assert left(of("a", N="%8", target=features), of("c", target=features), *both) == [0, 1, 2, 3], (
        "calls of the first would come to the second"
    )


def test_a_list_whose_variants_are_compared_goes_as_a_whole() -> None:
    def schedules(target: str, code: str = "a") -> list[VariantRecord]:
        narrow = listed(of(code, cost="M", N="%8", target=target))
        return [
            narrow,
            listed(of("b", cost="2", N="1..16", target=target)),
            listed(of("c", cost="N", target=target)),
        ]

    features = f"{V4}+vnni"
    assert left(*schedules(features), *schedules(V4)) == [3, 4, 5]
    assert left(*schedules(features, "d"), *schedules(V4)) == [0, 1, 2, 3, 4, 5]


def test_a_lesser_target_serves_what_machines_of_every_kind_bring_to_it() -> None:
    """A machine with one of two features does not run the other's code, one with both runs either."""
    vnni, bf16 = f"{V4}+vnni", f"{V4}+avx512bf16"
    assert left(of("a", target=bf16), of("b", target=vnni), of("a", target=V4)) == [0, 1, 2]
    assert left(of("a", target=bf16), of("a", target=vnni), of("a", target=V4)) == [2]


def test_a_target_whose_machines_do_not_run_the_next_one_stays() -> None:
    assert left(of("a", target=f"{V4}+avx512bf16"), of("a", target=f"{V4}+vnni")) == [0, 1]
    assert left(of("a", target="sm_90a"), of("a", target="sm_80")) == [0, 1]


KERNEL = """
import tilec.language as T

def twice(M, N):
    @T.prim_func
    def kernel(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(M) as bx:
            for i in T.Parallel(N):
                B[bx, i] = A[bx, i] * 2.0
    return kernel
"""
MANIFEST = """
edition = 1
[package]
name = "doubles"
[targets]
cpu = ["x86-64-v3", "x86-64-v4", "x86-64-v4+vnni"]
[[kernel]]
name = "twice"
source = "kernels.py:twice"
dims = { M = ["1..16", "dynamic"], N = "dynamic" }
"""


def test_builds_make_and_hold_the_same_code_once(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNEL)
    manifest = tmp_path / "doubles.toml"
    manifest.write_text(MANIFEST)
    built = build(manifest, tmp_path / "out", jobs=1)
    (kernel,) = built.spec.kernels
    assert [variant.target for variant in kernel.variants] == [V3, V4]
    assert built.left_out == 4
    left = {(target, str(dict(guards).get("M"))) for target, guards in kernel.left_out}
    vnni = f"{V4}+vnni"
    assert left == {(V3, "1..16"), (V4, "1..16"), (vnni, "1..16"), (vnni, "None")}
    again = build(manifest, tmp_path / "out", jobs=1)
    assert (again.compiled, again.left_out, again.package_reused) == (0, 4, True)
