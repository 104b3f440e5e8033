"""Right kernels pass; every planted defect is found and can be repeated."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from verify_samples import build, kernel_name

from tilec.errors import InputError, LibraryError, ManifestError, Place, SourceError
from tilec.ir.guards import Guard
from tilec.trials.library import read_facts
from tilec.verify import isolate, verify_library
from tilec.verify.isolate import run_isolated
from tilec.verify.session import Request, choose

_REFERENCE = "def reference(x, alpha):\n    return {}\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The library of defects."""
    return build(tmp_path_factory.mktemp("scales"))


def _verify(library, defect, **more):
    return verify_library(library, kernels=[kernel_name(defect)], **{"isolated": False, **more})


def test_a_right_kernel_passes(library):
    seen = []
    results = _verify(library, "right", progress=seen.append)
    assert results == seen
    assert all(result.passed for result in results), [result.detail for result in results]
    assert {result.oracle for result in results} == {"interpreter", "guard"}
    assert {result.dims["m"] for result in results if result.oracle == "guard"} == {68, 5}
    assert {4, 60, 64} <= {result.dims["m"] for result in results if result.oracle != "guard"}
    assert [result.values for result in results].count("special") == 1
    assert any(result.dims["ld"] > result.dims["n"] for result in results)


@pytest.mark.parametrize(
    ("defect", "words"),
    [
        ("wrong tail", "y: "),
        ("unwritten", "got nan"),
        ("writes past the end", "memory around y was written"),
        ("writes before the start", "memory around y was written"),
        ("writes its input", "x is an input, but was written"),
        ("writes between rows", "memory around x was written"),
        ("drops NaN", "expected nan"),
        ("drops infinity", "expected inf"),
        ("needs aligned rows", "y: "),
    ],
)
def test_defects_are_found_and_repeat(library, defect, words):
    failed = [result for result in _verify(library, defect, seed=3) if result.outcome == "failed"]
    assert failed
    assert words in failed[0].detail
    case = {"dims": failed[0].dims, "seed": failed[0].seed, "values": failed[0].values}
    again = _verify(library, defect, variant=failed[0].variant, **case)
    assert [result.detail for result in again] == [failed[0].detail]
    assert ("--values special" in failed[0].command(library)) == defect.startswith("drops")


def test_calls_that_differ_are_found(library):
    failed = [each for each in _verify(library, "differs between calls") if each.outcome == "failed"]
    assert failed
    assert all("y differs between two calls with the same inputs" in each.detail for each in failed)


def test_a_call_outside_of_the_guards_that_is_not_refused_is_found(library, monkeypatch):
    narrowed = [
        replace(
            kernel,
            variants=tuple(replace(each, guards={"m": Guard(div=4, max=32)}) for each in kernel.variants),
        )
        for kernel in read_facts(library)
    ]
    monkeypatch.setattr("tilec.verify.session.read_facts", lambda path: narrowed)
    failed = [each for each in _verify(library, "right") if each.outcome == "failed"]
    assert [(each.dims["m"], each.oracle) for each in failed] == [(36, "guard")]
    assert failed[0].detail == "outside of the guards, but the call was not refused"


def test_a_crash_is_one_failed_case_and_the_rest_goes_on(library):
    names = [kernel_name(defect) for defect in ("crashes", "right")]
    results = verify_library(library, kernels=names)
    failed = [result for result in results if result.outcome == "failed"]
    assert [(result.kernel, result.dims["n"]) for result in failed] == [("crashes", 1)]
    assert failed[0].detail == "the library crashed with SIGSEGV"
    here = _verify(library, "right")
    isolated = [result for result in results if result.kernel == "right"]
    assert [(each.dims, each.error) for each in isolated] == [(each.dims, each.error) for each in here]


def test_workers_side_by_side_find_the_same_in_the_same_order(library):
    names = [kernel_name(defect) for defect in ("crashes", "right", "wrong tail")]
    alone, beside = (verify_library(library, kernels=names, jobs=jobs) for jobs in (1, 3))
    told = [
        [(each.kernel, each.variant, each.dims, each.detail) for each in found] for found in (alone, beside)
    ]
    assert told[0] == told[1]


def test_who_stops_reading_ends_all_workers(library, monkeypatch):
    begun = []

    class Noted(isolate._Worker):
        def __init__(self, *args):
            super().__init__(*args)
            begun.append(self)

    monkeypatch.setattr(isolate, "_Worker", Noted)
    chosen = choose(library, read_facts(library), ["right", kernel_name("hangs")], None)
    found = run_isolated(Request(library), chosen, jobs=2)
    seen = set()
    while len(seen) < 2:
        seen.add(next(found).kernel)
    found.close()
    assert all(worker._process.wait(timeout=30) is not None for worker in begun)


@pytest.mark.slow
def test_a_hang_is_one_failed_case(library):
    chosen = choose(library, read_facts(library), ["hangs"], None)
    request = Request(library, dims={"m": 4, "n": 7, "ld": 7})
    results = list(run_isolated(request, chosen, patience=5))
    assert [(result.outcome, result.detail) for result in results] == [("failed", "no answer within 5 s")]


def test_errors_of_the_other_process_keep_their_class(library, tmp_path):
    with pytest.raises(ManifestError, match="missing"):
        verify_library(library, kernels=["right"], manifest=tmp_path / "missing.toml")


def test_the_command_line_of_a_case(library):
    result = _verify(library, "right", dims={"m": 4, "n": 3, "ld": 3}, seed=7)[0]
    case = f"--kernel right --variant {result.variant} --dims m=4,n=3,ld=3 --seed 7"
    assert result.command(library) == f"tilec verify {library} {case}"
    assert result.command(library, Path("m.toml")) == f"tilec verify {library} {case} --manifest m.toml"


