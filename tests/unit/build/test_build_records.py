from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilec.build.answers.dispatch import Server, Service
from tilec.build.elaborated.frontend import elaborate_variant, naming
from tilec.build.records import CompiledVariant, as_listed, decode, encode, restricted, spec_text
from tilec.build.reuse.compiled import find, keep
from tilec.build.reuse.loaded_files import author_modules_afresh, loaded_files
from tilec.cache import Store
from tilec.codegen.image import Image, LaunchCode, WorkspaceSlice
from tilec.errors import CompileError, ManifestError, Place, Remark, SourceError
from tilec.ir.guards import Guard
from tilec.manifest import KernelPlan, Variant
from tilec.manifest.guards import parse_guard
from tilec.manifest.model import Kernel
from tilec.package.model import DimRecord, ParamRecord, Signature, VariantRecord
from tilec.targets import parse_target


def variant(base: Path, config: Mapping[str, object] | None = None, **dims: str | int) -> Variant:
    """A variant of a kernel in ``base``/k.py."""
    guards = {name: parse_guard(value) for name, value in dims.items()}
    target = parse_target("x86-64-v3")
    return Variant("k", "k.py:k", base, target, guards, {}, config or {}, "manifest", 0, Place("m.toml", 3))


def plan_of(*variants: Variant) -> KernelPlan:
    entry = Kernel.model_validate({"name": "k", "source": "k.py:k"})
    return KernelPlan("k", entry, {}, variants, Place("m.toml"))


def compiled(one: Variant, *files: Path) -> CompiledVariant:
    code = b"machine\ncode\0"
    launch = LaunchCode("k_0", ("(M + 31) // 32", "2"), (128, 1, 1), 64, ("a note",), products=("fmla",))
    image = Image(
        "x86-64-v3", code, hashlib.sha256(code).hexdigest(), (launch,), (WorkspaceSlice("w", "M * 4"),)
    )
    params = (
        ParamRecord("A", "tensor", "float32", "in", False, ("M", "4"), ("lda", "1")),
        ParamRecord("C", "tensor", "float32", "out", True, ("M",)),
        ParamRecord("a", "scalar", "float32", default=0.5),
    )
    record = VariantRecord(
        "x86-64-v3", restricted(one), image, dict(one.config), one.config_source, "ir", "sha", (("A", 64),)
    )
    remarks = (Remark("s is hardly meant", Place(str(one.base / "k.py"), 7), "mend it"),)
    signature = Signature(params, (DimRecord("M"), DimRecord("N", 64)), "Doc.")
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return CompiledVariant(signature, record, digests, remarks)


def test_a_variant_of_another_place_is_listed_there(tmp_path: Path) -> None:
    one = replace(variant(tmp_path, {"bM": 64}, M="1..64"), cost="M")
    other = replace(
        one, cost="M * 2", config_source="another override", listed_under={}, tolerance={"rtol": 0.02}
    )
    listed = as_listed(replace(compiled(one), files={tmp_path / "k.py": "of its text"}), other)
    assert listed == replace(compiled(one), record=listed.record)
    assert (listed.record.cost, listed.record.config_source) == ("M * 2", "another override")
    assert listed.record.tolerance == decode(encode(listed, one), other).record.tolerance == {"rtol": 0.02}
    assert (listed.record.listed_under, listed.record.image) == ((), compiled(one).record.image)


def test_records_survive_the_cache(tmp_path: Path) -> None:
    one = variant(tmp_path, {"bM": 64, "names": ["a", "b"]}, M="1..64", N=4096, K="dynamic")
    made = compiled(one)
    assert decode(encode(made, one), one) == made
    idle = replace(made, idle=("split_k",))
    assert decode(encode(idle, one), one) == idle


def test_remarks_on_keys_of_the_manifest_follow_their_lines(tmp_path: Path) -> None:
    one = replace(
        variant(tmp_path, {"bM": 64}), value_places={"bM": Place("m.toml", 9, "kernel[0].config.bM")}
    )
    remarks = tuple(Remark("odd", place) for place in (one.value_places["bM"], one.place))
    moved = replace(one, value_places={"bM": Place("m.toml", 12)}, place=Place("m.toml", 11))
    found = decode(encode(replace(compiled(one), remarks=remarks), one), moved).remarks
    assert [remark.place.line for remark in found] == [12, 11]


