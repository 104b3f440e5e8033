"""Right libraries pass; every planted defect is found and can be repeated."""

from __future__ import annotations

import pytest
from verify_samples import DEFECTS, build

from tilec.errors import InputError, LibraryError
from tilec.verify import verify_library


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The library without a defect."""
    return build(tmp_path_factory.mktemp("right"), "none")


def test_a_right_library_passes(right):
    seen = []
    results = verify_library(right, progress=seen.append)
    assert results == seen
    assert all(result.passed for result in results), [result.detail for result in results]
    assert {result.oracle for result in results} == {"interpreter", "guard"}
    assert {result.dims["m"] for result in results if result.oracle == "guard"} == {68, 5}
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
    ],
)
def test_defects_are_found_and_repeat(tmp_path, defect, words):
    assert defect in DEFECTS
    library = build(tmp_path, defect)
    failed = [result for result in verify_library(library, seed=3) if result.outcome == "failed"]
    assert failed
    assert words in failed[0].detail
    again = verify_library(library, kernels=["scale"], variant=0, dims=failed[0].dims, seed=failed[0].seed)
    assert [result.detail for result in again] == [failed[0].detail]


def test_the_command_line_of_a_case(right):
    result = verify_library(right, dims={"m": 4, "n": 3, "ld": 3}, seed=7)[0]
    command = f"tilec verify {right} --kernel scale --variant 0 --dims m=4,n=3,ld=3 --seed 7"
    assert result.command(right) == command


def test_references_of_a_manifest_come_first(right, tmp_path):
    (tmp_path / "twin.py").write_text("def reference(x, alpha):\n    return x * alpha + (x.shape[0] == 64)\n")
    (tmp_path / "kernels.py").write_text("scale = None\n")
    manifest = tmp_path / "scales.toml"
    manifest.write_text(
        "edition = 1\n[package]\nname = 'scales'\n[targets]\ncpu = ['x86-64-v2']\n"
        "[[kernel]]\nname = 'scale'\nsource = 'kernels.py:scale'\nreference = 'twin.py:reference'\n"
        "dims = { m = '%4,<=64', n = 'dynamic', ld = 'dynamic' }\nfallback = 'none'\n"
    )
    results = [result for result in verify_library(right, manifest=manifest) if result.oracle != "guard"]
    assert {result.oracle for result in results} == {"reference"}
    assert {result.dims["m"] for result in results if not result.passed} == {64}


def test_wrong_requests(right, tmp_path):
    with pytest.raises(InputError, match="no kernel matches"):
        verify_library(right, kernels=["nothing*"])
    with pytest.raises(InputError, match="there is no variant 5"):
        verify_library(right, variant=5)
    with pytest.raises(InputError, match="scale has the dims m, n, ld"):
        verify_library(right, dims={"m": 4})
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(LibraryError, match="no tilec library"):
        verify_library(tmp_path / "text.so")
