from __future__ import annotations

import json
from dataclasses import replace

import pytest
from records import spec

from tilec.package.library.metadata import (
    META_MAGIC,
    describe,
    ir_section,
    meta_section,
    open_ir,
    open_section,
    read_guards,
    read_param,
    to_json,
)
from tilec.trials.facts import read_kernel


def test_the_section_gives_its_content_back() -> None:
    text = to_json(describe(spec(), ("x86-64-v3", "x86-64-v2")))
    assert open_section(meta_section(text), META_MAGIC) == text


def test_ir_is_listed_by_variant_id() -> None:
    assert open_ir(ir_section(spec())) == ["kernel any", "kernel pinned", "kernel plain"]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: data[:20], "shorter than its header"),
        (lambda data: b"X" + data[1:], "its mark"),
        (lambda data: data[:8] + b"\x09" + data[9:], "format 9"),
        (lambda data: data[:-1], "bytes are announced"),
        (lambda data: data[:-1] + b"?", "sha256"),
    ],
)
def test_damage_is_named(damage: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        open_section(damage(meta_section(b'{"a": 1}')), META_MAGIC)


def test_metadata_gives_records_back() -> None:
    (record,), (entry,) = spec().kernels, json.loads(to_json(describe(spec(), ("x86-64-v3",))))["kernels"]
    assert tuple(map(read_param, entry["params"])) == record.params
    assert [read_guards(variant) for variant in entry["variants"]] == [
        dict(variant.guards) for variant in record.variants
    ]


def test_metadata_has_what_is_said_of_one_variant() -> None:
    (record,) = spec().kernels
    first, *others = record.variants
    own = replace(record, variants=(replace(first, tolerance={"rtol": 0.02}), *others))
    (kernel,) = json.loads(to_json(describe(replace(spec(), kernels=(own,)), ())))["kernels"]
    facts = read_kernel(kernel, [""] * len(record.variants))
    assert [variant.tolerance for variant in facts.variants] == [{"rtol": 0.02}, *({} for _ in others)]


def test_metadata_is_plain_json() -> None:
    metadata = json.loads(to_json(describe(spec(), ("x86-64-v3", "x86-64-v2"))))
    (kernel,) = metadata["kernels"]
    assert [param["name"] for param in kernel["params"]] == ["A", "B", "C", "alpha", "default"]
    assert [variant["id"] for variant in kernel["variants"]] == [0, 1, 2]
    assert kernel["variants"][1]["guards"]["M"] == {"text": "1..64", "min": 1, "max": 64}
    assert kernel["dims"][2]["binds"][0]["source"] == "stride"
