"""The commands that look at manifests and libraries, on one built project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.cli.main import run
from tilec.portable import loader
from tilec.verify import CaseResult

MANIFEST = """
edition = 1
[package]
name = "looked"
[targets]
cpu = ["x86-64-v2", "x86-64-v3"]
host = "x86_64-linux-gnu.2.17"
[[kernel]]
name = "saxpy"
source = "kernels/saxpy.py:saxpy"
dims = { n = ["1..64", "%4096", "dynamic"] }
[[kernel.override]]
dims = { n = "1..64" }
config = { block = 64 }
[[kernel]]
name = "saxpy_{n}"
for = { dtype = ["float32"] }
source = "kernels/saxpy.py:saxpy"
dims = { n = "%128" }
fallback = "none"
""".replace('"saxpy_{n}"', '"saxpy_{dtype}"')


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a project with its library in ``out`` and its cache in ``cache``."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEC_CACHE_DIR", str(folder / "cache"))
        assert run(["init", str(folder / "looked")]) == 0
        (folder / "looked" / "looked.toml").write_text(MANIFEST)
        assert (
            run(["build", str(folder / "looked" / "looked.toml"), "-o", str(folder / "out"), "-j", "1"]) == 0
        )
    return folder


@pytest.fixture
def manifest(built: Path) -> Path:
    return built / "looked" / "looked.toml"


@pytest.fixture
def library(built: Path) -> Path:
    return built / "out"


def shapes(folder: Path, *calls: dict) -> Path:
    path = folder / "shapes.json"
    path.write_text(json.dumps({"calls": calls}))
    return path


def test_check_lists_the_variants(tilec: Callable, manifest: Path, golden: Callable[..., None]) -> None:
    outcome = tilec("check", manifest)
    assert (outcome.code, outcome.err) == (0, "")
    golden(outcome.out.replace(str(manifest), "looked.toml"))
    listed = json.loads(tilec("check", manifest, "--json").out)
    assert [len(kernel["variants"]) for kernel in listed["kernels"]] == [6, 2]
    assert listed["kernels"][0]["variants"][0]["config_source"] == "override"


def test_check_says_who_serves_which_call(
    tilec: Callable, manifest: Path, tmp_path: Path, golden: Callable[..., None]
) -> None:
    calls = [
        {"kernel": "saxpy", "dims": {"n": 17}, "count": 32},
        {"kernel": "saxpy", "dims": {"n": 8192}, "target": "x86-64-v3"},
        {"kernel": "saxpy", "dims": {"n": 65}, "target": "x86-64-v2"},
        {"kernel": "saxpy_float32", "dims": {"n": 100}, "target": "x86-64-v2"},
    ]
    file = shapes(tmp_path, *calls)
    outcome = tilec("check", manifest, "--shapes", file)
    assert outcome.code == 0, "the kernel that does not serve n = 100 says fallback = none"
    golden(outcome.out)
    assert outcome.err == "1 of 5 answers is a miss, 1 of kernels that may refuse calls\n"
    assert outcome.out.count(" miss ") == 1, "as many as the table lists"
    answers = json.loads(tilec("check", manifest, "--shapes", file, "--json").out)
    assert [answer["answer"] for answer in answers] == ["hit", "hit", "hit", "fallback", "miss"]
    assert answers[-1]["guards"] is answers[-1]["code"] is None


def test_strict_excuses_no_miss(tilec: Callable, manifest: Path, tmp_path: Path) -> None:
    missed = shapes(tmp_path, {"kernel": "saxpy_float32", "dims": {"n": 100}, "target": "x86-64-v2"})
    assert tilec("check", manifest, "--shapes", missed).code == 0
    outcome = tilec("check", manifest, "--shapes", missed, "--strict")
    assert (outcome.code, outcome.err) == (1, "1 of 1 answer is a miss\n")
    served = shapes(tmp_path, {"kernel": "saxpy", "dims": {"n": 65}})
    assert tilec("check", manifest, "--shapes", served, "--strict").code == 0, "a fallback is no miss"
    assert tilec("check", manifest, "--strict").code == 0, "nothing is wrong with the kernels"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"kernel": "saxpi", "dims": {"n": 1}}, 'did you mean "saxpy"'),
        ({"kernel": "saxpy", "dims": {"m": 1}}, 'unknown dimension "m"'),
        ({"kernel": "saxpy", "dims": {}}, "gives no n"),
        ({"kernel": "saxpy", "dims": {"n": 0}}, "no shapes file"),
        ({"kernel": "saxpy", "dims": {"n": 1}, "target": "x86-64-v4"}, 'unknown target "x86-64-v4"'),
        ({"kernel": "saxpy", "dims": {"n": 1}, "counts": 3}, "no shapes file"),
    ],
)
def test_wrong_shapes_are_told(
    tilec: Callable, manifest: Path, tmp_path: Path, call: dict, said: str
) -> None:
    outcome = tilec("check", manifest, "--shapes", shapes(tmp_path, call))
    assert outcome.code == 2
    assert said in outcome.err


def test_explain_names_stages_and_shows_them(tilec: Callable, manifest: Path) -> None:
    listed = json.loads(tilec("explain", manifest, "saxpy", "--json").out)
    assert listed["stages"][0] == "tile"
    assert listed["stages"][-3:] == ["source", "llvm", "asm"]
    for stage in listed["stages"]:
        outcome = tilec(
            "explain", manifest, "saxpy", "--target", "x86-64-v3", "--variant", "2", "--stage", stage
        )
        assert outcome.code == 0, outcome.err
        assert len(outcome.out.splitlines()) > 5
    assert "vfmadd" in outcome.out, "the last stage is assembly for a machine with fma"


@pytest.mark.slow
def test_explain_needs_no_script_above_the_compiler(manifest: Path) -> None:
    command = [sys.executable, "-m", "tilec.cli.main", "explain", manifest, "saxpy"]
    outcome = subprocess.run(command, text=True, capture_output=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert "stages: tile " in outcome.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["saxpi"], 'did you mean "saxpy"'),
        (["saxpy", "--stage", "asmm"], 'did you mean "asm"'),
        (["saxpy", "--stage", "ptx"], "it has tile, tir, source, llvm, asm, and the form after each pass"),
        (["saxpy", "--variant", "3"], "--variant 0 to 2"),
        (["saxpy", "--target", "x86-64-v9"], 'did you mean "x86-64-v'),
    ],
)
def test_explain_offers_what_there_is(tilec: Callable, manifest: Path, options: list[str], said: str) -> None:
    outcome = tilec("explain", manifest, *options)
    assert outcome.code == 2
    assert said in outcome.err


def test_inspect_shows_the_library(tilec: Callable, library: Path) -> None:
    text = tilec("inspect", library).out
    assert "looked 0.1.0" in text
    assert "saxpy(x: in float32[n], y: in float32[n], a: in float32, out: out float32[n]; n)" in text
    assert "block=64 (override)" in text
    data = json.loads(tilec("inspect", library / "lib" / "liblooked.so", "--json", "--kernel", "saxpy").out)
    assert [variant["target"] for variant in data["kernels"][0]["variants"]] == ["x86-64-v3"] * 3 + [
        "x86-64-v2"
    ] * 3
    assert data["arch"] == "x86_64"
    assert set(data["tools"]) == {"tilec", "tvm", "zig"}


@pytest.mark.parametrize("more", [[], ["--kernel", "saxpy*"], ["--shape", "n=64"]])
def test_inspect_reads_no_manifest(library: Path, more: list[str]) -> None:
    script = "import sys; from tilec.cli.main import run; run(sys.argv[1:]); print(sorted(sys.modules))"
    command = [sys.executable, "-c", script, "inspect", str(library), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "saxpy" in done.stdout
    assert not {"tvm", "numpy", "pydantic"} & set(re.findall(r"'(\w+)'", done.stdout))


def test_inspect_says_of_each_variant_what_the_library_says(tilec: Callable, library: Path) -> None:
    kernel = loader.load(library).saxpy
    for n in (0, 1, 64, 65, 4096, 4097):
        outcome = tilec("inspect", library, "--kernel", "saxpy", "--shape", f"n={n}")
        assert outcome.code == 0, outcome.err
        title, *lines = outcome.out.splitlines()
        assert title.startswith(f"saxpy n={n} on ")
        assert [line.strip() for line in lines] == kernel.explain(n=n).splitlines()


def test_inspect_for_a_lesser_machine_says_what_the_library_says_there(
    tilec: Callable, library: Path
) -> None:
    program = f"from tilec.portable import loader; print(loader.load({str(library)!r}).saxpy.explain(n=65))"
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TILEC_CPU": "x86-64-v2"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "may not run it" in said
    shown = tilec("inspect", library, "--kernel", "saxpy", "--shape", "n=65", "--target", "x86-64-v2").out
    assert [line.strip() for line in shown.splitlines()[1:]] == said.strip().splitlines()


def test_inspect_explains_for_machines_that_are_elsewhere(
    tilec: Callable, library: Path, golden: Callable[..., None]
) -> None:
    machines = ["--target", "x86-64-v2", "--target", "sm_90a"]
    outcome = tilec("inspect", library, "--shape", "n=65", *machines)
    assert outcome.code == 0, outcome.err
    golden(outcome.out)
    found = json.loads(tilec("inspect", library, "--shape", "n=65", *machines, "--json").out)
    assert [(each["kernel"], each["target"]) for each in found] == [
        ("saxpy", "x86-64-v2"),
        ("saxpy", "sm_90a"),
        ("saxpy_float32", "x86-64-v2"),
        ("saxpy_float32", "sm_90a"),
    ]
    assert found[0]["variants"][-1] == {"id": 5, "target": "x86-64-v2", "reason": "taken"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shape", "m=1"], "give every dim of one (saxpy: n; saxpy_float32: n)"),
        (["--shape", "n"], "not of the form"),
        (["--shape", "n=1,n=2"], "gives a dim twice"),
        (["--shape", "n=-5"], "n is -5; it must be 0 or more"),
        (["--shape", "n=4294967296"], "n = 4294967296 is out of range"),
        (["--shape", "n=1", "--target", "sm_91"], "unknown target"),
        (["--target", "sm_90a"], "give its dims with --shape"),
        (["--shape", "n=1", "--asm"], "give one of them"),
        (["--asm", "--json"], "--asm prints assembly, not JSON"),
    ],
)
def test_wrong_questions_to_inspect_are_told(
    tilec: Callable, library: Path, options: list[str], said: str
) -> None:
    outcome = tilec("inspect", library, *options)
    assert outcome.code == 2
    assert said in outcome.err


def test_inspect_shows_assembly_of_the_code_that_ships(tilec: Callable, library: Path) -> None:
    outcome = tilec("inspect", library, "--kernel", "saxpy_float32", "--asm")
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("# saxpy_float32, variant") == 2
    assert "vfmadd" in outcome.out


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_is_no_library_is_refused(tilec: Callable, library: Path, tmp_path: Path, command: str) -> None:
    damaged = tmp_path / "damaged.so"
    data = (library / "lib" / "liblooked.so").read_bytes()
    files = {
        "text": b"hello",
        "cut": data[: len(data) // 2],
        "changed": data.replace(b'"name":"looked"', b'"name":"lookEd"'),
    }
    for content in files.values():
        damaged.write_bytes(content)
        outcome = tilec(command, damaged)
        assert outcome.code == 2
        assert "is no tilec library" in outcome.err
    assert tilec(command, tmp_path / "nowhere.so").code == 2
    (tmp_path / "empty").mkdir()
    assert "holds no libraries" in tilec(command, tmp_path / "empty").err


def test_verify_of_one_case(tilec: Callable, library: Path) -> None:
    outcome = tilec("verify", library, "--kernel", "saxpy", "--variant", "0", "--dims", "n=33", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert [finding["problem"] for finding in found["audit"]] == [""] * len(found["audit"])
    (case,) = found["cases"]
    assert (case["dims"], case["outcome"], case["oracle"]) == ({"n": 33}, "passed", "interpreter")
    assert tilec("verify", library, "--dims", "n33").code == 2
    assert tilec("verify", library, "--device", "cuda:0").code == 2


def test_verify_says_how_code_for_gpus_runs(
    tilec: Callable, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [
        CaseResult("saxpy", number, target, {"n": 1}, 0, "skipped", "none", detail="it does not run here")
        for number, target in enumerate(("x86-64-v4", "sm_80"))
    ]
    for found, told in ((cases, True), (cases[:1], False)):
        monkeypatch.setattr("tilec.verify.verify_library", lambda *_, found=found, **__: found)
        outcome = tilec("verify", library)
        assert outcome.code == 0
        assert re.search(r"x86-64-v4 +1 +none +- +1 skipped", outcome.out)
        assert ("on this CPU with --emulate, on a GPU with --device" in outcome.err) == told


def test_a_call_that_nobody_serves_is_1(tilec: Callable, manifest: Path, tmp_path: Path) -> None:
    closed = manifest.with_name("closed.toml")
    closed.write_text(MANIFEST.replace('["1..64", "%4096", "dynamic"]', "[64, 128]").replace('"1..64"', "64"))
    calls = shapes(tmp_path, {"kernel": "saxpy", "dims": {"n": 65}}, {"kernel": "saxpy", "dims": {"n": 64}})
    outcome = tilec("check", closed, "--shapes", calls, "-j", "1")
    assert outcome.code == 1
    assert outcome.err == "2 of 4 answers are a miss\n"


def test_bench_measures_a_library(tilec: Callable, manifest: Path, library: Path, tmp_path: Path) -> None:
    named = manifest.with_name("peers.toml")
    listed = 'dims = { n = ["1..64"'
    named.write_text(MANIFEST.replace(listed, f'reference = "kernels/saxpy.py:saxpy_reference"\n{listed}'))
    common = ["bench", library, "--seconds", "0.01", "--threads", "2"]
    outcome = tilec(*common, "--kernel", "saxpy", "--manifest", named, "--vs", "numpy", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["ceilings"]["bytes_per_second"] > 1e8
    assert found["ceilings"]["flops"]["float32"] > 1e9
    assert [(row["dims"]["n"], row["variant"]) for row in found["rows"]] == [(64, 0), (4096, 1), (1024, 2)]
    for row in found["rows"]:
        assert row["bytes"] == 12 * row["dims"]["n"]
        latency = row["latency"]
        assert 0 < latency["least"] <= latency["p50"] <= latency["p99"] <= latency["most"]
        assert row["share"] == pytest.approx(
            row["bytes"] / found["ceilings"]["bytes_per_second"] / latency["p50"]
        )
        assert (row["limit"], row["flops"]) == ("memory", {})
        assert row["peers"]["numpy"]["p50"] > 0
    shapes_file = shapes(
        tmp_path, {"kernel": "saxpy*", "dims": {"n": 128}}, {"kernel": "saxpy*", "dims": {"n": 5}}
    )
    outcome = tilec(*common, "--shapes", shapes_file, "--manifest", manifest, "--vs", "numpy")
    lines = outcome.out.splitlines()
    assert "thread" in lines[0]
    assert "copies" in lines[0]
    assert [line.split()[:3] for line in lines[2:]] == [
        ["saxpy", "n=128", "2"],
        ["saxpy_float32", "n=128", "6"],
        ["saxpy", "n=5", "0"],
    ]
    assert "skipped saxpy_float32 n=5: saxpy_float32: no variant admits n = 5" in outcome.err
    assert outcome.err.count("no numpy beside saxpy: the manifest names none") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--vs", "numpy"], "give it with --manifest"),
        (["--shape", "n=1", "--shapes", "s.json"], "give one of them"),
        (["--shape", "m=1"], "give every dim of one (saxpy: n; saxpy_float32: n)"),
        (["--shape", "n=1", "--shape", "m=1"], "no kernel has the dims m"),
        (["--kernel", "nothing"], 'no kernel matches "nothing"'),
        (["--kernel", "saxpy", "--kernel", "sacspy"], 'did you mean "saxpy"?'),
        (["--clock", "cpu"], "is for --threads 1"),
    ],
)
def test_wrong_questions_to_bench_are_told(
    tilec: Callable, library: Path, options: list[str], said: str
) -> None:
    outcome = tilec("bench", library, *options)
    assert outcome.code == 2
    assert said in outcome.err


@pytest.mark.slow
def test_a_bench_that_measured_nothing_has_failed(tilec: Callable, library: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tilec.cli.main", "bench", str(library), "--seconds", "0.01"],
        env={**os.environ, "TILEC_CPU": "none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "skipped saxpy" in done.stderr
