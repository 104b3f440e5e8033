"""Which machine runs which code, and what is said of code that it does not take."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from records import kernel, scalar, spec, tensor, variant

from tilec.ir.guards import Guard
from tilec.package.dispatch.reasons import reasons
from tilec.package.dispatch.usable import may_run
from tilec.package.library.metadata import describe, to_json
from tilec.package.model import VariantRecord


@pytest.mark.parametrize(
    ("device", "runs"),
    [
        ("x86-64-v3", ["x86-64-v3", "x86-64-v2"]),
        ("x86-64-v4", ["x86-64-v4", "x86-64-v3", "x86-64-v2"]),
        ("x86-64-v4+vnni", ["x86-64-v4+vnni", "x86-64-v4", "x86-64-v3", "x86-64-v2"]),
        ("aarch64", ["aarch64"]),
        ("sm_90a", ["sm_90a", "compute_90", "compute_80"]),
        ("sm_89", ["sm_89", "sm_86", "sm_80", "compute_80"]),
        ("sm_80", ["sm_80", "compute_80"]),
        ("compute_90", ["compute_90", "compute_80"]),
    ],
)
def test_a_machine_runs_its_own_code_and_lesser(device: str, runs: list[str]) -> None:
    every = [
        *("x86-64-v4+vnni", "x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64"),
        *("sm_90a", "sm_89", "sm_86", "sm_80", "compute_90", "compute_80"),
    ]
    assert [code for code in every if may_run(code, device)] == runs


GPU_VARIANTS = (
    variant("pinned", "sm_90a", M=Guard(eq=64)),
    variant("ranged", "sm_90a", M=Guard(div=16, min=128, max=256)),
    variant("open", "sm_90a"),
    variant("older", "sm_80"),
    variant("ptx", "compute_80"),
    variant("host", "x86-64-v3"),
)
AFTER = "admits too, but variant {} comes first"


@pytest.mark.parametrize(
    ("size", "pinned", "ranged", "opened", "ptx"),
    [
        (64, "taken", "rejected: M = 64 is below 128", AFTER.format(0), AFTER.format(0)),
        (192, "rejected: M = 192 is not 64", "taken", AFTER.format(1), AFTER.format(1)),
        (100, "rejected: M = 100 is not 64", "rejected: M = 100 is not a multiple of 16", "taken", None),
        (512, "rejected: M = 512 is not 64", "rejected: M = 512 is above 256", "taken", None),
    ],
)
def test_each_variant_has_its_reason(
    size: int, pinned: str, ranged: str, opened: str, ptx: str | None
) -> None:
    described = described_kernel(*GPU_VARIANTS)
    found = {each.id: each.text for each in reasons(described, "sm_90a", {"M": size}, 132)}
    assert found == {
        0: pinned,
        1: ranged,
        2: opened,
        3: "rejected: this GPU may not run it",
        4: ptx or AFTER.format(2),
        5: "rejected: it is for a CPU",
    }


def test_alignment_is_known_from_the_element_type_alone() -> None:
    wide = replace(variant("wide"), align=(("A", 8),))
    narrow = replace(variant("narrow"), align=(("A", 4),))
    found = reasons(described_kernel(wide, narrow), "x86-64-v3", {"M": 1}, 1)
    assert [str(each) for each in found] == [
        "variant 0 (x86-64-v3): rejected: A is not known to be aligned to 8 bytes",
        "variant 1 (x86-64-v3): taken",
    ]


def test_nothing_is_taken_of_a_list_that_another_machine_runs() -> None:
    """Variants that costs choose among, none of which admits the call."""
    listed = [replace(variant("a", "sm_90a"), listed_under=(), cost=cost) for cost in ("1", "2")]
    found = reasons(described_kernel(*listed), "x86-64-v3", {"M": 1}, 1)
    assert {each.text for each in found} == {"rejected: it is for a GPU"}


def described_kernel(*variants: VariantRecord) -> dict[str, Any]:
    """What a library's metadata would say of a kernel of these variants, in this order."""
    one = kernel([tensor("A", "M"), scalar("s", "float32")], ["M"], *variants)
    text = to_json(describe(spec(one), ()))
    found: dict[str, Any] = json.loads(text)["kernels"][0]
    return found