def test_a_case_outside_of_the_guards_is_told_as_such(library, tmp_path):
    manifest = _manifest(tmp_path, _REFERENCE.format("x * alpha"))
    (result,) = _verify(library, "right", dims={"m": 5, "n": 3, "ld": 3}, manifest=manifest)
    assert result.outcome == "skipped"
    assert "m = 5 breaks the guard" in result.detail
    assert "raised" not in result.detail


def _ordinary(results):
    """Calls that are admitted, on numbers that every reference knows."""
    return [each for each in results if each.oracle != "guard" and each.values == "random"]


def _manifest(folder, reference):
    """A manifest whose kernel ``right`` has this function as its reference."""
    (folder / "twin.py").write_text(reference)
    (folder / "kernels.py").write_text("scale = None\n")
    manifest = folder / "scales.toml"
    manifest.write_text(
        "edition = 1\n[package]\nname = 'scales'\n[targets]\ncpu = ['x86-64-v2']\n"
        "[[kernel]]\nname = 'right'\nsource = 'kernels.py:scale'\nreference = 'twin.py:reference'\n"
        "dims = { m = '%4,<=64', n = 'dynamic', ld = 'dynamic' }\nfallback = 'none'\n"
    )
    return manifest


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def other():\n    pass\n", 'twin.py has no "reference" at its top level'),
        ("reference = 3\n", "twin.py:reference is no function"),
        ("import no_such_module as m\nreference = m.f\n", "imports no_such_module, which is not installed"),
    ],
)
def test_a_reference_that_cannot_be_had_is_an_error(library, tmp_path, code, words):
    with pytest.raises((SourceError, ManifestError), match=words):
        _verify(library, "right", manifest=_manifest(tmp_path, code))


def test_errors_of_the_other_process_keep_their_place(library, tmp_path):
    with pytest.raises(SourceError) as caught:
        verify_library(library, kernels=["right"], manifest=_manifest(tmp_path, "1 / 0\nreference = None\n"))
    assert caught.value.place == Place(str(tmp_path / "twin.py"), 1)


def test_the_interpreter_says_that_it_stands_in_for_a_reference(library, tmp_path):
    code = "def reference(x, alpha):\n    return {64: x * alpha}[len(x)]\n"
    results = _ordinary(_verify(library, "right", manifest=_manifest(tmp_path, code)))
    assert {result.oracle for result in results} == {
        "reference",
        "interpreter (the reference raised KeyError)",
    }
    assert all(result.passed for result in results)


@pytest.mark.parametrize(
    ("code", "keys", "words"),
    [
        (_REFERENCE.format("y"), "", "in every case the reference raised NameError: .*twin.py:2"),
        (
            _REFERENCE.format("x * alpha") + "def inputs(dims, rng):\n    return dims['k']\n",
            "inputs = 'twin.py:inputs'\n",
            "in every case inputs raised KeyError: 'k' .*twin.py:4",
        ),
        (
            _REFERENCE.format("x * alpha") + "def inputs(dims, rng):\n    return [[1, 2, 3] * 99, 1]\n",
            "inputs = 'twin.py:inputs'\n",
            "in every case inputs raised ValueError: .*remap",
        ),
    ],
)
def test_functions_that_raise_in_every_case_have_failed(library, tmp_path, code, keys, words):
    manifest = _manifest(tmp_path, code)
    manifest.write_text(manifest.read_text() + keys)
    failed = [each for each in _verify(library, "right", manifest=manifest) if each.outcome == "failed"]
    assert [bool(re.search(words, each.detail)) for each in failed] == [True]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def reference(x):\n    return x\n", "does not take what the kernel reads"),
        ("def reference(x, alpha):\n    return x, alpha\n", "gave 2 outputs of 1"),
    ],
)
def test_a_reference_of_another_kernel_is_an_error(library, tmp_path, code, words):
    with pytest.raises(SourceError, match=words) as caught:
        _verify(library, "right", manifest=_manifest(tmp_path, code))
    assert caught.value.place == Place(str(tmp_path / "twin.py"), 1)


def test_inputs_of_another_kernel_are_an_error(library, tmp_path):
    manifest = _manifest(
        tmp_path, "def reference(x, alpha):\n    return x\ndef inputs(dims, rng):\n    return []\n"
    )
    manifest.write_text(f"{manifest.read_text()}inputs = 'twin.py:inputs'\n")
    with pytest.raises(SourceError, match="the inputs of inputs are 0 of 2"):
        _verify(library, "right", manifest=manifest)


def test_references_of_a_manifest_come_first(library, tmp_path):
    manifest = _manifest(tmp_path, "def reference(x, alpha):\n    return x * alpha + (x.shape[0] == 64)\n")
    results = _ordinary(_verify(library, "right", manifest=manifest))
    assert {result.oracle for result in results} == {"reference"}
    assert {result.dims["m"] for result in results if not result.passed} == {64}


def test_wrong_requests(library, tmp_path):
    with pytest.raises(InputError, match="no kernel matches"):
        verify_library(library, kernels=["right", "nothing*"])
    with pytest.raises(InputError, match="there is no variant 50"):
        verify_library(library, variant=50)
    with pytest.raises(InputError, match="right has the dims m, n, ld"):
        verify_library(library, kernels=["right"], dims={"m": 4})
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(LibraryError, match="no tilec library"):
        verify_library(tmp_path / "text.so")
