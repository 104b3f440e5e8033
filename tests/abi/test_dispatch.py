"""Which variant serves: the library against a brute-force walk over the metadata."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import image

from tilec.cli.main import run
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, VariantRecord
from tilec.package.write import BuildReport, write_package
from tilec.portable.loader import LaunchError, Library, _Device, load
from tilec.targets import native_host, native_target, parse_target, runs_here

DIM = st.one_of(st.sampled_from([0, 1, 3, 4, 8, 16, 64, 65, 100, 128]), st.integers(0, 200))


@pytest.fixture(scope="module")
def library(sample: BuildReport) -> Library:
    return load(sample.library)


def admits(guards: dict[str, dict[str, int]], dims: dict[str, int]) -> bool:
    for name, guard in guards.items():
        value = dims[name]
        if "eq" in guard and value != guard["eq"]:
            return False
        if value % guard.get("div", 1) or value < guard.get("min", value) or value > guard.get("max", value):
            return False
    return True


@settings(max_examples=300)
@given(m=DIM, n=DIM, k=DIM)
def test_select_is_the_first_that_admits(library: Library, m: int, n: int, k: int) -> None:
    kernel, dims = library.kernels["matmul"], {"M": m, "N": n, "K": k}
    usable = [v for v in kernel.metadata["variants"] if runs_here(parse_target(v["target"]))]
    wanted = next((v["id"] for v in usable if admits(v["guards"], dims)), None)
    if wanted is None:
        with pytest.raises(LaunchError, match="no variant admits") as caught:
            kernel.select(**dims)
        assert caught.value.name == "TILEC_ERR_NO_VARIANT"
    else:
        assert kernel.select(**dims).id == wanted


def test_variants_come_best_first(library: Library) -> None:
    first = [
        v
        for v in library.kernels["matmul"].variants
        if v.target == library.kernels["matmul"].variants[0].target
    ]
    assert [dict(v.guards) for v in first] == [
        {"M": "3", "N": "16", "K": "8"},
        {"M": "1..64", "N": "16", "K": "8"},
        {"N": "16", "K": "8"},
        {"M": "%4", "N": "16"},
        {"N": "%32"},
        {"K": ">=100"},
    ]


def test_explain_has_a_line_per_variant(library: Library) -> None:
    kernel = library.kernels["matmul"]
    lines = kernel.explain(M=5, N=16, K=8).splitlines()
    assert len(lines) == len(kernel.variants)
    assert [line for line in lines if line.endswith(": taken")] == [
        f"variant {kernel.select(M=5, N=16, K=8).id} ({native_target().level}): taken"
    ]
    assert any(line.endswith("rejected: M = 5 is not 3") for line in lines)


def test_explain_of_an_impossible_query_is_its_error(library: Library) -> None:
    assert (
        library.kernels["add"].explain(N=-1) == "add: dim N = -1 is out of range, it must be 0 to 2146435071"
    )


ALIGNED = """
import sys
import numpy as np
from tilec.portable.loader import load
lib, memory = load(sys.argv[1]), np.zeros(4096, np.float32)
start = -memory.ctypes.data % 64 // 4
for shift in (0, 8, 1):
    a, c = memory[start + shift :][:4], memory[start + 1024 :][:4]
    lib.add(a, a, c)
