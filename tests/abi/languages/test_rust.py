"""The crate of a package: its own test, and a crate that depends on it, with either kind of library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_samples import cuda_spec
from linked import link
from samples import sample_spec, scalar, tensor

from tilec.dtypes import DTYPES
from tilec.package.bindings.rust import _distinct, crate_files
from tilec.package.model import DimRecord, PackageSpec
from tilec.package.places import places
from tilec.package.text.rust_sizes import to_rust
from tilec.package.write import BuildReport, write_package
from tilec.targets import native_host

CONSUMER = Path(__file__).parents[1] / "programs" / "rust"

needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")


def crate_of(spec: PackageSpec) -> dict[str, str]:
    return crate_files(spec, "0" * 32, places((spec,)))


def cargo(
    folder: Path, target: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs cargo without a network, with every warning an error."""
    settings = {"RUSTFLAGS": "-D warnings", "CARGO_TARGET_DIR": str(target), **environment}
    command = ["cargo", *arguments, "--offline"]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def package(sample: BuildReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, moved to another folder."""
    return Path(shutil.copytree(sample.out_dir, tmp_path_factory.mktemp("moved") / "package", symlinks=True))


@needs_cargo
@pytest.mark.parametrize("features", [(), ("--features", "static")], ids=["shared", "static"])
def test_consumer(package: Path, tmp_path: Path, features: tuple[str, ...]) -> None:
    folder = Path(shutil.copytree(CONSUMER, tmp_path / "consumer"))
    manifest = folder / "Cargo.toml"
    manifest.write_text(manifest.read_text().replace("PACKAGE", str(package)))
    done = cargo(folder, tmp_path / "target", "test", "-p", "consumer", "-p", "sample-sys", *features)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(map(int, re.findall(r"(\d+) passed", done.stdout))) == _tests() + 1
    assert "library_is_of_this_build ... ok" in done.stdout


def _tests() -> int:
    """How many tests the consumer has."""
    return sum(file.read_text().count("#[test]") for file in (CONSUMER / "tests").glob("*.rs"))


@needs_cargo
def test_library_elsewhere(package: Path, tmp_path: Path) -> None:
    crate = Path(shutil.copytree(package / "rust", tmp_path / "rust")) / "sample-sys"
    lost = cargo(crate, tmp_path / "target", "test")
    assert lost.returncode != 0
    assert "Put the folder of libsample.so into SAMPLE_LIB_DIR" in lost.stderr
    found = cargo(crate, tmp_path / "target", "test", SAMPLE_LIB_DIR=str(package / "lib"))
    assert found.returncode == 0, found.stderr


@needs_cargo
def test_library_of_another_build(package: Path, tmp_path: Path) -> None:
    crate = Path(shutil.copytree(package / "rust", tmp_path / "rust")) / "sample-sys"
    raw = crate / "src" / "ffi.rs"
    build_id = raw.read_text().split('b"')[1].split("\\0")[0]
    raw.write_text(raw.read_text().replace(build_id, "0" * 32))
    done = cargo(crate, tmp_path / "target", "test", SAMPLE_LIB_DIR=str(package / "lib"))
    assert done.returncode != 0
    assert "status: 6" in done.stdout


@needs_cargo
def test_structs_have_the_layout_of_the_header(package: Path, tmp_path: Path) -> None:
    crate = package / "rust" / "sample-sys"
    raw = (crate / "src" / "ffi.rs").read_text()
    structs = ("tilec_exec", "tilec_library", "tilec_variant", "tilec_guard", "tilec_arg", "DLTensor")
    fields = {struct: _fields(raw, struct) for struct in structs}
    places = [(struct, field) for struct, names in fields.items() for field in names]
    assert len(places) == 50
    offsets = "".join(f'  printf("%zu\\n", offsetof({struct}, {field}));\n' for struct, field in places)
    sizes = "".join(f'  printf("%zu\\n", sizeof({struct}));\n' for struct in fields)
    source = tmp_path / "layout.c"
    source.write_text(f"#include <sample.h>\n#include <stdio.h>\nint main(void) {{\n{offsets}{sizes}}}\n")
    include, program = f"-I{package / 'include'}", tmp_path / "layout"
    link(include, source, "-o", program)
    in_c = subprocess.run([program], capture_output=True, text=True, check=True).stdout

    shown = [f"std::mem::offset_of!(ffi::{struct}, {field})" for struct, field in places]
    shown += [f"std::mem::size_of::<ffi::{struct}>()" for struct in fields]
    assert _run_rust(crate, tmp_path, "mod ffi;", shown) == in_c


def _fields(raw: str, struct: str) -> list[str]:
    body = raw.split(f"pub struct {struct} {{\n")[1].split("\n}")[0]
    return re.findall(r"^    pub (\w+):", body, re.MULTILINE)


def _run_rust(crate: Path, folder: Path, modules: str, expressions: list[str]) -> str:
    """What a program inside of the crate's sources prints for ``expressions``, one a line."""
    sources = Path(shutil.copytree(crate / "src", folder / "src"))
    lines = "".join(f'    println!("{{}}", {text});\n' for text in expressions)
    main = sources / "main.rs"
    main.write_text(f"#![allow(dead_code, unused_parens)]\n{modules}\nfn main() {{\n{lines}}}\n")
    command = ["rustc", "--edition", "2021", main, "-o", folder / "program"]
    subprocess.run(command, check=True)
    return subprocess.run([folder / "program"], capture_output=True, text=True, check=True).stdout


SIZES = """
mod ffi { pub const TILEC_ERR_SHAPE: i32 = 3; pub const TILEC_ERR_LAYOUT: i32 = 4; }
pub struct Error { pub status: i32, pub message: String }
mod sizes;
use sizes::*;
fn value(text: impl Fn(&std::cell::Cell<bool>) -> i64) -> String {
    let ok = std::cell::Cell::new(true);
    let found = text(&ok);
    if ok.get() { found.to_string() } else { "overflow".to_string() }
}
"""

TEXTS = {
    "N + 3 * M - 1": "21",
    "-N // 4": "-2",
    "-N % 4": "1",
    "N // -4": "-2",
    "select(N > 5 and not M == 4, min(N, M), 7 // (N - 7))": "5",
    "select(M < N, 4 * M, M // 0)": "20",
    "(N >= 7) + (M != 5) + (N % 2 or M)": "2",
    "max(M, N) * 9223372036854775807": "overflow",
    "M % (N - 7)": "overflow",
}


@needs_cargo
def test_sizes_are_computed_as_in_c(package: Path, tmp_path: Path) -> None:
    names = {"N": "7_i64", "M": "(5_i32 as i64)"}
    calls = [f"value(|ok| {to_rust(text, names).replace('&ok', 'ok')})" for text in TEXTS]
    found = _run_rust(package / "rust" / "sample-sys", tmp_path, SIZES, calls)
    assert found.split() == list(TEXTS.values())


STRIDES = {  # extents, strides: whether each element has its own place
    "[3, 4], &[4, 1]": "true",
    "[3, 4], &[1, 3]": "true",
    "[3, 4], &[0, 1]": "false",
    "[3, 4], &[3, 1]": "false",
    "[1, 4], &[0, 1]": "true",
    "[0, 4], &[0, 0]": "true",
    "[2, 3, 4], &[12, 4, 1]": "true",
    "[2, 3, 4], &[11, 4, 1]": "false",
}


@needs_cargo
def test_written_tensors_with_shared_places_are_refused(package: Path, tmp_path: Path) -> None:
    calls = [f'check_distinct("y", &{case}).is_ok()' for case in STRIDES]
    found = _run_rust(package / "rust" / "sample-sys", tmp_path, SIZES, calls)
    assert found.split() == list(STRIDES.values())


@needs_cargo
def test_names_and_types_of_every_kind(package: Path, tmp_path: Path) -> None:
    params = (
        *(tensor(f"t_{name}", name, "N") for name in DTYPES),
        *(scalar(f"s_{name}", name) for name in DTYPES),
        tensor("in", "int4", "select(N < 4, N, self)", "self"),
        tensor("in_", "int8", "N"),
        tensor("device", "int8", "N"),
        tensor("match", "float16", "N", "bytes", access="inout", strides=("bytes", "1")),
        scalar("bytes", "int32"),
    )
    add = sample_spec(native_host()).kernels[0]
    dims = tuple(map(DimRecord, ("N", "self", "bytes")))
    names = ("Error", "int_add", "loop")
    kernels = tuple(replace(add, name=name, params=params, dims=dims) for name in names)
    files = crate_of(replace(sample_spec(native_host()), kernels=kernels))
    for where, text in files.items():
        (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / where).write_text(text)
    folder = str(package / "lib")
    done = cargo(tmp_path / "rust/sample-sys", tmp_path / "target", "check", SAMPLE_LIB_DIR=folder)
    assert done.returncode == 0, done.stderr


ON_A_GPU = """
use gpu_sample_sys::{views, Device, View};

#[repr(align(16))]
struct Floats([f32; 8]);

impl Floats {
    fn view<'a>(&mut self, shape: &'a [i64]) -> View<'a> {
        View::new(self.0.as_mut_ptr(), shape)
    }
}

#[test]
fn a_call_runs_on_a_gpu() {
    let device = Device::cuda(0, std::ptr::null_mut()).unwrap();
    device.preload().unwrap();
    let (mut a, mut b, mut c) = (Floats([1.0; 8]), Floats([2.0; 8]), Floats([0.0; 8]));
    unsafe { views::add(&device, a.view(&[8]), b.view(&[8]), c.view(&[8]), 0.5) }.unwrap();
    assert_eq!(c.0, [2.0; 8]);
    let wrong = unsafe { views::add(&device, a.view(&[8]), b.view(&[7]), c.view(&[8]), 0.5) };
    assert!(wrong.unwrap_err().message.contains("b axis 0 has extent 7"));
}
"""


@needs_cargo
def test_views_on_a_gpu(driver: Path, tmp_path: Path) -> None:
    report = write_package(cuda_spec(native_host()), tmp_path / "package")
    crate = report.out_dir / "rust" / "gpu_sample-sys"
    (crate / "tests" / "gpu.rs").write_text(ON_A_GPU)
    environment = {"LD_LIBRARY_PATH": str(driver), "FAKE_CUDA": "1 90 12090"}
    done = cargo(crate, tmp_path / "target", "test", "--test", "gpu", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_every_name_is_its_own() -> None:
    found = _distinct(["in_", "in", "x", "in__", "match"])
    assert found == {"in_": "in_", "in": "in___", "x": "x", "in__": "in__", "match": "match_"}


def test_versions_that_cargo_refuses_become_zero() -> None:
    spec = replace(sample_spec(native_host()), version='2026 "spring"')
    manifest = crate_of(spec)["rust/sample-sys/Cargo.toml"]
    assert 'version = "0.0.0"' in manifest
    assert 'version 2026 \\"spring\\""' in manifest