def test_config_comes_from_the_manifest_and_not_from_the_cache(tmp_path: Path) -> None:
    one = variant(tmp_path, {"bM": 64})
    tuned = replace(one, config_source="tuned")
    assert decode(encode(compiled(one), one), tuned).record.config_source == "tuned"


def test_specs_differ_by_what_decides_the_code(tmp_path: Path) -> None:
    every = [
        variant(tmp_path, M=1),
        variant(tmp_path, M=2),
        variant(tmp_path, {"bM": 2}, M=1),
        replace(variant(tmp_path, M=1), target=parse_target("x86-64-v2")),
    ]
    assert len({spec_text(one) for one in every}) == 4
    assert spec_text(replace(every[0], index=7, base=tmp_path / "elsewhere")) == spec_text(every[0])


def test_an_entry_is_found_until_a_source_changes(tmp_path: Path) -> None:
    store, source = Store(tmp_path / "cache"), tmp_path / "k.py"
    source.write_text("x = 1\n")
    one = variant(tmp_path, M=1)
    assert find(store, one) is None
    keep(store, one, compiled(one, source))
    assert find(store, one) is not None
    assert find(store, replace(one, config={"bM": 3})) is None
    source.write_text("x = 22\n")
    assert find(store, one) is None
    source.write_text("x = 1\n")
    assert find(store, one) is not None
    source.unlink()
    assert find(store, one) is None


def test_a_moved_project_keeps_its_entries(tmp_path: Path) -> None:
    store, first = Store(tmp_path / "cache"), tmp_path / "first"
    first.mkdir()
    (first / "k.py").write_text("x = 1\n")
    one = variant(first, M=1)
    keep(store, one, compiled(one, first / "k.py"))
    second = first.rename(tmp_path / "second")
    assert find(store, replace(one, base=second)) is not None