lib.add(memory[start:][:4], memory[start + 1 :][:4], memory[start + 1028 :][:4])
"""


def _usable(kernel) -> list:
    """The variants that this machine runs."""
    return [variant for variant in kernel.variants if runs_here(parse_target(variant.target))]


def test_alignment_decides_where_a_variant_demands_it(sample: BuildReport, library: Library) -> None:
    aligned, plain = _usable(library.kernels["add"])[:2]
    env = {**os.environ, "TILEC_LOG": "debug"}
    command = [sys.executable, "-c", ALIGNED, str(sample.library)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    taken = [int(line.partition("variant ")[2].split()[0]) for line in done.stderr.splitlines()]
    assert taken == [aligned.id, plain.id, plain.id, plain.id]


def test_select_assumes_the_alignment_of_elements(library: Library) -> None:
    kernel = library.kernels["add"]
    aligned, plain = _usable(kernel)[:2]
    assert kernel.select(N=4).id == plain.id
    line = kernel.explain(N=4).splitlines()[kernel.variants.index(aligned)]
    assert line.endswith("a is not known to be aligned to 64 bytes")
    device, dims, found = _Device(1, 0), (ctypes.c_int64 * 1)(4), ctypes.c_void_p()
    for bytes_, wanted in (((64, 4, 32), aligned), ((128, 1, 64), aligned), ((64, 4, 16), plain)):
        known = (ctypes.c_uint32 * 3)(*bytes_)
        assert library._table.select(kernel._handle, device, dims, known, ctypes.byref(found)) == 0
        assert found.value == kernel._variant_handle(wanted.id)


PROBE = """
import json, sys
from tilec.cli.main import run
from tilec.portable.loader import LaunchError, load
kernel = load(sys.argv[1]).kernels["matmul"]
try:
    found = kernel.select(M=5, N=16, K=8)
    print(json.dumps([found.id, found.target]))
except LaunchError as error:
    print(json.dumps([error.name, str(error)]))
"""


def probe(sample: BuildReport, **environment: str) -> list[str]:
    command = [sys.executable, "-c", PROBE, str(sample.library)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return json.loads(done.stdout)


def levels(library: Library) -> list[str]:
    return [name for name in library.metadata["targets"] if runs_here(parse_target(name))]


def test_tilec_cpu_forces_a_level(sample: BuildReport, library: Library) -> None:
    for level in levels(library):
        assert probe(sample, TILEC_CPU=level)[1] == level


@pytest.mark.skipif(not runs_here(parse_target("x86-64-v3")), reason="needs a machine of x86-64-v3")
def test_tilec_cpu_may_name_a_target_that_the_library_lacks(tmp_path: Path) -> None:
    host = native_host()
    made = image("small", "void {p}_0(void) {{}}", [("N",)], "x86-64-v2", host)
    kernel = KernelRecord("matmul", (), tuple(map(DimRecord, "MNK")), (VariantRecord("x86-64-v2", (), made),))
    small = write_package(PackageSpec("small", "1", host, (kernel,)), tmp_path)
    assert probe(small, TILEC_CPU="x86-64-v3") == [0, "x86-64-v2"]


@pytest.mark.parametrize(
    "name",
    [
        "aarch64+nothing",
        "x86-64-v3+",
        "x86-64-v3+nothing",
        "avxvnni",
        "x86-64",
        "x86-64-v2+vnni",
        "x86-64-v4+avxvnni",
        "x86-64-v3+x86-64-v2",
    ],
)
def test_tilec_cpu_names_a_whole_target(sample: BuildReport, name: str) -> None:
    status, text = probe(sample, TILEC_CPU=name)
    assert status == "TILEC_ERR_NO_ARCH"
    assert f"TILEC_CPU={name} names no CPU target of this architecture" in text


def test_tilec_cpu_of_no_architecture_is_an_error(sample: BuildReport) -> None:
    name, text = probe(sample, TILEC_CPU="x86-64-v9")
    assert (name, "x86-64-v9 names no CPU target of this architecture" in text) == ("TILEC_ERR_NO_ARCH", True)
    assert all(level in text for level in levels(load(sample.out_dir)))


def test_a_kernel_without_code_for_the_level_says_so(sample: BuildReport, library: Library) -> None:
    if len(levels(library)) < 2:
        pytest.skip("needs a machine that runs two of the library's levels")
    text = PROBE.replace('"matmul"', '"mixed"').replace("M=5, N=16, K=8", "n=4")
    env = {**os.environ, "TILEC_CPU": levels(library)[-1]}
    command = [sys.executable, "-c", text, str(sample.library)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout)[0] == "TILEC_ERR_NO_ARCH"


def test_forced_variant(sample: BuildReport, library: Library) -> None:
    variants = library.kernels["matmul"].variants
    last = [v for v in variants if v.target == levels(library)[-1]]
    open_k = next(v for v in last if dict(v.guards) == {"N": "16", "K": "8"})
    refused = next(v for v in last if "M" in v.guards and v.guards["M"] == "3")
    assert probe(sample, TILEC_FORCE_VARIANT=str(open_k.id))[0] == open_k.id
    assert probe(sample, TILEC_FORCE_VARIANT=f"0,{open_k.id}")[0] == open_k.id
    assert probe(sample, TILEC_FORCE_VARIANT=str(refused.id))[0] == "TILEC_ERR_NO_VARIANT"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TILEC_FORCE_VARIANT", "9999", "this library has no variant 9999"),
        ("TILEC_FORCE_VARIANT", "0,99999999999", "this library has no variant 99999999999"),
        ("TILEC_FORCE_VARIANT", "x", "ignored from x on"),
        ("TILEC_NUM_THREADS", "0", "must be 1 to 1024"),
        ("TILEC_NUM_THREADS", "two", "must be 1 to 1024"),
    ],
)
def test_ignored_settings_are_logged(sample: BuildReport, name: str, value: str, said: str) -> None:
    command = [sys.executable, "-c", PROBE, str(sample.library)]
    environment = {**os.environ, "TILEC_LOG": "warn", name: value}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert said in done.stderr


ASK = """
import sys
from tilec.portable.loader import load
kernel = load(sys.argv[1]).kernels["matmul"]
for text in " ".join(sys.argv[2:]).split(" / "):
    print(kernel.explain(**dict(zip("MNK", map(int, text.split())))))
