from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilec.backends.cpu.codegen.objects import assembly, compile_kernel, tir_text
from tilec.codegen.elf import global_symbols, undefined_symbols
from tilec.errors import CompileError
from tilec.ir.roads import decode
from tilec.targets import native_host, parse_target, runs_here

MATH = Path(__file__).parent / "math"
sys.path.insert(0, str(MATH))
from vector_harness import Compiled, elementwise, lowered  # noqa: E402

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")
VECTOR = ("exp", "exp2", "exp10", "sigmoid", "tanh", "log", "log2", "log10", "log1p", "erf", "sqrt", "rsqrt")


@pytest.mark.parametrize("level", LEVELS)
def test_vector_functions_leave_nothing_undefined(level):
    image = compile_kernel(lowered(*(elementwise(name) for name in VECTOR)), parse_target(level), "k")
    assert undefined_symbols(image.code) <= {"memcpy", "memset"}
    assert [launch.symbol for launch in image.launches] == [f"k_{index}" for index in range(len(VECTOR))]
    assert {launch.symbol for launch in image.launches} <= {
        symbol.name for symbol in global_symbols(image.code)
    }
    assert image.sha256 == hashlib.sha256(image.code).hexdigest()
    assert image.target == level


def test_half_conversions_stay_inside_the_library():
    code = compile_kernel(lowered(elementwise("copy")), parse_target("x86-64-v2"), "k").code
    weak = [symbol for symbol in global_symbols(code) if symbol.weak]
    assert weak
    assert all(symbol.hidden for symbol in weak)


def test_libm_calls_are_noted():
    image = compile_kernel(lowered(elementwise("exp", "float64", lanes=2)), parse_target("x86-64-v3"), "k")
    assert undefined_symbols(image.code) == {"exp"}
    assert image.launches[0].notes == ()
    (road,) = decode(image.launches[0].roads)
    assert road.instruction == "calls libm, one element at a time: exp"
    assert road.loss is not None


def test_unknown_symbols_are_an_error():
    from tvm import tirx

    body = tirx.Evaluate(tirx.call_extern("int32", "nowhere"))
    with pytest.raises(CompileError, match="code generation of 'demo'") as caught:
        compile_kernel(lowered(tirx.PrimFunc([], body)), parse_target("x86-64-v3"), "k")
    assert "nowhere" in caught.value.why


@pytest.mark.slow
def test_bytes_are_the_same_in_another_process():
    kernel = lowered(elementwise("exp"), elementwise("tanh", lanes=8))
    here = compile_kernel(kernel, parse_target("x86-64-v3"), "k").sha256
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from vector_harness import *\n"
        "kernel = lowered(elementwise('exp'), elementwise('tanh', lanes=8))\n"
        "print(compile_kernel(kernel, parse_target('x86-64-v3'), 'k').sha256)\n"
    )
    env = {**os.environ, "PYTHONHASHSEED": "5"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(MATH)], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.strip() == here


def test_assembly_has_the_vector_instructions():
    text = assembly(lowered(elementwise("exp")), parse_target("x86-64-v4"), "k")
    assert "k_0:" in text
    assert "vfmadd" in text
    assert "zmm" in text
    assert ".loc" not in text
    assert "__truncsfhf2" not in text


def test_avx512_takes_powers_apart_by_instructions():
    text = assembly(lowered(elementwise("exp2")), parse_target("x86-64-v4"), "k")
    assert text.count("vscalefps") == text.count("vreduceps") > 0
    assert "vscalefps" not in assembly(lowered(elementwise("exp2", lanes=2)), parse_target("x86-64-v4"), "k")
    assert "vscalefps" in assembly(lowered(elementwise("exp")), parse_target("x86-64-v4"), "k")


def test_tir_text_shows_what_llvm_gets():
    assert "k_0" in tir_text(lowered(elementwise("copy")), parse_target("x86-64-v4"), "k")


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+avx512bf16"])
@pytest.mark.parametrize("lanes", [1, 8, 32])
def test_float16_arithmetic(level, lanes):
    _skip_unless_it_runs(level)
    x = np.random.default_rng(1).normal(0, 4, 320).astype(np.float16)
    x[:6] = [0, np.inf, -np.inf, np.nan, 6e-8, 65504]
    got = Compiled(lowered(elementwise("square_plus", "float16", lanes)), parse_target(level)).run(0, x)
    with np.errstate(all="ignore"):
        want = x * x + x
    assert np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=2e-3, equal_nan=True)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+avx512bf16"])
@pytest.mark.parametrize("lanes", [1, 8, 32])
def test_bfloat16_arithmetic(level, lanes):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    _skip_unless_it_runs(level)
    x = np.random.default_rng(1).normal(0, 4, 320).astype(ml_dtypes.bfloat16)
    x[:5] = [0, np.inf, -np.inf, np.nan, 3e38]
    got = Compiled(lowered(elementwise("square_plus", "bfloat16", lanes)), parse_target(level)).run(0, x)
    wide = x.astype(np.float32)
    with np.errstate(all="ignore"):
        want = (wide * wide + wide).astype(ml_dtypes.bfloat16)
    assert np.array_equal(got.astype(np.float32), want.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions_of_short_floats_round_once(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    _skip_unless_it_runs("x86-64-v3")
    numpy_dtype = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    x = np.linspace(-8, 8, 320).astype(numpy_dtype)
    got = Compiled(lowered(elementwise("exp", dtype)), parse_target("x86-64-v3")).run(0, x)
    want = np.exp(x.astype(np.float64)).astype(numpy_dtype)
    assert (np.abs(got.view(np.int16).astype(int) - want.view(np.int16).astype(int)) <= 1).all()


def _skip_unless_it_runs(level: str) -> None:
    if native_host().arch != "x86_64" or not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