def test_loaded_files_are_exact_and_modules_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k.py").write_text("")
    (tmp_path / "helper_of_k.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import helper_of_k as before

    began, no_text = time.time_ns(), hashlib.sha256(b"").hexdigest()
    with author_modules_afresh("k.py:k", tmp_path):
        assert loaded_files("k.py:k", tmp_path, began) == {tmp_path / "k.py": no_text}
        import helper_of_k as inside

        found = loaded_files("k.py:k", tmp_path, began)
        assert list(found) == [tmp_path / "helper_of_k.py", tmp_path / "k.py"]
        assert inside is not before
    assert sys.modules["helper_of_k"] is before
    del sys.modules["helper_of_k"]


FILL = """\
import tilec.language as T


def k(n):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64)) as b:
            for i in T.Parallel(64):
                B[b * 64 + i] = A[b * 64 + i]
                C[b * 64 + i] += A[b * 64 + i]

    return main
"""


@pytest.mark.parametrize("outputs", [None, ("C", "B")])
def test_outputs_of_the_manifest_agree_with_the_kernel(
    tmp_path: Path, outputs: tuple[str, ...] | None
) -> None:
    (tmp_path / "k.py").write_text(FILL)
    assert elaborate_variant(replace(variant(tmp_path, n="dynamic"), outputs=outputs))


@pytest.mark.parametrize("outputs", [(), ("B",), ("B", "C", "D"), ("A", "B", "C")])
def test_outputs_that_the_kernel_does_not_write_are_refused(tmp_path: Path, outputs: tuple[str, ...]) -> None:
    (tmp_path / "k.py").write_text(FILL)
    with pytest.raises(ManifestError, match=r"outputs lists .*, k writes B, C"):
        elaborate_variant(replace(variant(tmp_path, n="dynamic"), outputs=outputs))


def test_what_is_written_while_a_kernel_is_made_keeps_no_older_code(tmp_path: Path) -> None:
    store, source, one = Store(tmp_path / "cache"), tmp_path / "k.py", variant(tmp_path, n="dynamic")
    source.write_text(FILL)
    made = elaborate_variant(one)
    source.write_text(FILL.replace("+=", "-="))
    keep(store, one, replace(compiled(one), files=made.files))
    assert find(store, one) is None
    source.write_text(FILL)
    assert find(store, one) is not None


def test_a_file_that_is_written_while_it_is_loaded_is_not_known(tmp_path: Path) -> None:
    store, source, one = Store(tmp_path / "cache"), tmp_path / "k.py", variant(tmp_path, n="dynamic")
    source.write_text(f"{FILL}\nimport pathlib\npathlib.Path(__file__).write_text({FILL!r})\n")
    made = elaborate_variant(one)
    assert made.files == {source: ""}
    keep(store, one, replace(compiled(one), files=made.files))
    assert find(store, one) is None


def test_outputs_are_checked_again_when_they_change(tmp_path: Path) -> None:
    one = variant(tmp_path)
    assert spec_text(one) != spec_text(replace(one, outputs=("B",)))


def test_errors_name_the_variant(tmp_path: Path) -> None:
    one = variant(tmp_path, M=1)
    with pytest.raises(SourceError) as caught, naming(one):
        raise SourceError("wrong", place=Place("k.py", 7), why="so")
    assert (caught.value.place, caught.value.why) == (
        Place("k.py", 7),
        "so; while compiling k on x86-64-v3, M=1",
    )
    with pytest.raises(CompileError) as defect, naming(one):
        raise KeyError("x")
    assert defect.value.place == Place("m.toml", 3)
    assert "defect of tilec" in defect.value.remedy


@pytest.mark.parametrize(
    ("value", "served"), [(64, Guard(eq=64)), (16, Guard(min=1, max=32)), (48, Guard(div=16)), (47, Guard())]
)
def test_the_most_specific_variant_serves(tmp_path: Path, value: int, served: Guard) -> None:
    plan = plan_of(*(variant(tmp_path, M=guard) for guard in ("dynamic", "%16", "1..32", 64)))
    found = Server(plan, "x86-64-v3").service({"M": value}).variant
    assert found is not None
    assert found.dims["M"] == served
    assert Server(plan, "x86-64-v2").service({"M": value}) == Service("miss")


@pytest.mark.parametrize(
    ("guards", "value", "kind"),
    [
        (["dynamic"], 7, "hit"),
        (["%16", "dynamic"], 32, "hit"),
        (["%16", "dynamic"], 7, "fallback"),
        (["%64", "%16"], 16, "hit"),
        (["%64", "%16"], 7, "miss"),
        ([64], 65, "miss"),
    ],
)
def test_a_fallback_leaves_open_what_another_guards(
    tmp_path: Path, guards: list[object], value: int, kind: str
) -> None:
    plan = plan_of(*(variant(tmp_path, M=guard) for guard in guards))
    assert Server(plan, "x86-64-v3").service({"M": value}).kind == kind


def test_code_of_a_lesser_target_is_a_fallback(tmp_path: Path) -> None:
    own, lesser = variant(tmp_path, M=64), variant(tmp_path, M="dynamic")
    plan = plan_of(own, replace(lesser, target=parse_target("x86-64-v2")))
    assert Server(plan, "x86-64-v3").service({"M": 64}) == Service("hit", plan.variants[0])
    assert Server(plan, "x86-64-v3").service({"M": 65}) == Service("fallback", plan.variants[1])
    assert Server(plan, "x86-64-v2").service({"M": 64}) == Service("hit", plan.variants[1])


def test_many_calls_are_served_as_one_by_one(tmp_path: Path) -> None:
    guards = ["dynamic", "%16", "%16,>=128", "1..32", ">=100", "<=8", 64, 7]
    plan = plan_of(*(variant(tmp_path, M=guard) for guard in guards[1:]))
    server, values = Server(plan, "x86-64-v3"), np.arange(1, 300)
    found: dict[int, Service] = {}
    for each, mask in server.services({"M": values}):
        found.update((int(value), each) for value in values[mask] if int(value) not in found)
    assert found == {int(value): server.service({"M": int(value)}) for value in values}
    assert {each.kind for each in found.values()} == {"hit", "miss"}


def test_what_a_file_prints_leaves_stdout_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.py").write_text("print('seen')\nk = 1\n")
    with pytest.raises(SourceError):
        elaborate_variant(variant(tmp_path))
    assert capsys.readouterr() == ("", "seen\n")