"""
#: M, N and K.
ASKED = ["3 16 8", "5 16 8", "64 16 8", "8 16 100", "1 32 100", "2 5 3"]


#: Variants by name: of the best and of the lowest level that this machine runs.
SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"TILEC_CPU": "{lowest}"},
    {"TILEC_FORCE_VARIANT": "9999,{of_best},{of_lowest}"},
    {"TILEC_FORCE_VARIANT": "{of_other_kernel}"},
    {"TILEC_FORCE_VARIANT": "{of_lowest}x,{of_best}"},
    {"TILEC_FORCE_VARIANT": "{of_best}", "TILEC_CPU": "{lowest}"},
)


def test_c_the_loader_and_the_command_line_explain_alike(
    sample: BuildReport,
    library: Library,
    program: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    here, variants = levels(library), library.kernels["matmul"].variants
    names = {
        "lowest": here[-1],
        "of_best": next(each.id for each in variants if each.target == here[0]) + 1,
        "of_lowest": next(each.id for each in variants if each.target == here[-1]) + 2,
        "of_other_kernel": library.kernels["add"].variants[0].id,
    }
    asked = " / ".join(ASKED).split()
    in_c = [str(program("explain.c", "-std=c11")), "matmul", *asked]
    in_python = [sys.executable, "-c", ASK, str(sample.library), *asked]
    for each in SETTINGS:
        given = {name: text.format(**names) for name, text in each.items()}
        said = [lines_of(command, {**os.environ, **given}) for command in (in_c, in_python)]
        with monkeypatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            assert said == [inspected(sample, capfd)] * 2
        assert len(said[0]) == len(ASKED) * len(variants)
        unusable = len(each) == 2  # the variant that is forced is for a better CPU than the one to act as
        assert any(line.endswith(": taken") for line in said[0]) != (unusable and len(here) > 1)


def lines_of(command: list[str], env: dict[str, str]) -> list[str]:
    """What a program prints, without empty lines."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return [line for line in done.stdout.splitlines() if line]


def inspected(sample: BuildReport, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What the command line says of the same."""
    shown = []
    for text in ASKED:
        shape = ",".join(f"{name}={value}" for name, value in zip("MNK", text.split(), strict=True))
        assert run(["inspect", str(sample.library), "--kernel", "matmul", "--shape", shape]) == 0
        shown += [line.strip() for line in capfd.readouterr().out.splitlines()[1:]]
    return shown


def test_the_command_line_refuses_a_cpu_as_the_library_does(
    sample: BuildReport, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEC_CPU", "x86-64-v9")
    assert run(["inspect", str(sample.library), "--kernel", "add", "--shape", "N=5"]) == 2
    assert "every call would be refused: TILEC_CPU is x86-64-v9" in capfd.readouterr().err
