"""C of CPU kernels: it reads well, compiles on its own, and computes what the machine code computes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from breadth import diagonal, parametrized
from c_kernels import CASES, Case

from tilec.backends.cpu.c_source.types import c_type
from tilec.backends.cpu.codegen import objects as cpu
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.codegen.image import Image
from tilec.errors import UnsupportedError
from tilec.inprocess.compilation import building
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate
from tilec.portable.loader import load
from tilec.targets import Target, native_target, parse_target

GCC = shutil.which("gcc")
STRICT = ["-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-Wno-unused-parameter", "-Wno-maybe-uninitialized"]

NAMES = [case.name for case in CASES]
FAST = (
    "scale",
    "four_bits",
    "matmul_float32",
    "matmul_bfloat16",
    "few_rows",
    "softmax",
    "control",
    "atomics",
    "scan",
)
LOWER = ("x86-64-v2", "x86-64-v3")

pytestmark = pytest.mark.skipif(GCC is None, reason="needs gcc")


def case_of(name: str) -> Case:
    return CASES[NAMES.index(name)]


def kernel_of(case: Case) -> Kernel:
    dims = {name: Guard(eq=value) for name, value in case.dims.items()}
    return elaborate(case.entry, name="kernel", dims=dims, args=case.args, config={}, open_dims=True)


def c_of(kernel: Kernel, target: Target) -> str:
    return cpu.source(to_tir(lower(kernel, target), target), target, "kernel")


def compiled(source: str, march: str, folder: Path) -> bytes:
    """The object that gcc makes of a file."""
    (folder / "kernel.c").write_text(source)
    command = [str(GCC), "-std=gnu11", "-O1", f"-march={march}", "-fPIC", *STRICT, "-c", "kernel.c"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{source}"
    return (folder / "kernel.o").read_bytes()


def outputs(path: Path, case: Case) -> list[np.ndarray]:
    """What a library writes for fresh inputs."""
    arguments = case.arguments()
    load(path).kernels["kernel"](*arguments)
    return [each for each in arguments if isinstance(each, np.ndarray)]


@parametrized("name", NAMES, fast=FAST)
def test_c_computes_what_machine_code_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, target = case_of(name), native_target()
    kernel, images, compile_kernel = kernel_of(case), list[Image](), cpu.compile_kernel

    def by_llvm(lowered: Any, target: Target, prefix: str) -> Image:
        images.append(compile_kernel(lowered, target, prefix))
        return images[-1]

    monkeypatch.setattr(cpu, "compile_kernel", by_llvm)
    building.build(building.make_job(kernel, target.name, (), (), tmp_path / "llvm.so"), kernel)
    wanted = outputs(tmp_path / "llvm.so", case)

    def by_gcc(lowered: Any, target: Target, prefix: str) -> Image:
        code = compiled(cpu.source(lowered, target, prefix), target.mcpu, tmp_path)
        digest = hashlib.sha256(code).hexdigest()
        return replace(images.pop(), code=code, sha256=digest)

    monkeypatch.setattr(cpu, "compile_kernel", by_gcc)
    building.build(building.make_job(kernel, target.name, (), (), tmp_path / "gcc.so"), kernel)
    for got, expected in zip(outputs(tmp_path / "gcc.so", case), wanted, strict=True):
        rtol = 2e-2 if got.dtype.itemsize <= 2 and got.dtype.kind != "i" else 2e-5
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=1e-5)


@parametrized(
    ("level", "name"), [(level, name) for level in LOWER for name in NAMES], fast=diagonal(LOWER, NAMES)
)
def test_c_of_every_level_compiles(level: str, name: str, tmp_path: Path) -> None:
    target = parse_target(level)
    compiled(c_of(kernel_of(case_of(name)), target), target.mcpu, tmp_path)


def test_c_reads_like_the_kernel() -> None:
    case = case_of("scale")
    text = c_of(kernel_of(case), parse_target("x86-64-v3"))
    assert "void kernel_0(float *restrict X_ptr" in text
    assert "splat_f32x8(factor)" in text
    assert "X[" in text
    assert "/* kernel for x86-64-v3" in text
    assert c_of(kernel_of(case), parse_target("x86-64-v3")) == text


def test_what_has_no_c_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="elements of bfloat16"):
        c_type("bfloat16")
    with pytest.raises(UnsupportedError, match="vectors of 3 lanes"):
        c_type("float32x3")

    def refuse(*_args: object) -> str:
        raise UnsupportedError("there is no C for a dream")

    monkeypatch.setattr("tilec.backends.cpu.c_source.c_source", refuse)
    text = c_of(kernel_of(CASES[0]), parse_target("x86-64-v3"))
    assert text.startswith("; there is no C for a dream\n")
    assert "define " in text
