"""Flags of nvcc, sorted out for device code: some reach NVRTC, the rest is said to be left out."""

from __future__ import annotations

import shlex

import pytest

import tilec
import tilec.language as T
from tilec.backends.cuda.codegen.compilers import find_compiler
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.ir.guards import Guard
from tilec.ir.nvcc_flags import device_flags
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

#: What an author writes -> what the compiler is given.
KEPT = {
    "--use_fast_math": "--use_fast_math",
    "-use_fast_math": "--use_fast_math",
    "-U__CUDA_NO_HALF_OPERATORS__ -U OTHER": "-U__CUDA_NO_HALF_OPERATORS__ -UOTHER",
    "-DNAME=3 -D OTHER --define-macro LAST": "-DNAME=3 -DOTHER --define-macro=LAST",
    "--ptxas-options=-v,--register-usage-level=10": "--ptxas-options=--register-usage-level=10",
    "-Xptxas -O3,-v -Xptxas=-warn-spills": "--ptxas-options=-O3 --ptxas-options=-warn-spills",
    "-std c++20": "-std=c++20",
    "--std=c++17": "-std=c++17",
    "-lineinfo": "--generate-line-info",
    "-maxrregcount 64": "--maxrregcount=64",
    "--maxrregcount=128": "--maxrregcount=128",
    "-fmad=false -ftz true --prec-div=true": "--fmad=false --ftz=true --prec-div=true",
    "-Xcudafe --diag_suppress=177 -diag-suppress 20013": "--diag-suppress=177 --diag-suppress=20013",
    "-I /usr/include -I.": "-I/usr/include -I.",
    "-G": "--device-debug",
}
DROPPED = [
    "-O3", "-O", "--optimize=2", "--expt-relaxed-constexpr", "--expt-extended-lambda", "--extended-lambda",
    "-Wno-unused-variable", "-Wall", "-w", "-Werror all-warnings", "-Xcompiler -fPIC", "-Xcompiler=-O3,-fPIC",
    "--compiler-options '-fPIC -O2'", "-fPIC", "-shared", "-lcuda", "-L/usr/lib", "-g", "--resource-usage",
    "-arch=sm_90a", "-gencode arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=sm_90", "-rdc=true",
    "-dlto", "-dc", "-t 4", "--threads=4", "--ptxas-options=-v", "-Xptxas -v", "--keep", "-c", "--cubin",
]  # fmt: skip


@pytest.mark.parametrize("text", KEPT)
def test_what_says_something_of_device_code_is_kept(text: str) -> None:
    found = device_flags(shlex.split(text))
    assert list(found.kept) == KEPT[text].split()
    assert not found.notes()


@pytest.mark.nvrtc
def test_nvrtc_takes_what_is_kept() -> None:
    source = 'extern "C" __global__ void k(float* a) { a[threadIdx.x] /= 3.0f; }'
    compiler = find_compiler()
    for text in KEPT:
        assert compiler.compile(source, "sm_80", shlex.split(text)).code


@pytest.mark.parametrize("text", DROPPED)
def test_what_says_nothing_of_it_is_dropped_with_a_reason(text: str) -> None:
    words = shlex.split(text)
    found = device_flags([*words, "-DX"])
    assert found.kept == ("-DX",)
    (note,) = found.notes()
    assert note.startswith(f"compile flags {' '.join(words)} are left out: ")


def test_what_is_not_known_is_left_to_the_compiler() -> None:
    assert device_flags(["--no-such-flag"]).kept == ("--no-such-flag",)


def test_notes_say_what_is_left_out() -> None:
    @tilec.jit(compile_flags=["-O3", "-DX=1", "--expt-relaxed-constexpr"])
    def factory(n: int):
        @T.prim_func
        def main(A: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(n):
                    A[i] = 1.0

        return main

    kernel = elaborate(factory, name="k", dims={"n": Guard(eq=32)}, args={}, config={})
    target = parse_target("sm_80")
    (launch,) = lower_kernel(lower(kernel, target), target).launches
    assert [note.partition(":")[0] for note in launch.notes if "left out" in note] == [
        "compile flags -O3 are left out",
        "compile flags --expt-relaxed-constexpr are left out",
    ]
