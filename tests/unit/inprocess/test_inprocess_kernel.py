"""What a compiled kernel says of itself: parameters, sources, its library; measuring and comparing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import inprocess_kernels as kernels
import pytest
from breadth import parametrized

import tilec
from tilec import TensorSupplyType
from tilec.inprocess.measuring import bench
from tilec.inprocess.measuring.inputs import get_tensor_supply
from tilec.portable.loader import load
from tilec.utils.tensor import torch_assert_close

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def kernel() -> Any:
    return kernels.linear.compile(M=40, N=56, K=24)


def test_parameters(kernel: Any) -> None:
    first = kernel.params[0]
    assert (first.torch_dtype(), first.is_scalar(), first.is_float8()) == (torch.float32, False, False)
    scalar = kernels.axpy(100).params[1]
    assert scalar.is_scalar()
    assert kernel.target.is_cpu
    assert kernel.n_regs is None


def test_sources(kernel: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "void linear_" in kernel.get_kernel_source()
    assert "kernel_record kernels[]" in kernel.get_host_source()
    kernel.export_sources(kernel_path=tmp_path / "k.c", host_path=tmp_path / "h.c")
    assert (tmp_path / "k.c").read_text() == kernel.kernel_source
    kernel.show_source("host")
    assert capsys.readouterr().out.strip() == kernel.host_source.strip()
    with pytest.raises(ValueError, match="no path"):
        kernel.export_sources()
    with pytest.raises(ValueError, match="no source 'all'"):
        kernel.show_source("all")
    kernel.print_source_code("both", tmp_path / "both.txt")
    assert (tmp_path / "both.txt").read_text() == f"{kernel.kernel_source}\n{kernel.host_source}"
    assert kernel.get_kernel_source(kernel_only=False) == f"{kernel.kernel_source}\n{kernel.host_source}"
    text = kernels.linear.get_tir(M=40, N=56, K=24)
    assert "gemm(" in str(text) == text.script()
    again = tilec.compile(text)
    assert again.get_kernel_source() == kernel.get_kernel_source()


def test_outputs_by_index_of_an_eager_kernel_are_refused():
    with pytest.raises(ValueError, match="out_idx on the eager kernel linear"):
        tilec.compile(kernels.linear.get_tir(M=40, N=56, K=24), out_idx=[1])


def test_the_library_is_one_like_any_other(kernel: Any, tmp_path: Path) -> None:
    kernel.export_library(tmp_path / "lib.so")
    a, b = torch.randn(40, 24), torch.randn(56, 24)
    torch.testing.assert_close(load(tmp_path / "lib.so").linear(a, b), a @ b.T)


def test_verbose_names_the_stages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    jitted = tilec.jit(kernels.axpy.func, out_idx=[-1], verbose=True, debug_root_path=tmp_path / "sources")
    jitted.compile(40)
    jitted.compile(40)
    said = [line.partition(" in ")[0] for line in capsys.readouterr().err.splitlines()]
    stages = ["elaborated the code", "generated the code", "linked the library"]
    assert said[:3] == [f"tilec: {stage} of axpy" for stage in stages]
    assert [line.partition(" for ")[0] for line in said[3:]] == [
        "tilec: compiled axpy",
        "tilec: loaded axpy",
    ]
    assert sorted(path.suffix for path in (tmp_path / "sources").iterdir()) == [".c", ".c", ".txt"]


def test_what_a_call_would_compile(kernel: Any) -> None:
    bound = kernels.linear.partial(M=40, N=56, K=24)
    assert bound.const_args == ("float32", 32, 32, 32, 40, 56, 24)
    for made in (bound.prim_func, kernel.prim_func):
        assert tilec.compile(made).get_kernel_source() == kernel.get_kernel_source()
    a, b = torch.zeros(40, 24), torch.zeros(56, 24)
    key, passed = kernels.linear.arg_parser(a, b, bM=16)
    assert key == kernels.linear.parse_cache_key(a, b, bM=16)
    assert [each.shape for each in passed] == [a.shape, b.shape]
    assert kernels.linear.bench(a, b) > 0


def test_a_cpu_has_no_ptx(kernel: Any) -> None:
    for show in (kernel.show_ptx, kernel.show_sass):
        with pytest.raises(ValueError, match="for a CPU"):
            show()


@pytest.mark.slow
def test_the_example_runs() -> None:
    example = Path(tilec.__file__).parent.parent / "examples" / "python" / "in_process.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<JITKernel matmul")


def test_tuner_results(kernel: Any) -> None:
    fresh = kernels.linear.compile(M=40, N=56, K=24)
    with pytest.raises(ValueError, match="not tuned"):
        fresh.get_tuner_result()
    fresh.update_tuner_result(0.5, {"bM": 16}, 0.7)
    assert fresh.get_tuner_result() == {"latency": 0.5, "config": {"bM": 16}, "ref_latency": 0.7}


# ---- comparing ----


def test_the_profiler_compares(kernel: Any) -> None:
    profiler = kernel.get_profiler()
    assert profiler.func is profiler.adapter
    profiler.assert_allclose(lambda a, b: a @ b.T)
    with pytest.raises(AssertionError, match="elements differ; worst at"):
        profiler.assert_allclose(lambda a, b: a @ b.T + 1)
    with pytest.raises(AssertionError, match="1 output, the reference 2"):
        profiler.assert_allclose(lambda a, b: (a, b))
    profiler.assert_consistent(2)
    seen: list[Any] = []
    profiler.manual_assert_close(lambda a, b: a @ b.T, manual_check_prog=lambda *both: seen.extend(both))
    torch.testing.assert_close(*seen)
    with pytest.raises(ValueError, match="needs manual_check_prog"):
        profiler.manual_assert_close(lambda a, b: a @ b.T)


def test_the_profiler_compares_arrays(kernel: Any) -> None:
    a, b = torch.randn(40, 24).numpy(), torch.randn(56, 24).numpy()
    kernel.get_profiler().assert_allclose(lambda a, b: a @ b.T, [a, b])
    with pytest.raises(AssertionError, match="elements differ"):
        kernel.get_profiler().assert_allclose(lambda a, b: a @ b.T + 1, [a, b])


def test_pairs_without_a_reference_are_skipped(kernel: Any) -> None:
    kernel.get_profiler().assert_allclose(lambda a, b: [None])
    some = tilec.Profiler(kernel.params, [2], adapter=lambda a, b: [torch.full((3,), float("nan"))])
    some.assert_allclose(lambda a, b: torch.full((3,), float("nan")))
    small = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    tilec.Profiler(kernel.params, [2], adapter=lambda a, b: small).assert_allclose(lambda a, b: small)
    with pytest.raises(AssertionError, match=r"output 0 has shape \(2,\), not \(1,\)"):
        tilec.Profiler(kernel.params, [2], adapter=lambda a, b: small).assert_allclose(lambda a, b: small[:1])


@pytest.mark.parametrize("kind", list(TensorSupplyType))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8", "uint8", "bool", "int64"])
def test_supply(kind: TensorSupplyType, dtype: str) -> None:
    from tilec.inprocess.params import KernelParam
    from tilec.language.values.scalars import dtype as make

    made = get_tensor_supply(kind)(KernelParam(make(dtype), [3, 5], "x"))
    assert made.shape == (3, 5)
    assert str(made.dtype) == f"torch.{dtype}"
    if kind in (TensorSupplyType.Auto, TensorSupplyType.Integer):
        low, high = {"uint8": (0, 2), "bool": (0, 1), "int8": (-2, 2), "int64": (-2, 2)}.get(
            dtype, (-128, 128)
        )  # e4m3 rounds 127 up to 128
        assert low <= made.float().min()
        assert made.float().max() <= high
    if kind in (TensorSupplyType.Zero, TensorSupplyType.One):
        assert (made.float() == (kind is TensorSupplyType.One)).all()


def test_what_cannot_be_supplied() -> None:
    with pytest.raises(ValueError, match="scalar a has no supply"):
        kernels.axpy(100).get_profiler().do_bench()
    params = kernels.halves.compile().params[:1]
    profiler = tilec.Profiler(params, [], adapter=lambda x: x)
    with pytest.raises(ValueError, match="x has the runtime extent N"):
        profiler.do_bench()
    assert [tuple(each.shape) for each in profiler.inputs({"N": 7})] == [(7,)]
    assert profiler.do_bench(dynamic_symbolic_constraints={"N": 7}, n_warmup=1, n_repeat=2) >= 0


def test_torch_assert_close() -> None:
    a = torch.zeros(1000)
    b = a.clone()
    b[0] = 1
    assert torch_assert_close(a, b, max_mismatched_ratio=0.001)
    with pytest.raises(AssertionError, match="2 of 1000"):
        torch_assert_close(a, _second(b))
    with pytest.raises(AssertionError, match="different dtype"):
        torch_assert_close(a, b.double())
    nan = torch.full((4,), float("nan"))
    assert torch_assert_close(nan, nan)
    with pytest.raises(AssertionError):
        torch_assert_close(nan, nan, equal_nan=False)


def _second(b: Any) -> Any:
    other = b.clone()
    other[7] = 1
    return other


# ---- measuring ----


def test_do_bench() -> None:
    calls: list[int] = []
    found = tilec.do_bench(lambda: calls.append(0), _n_warmup=2, _n_repeat=7, cache_size=1)
    assert 0 < found < 100
    assert len(calls) == 6 + 2 + 7
    spread = tilec.do_bench(lambda: None, _n_warmup=1, _n_repeat=9, quantiles=[0.1, 0.9], cache_size=1)
    assert spread[0] <= spread[1]
    begin = time.perf_counter()
    assert tilec.do_bench(lambda: None, warmup=1, rep=2, return_mode="min") >= 0
    assert time.perf_counter() - begin < 10  # nothing to time is no reason to run for ever
    with pytest.raises(AssertionError, match="return_mode"):
        tilec.do_bench(lambda: None, return_mode="most")
    with pytest.raises(ValueError, match="backend"):
        tilec.do_bench(lambda: None, backend="clock")


def test_quantiles_lie_between_samples() -> None:
    assert bench._answer([4.0, 1.0, 2.0, 3.0], [0.5], "mean") == 2.5
    assert bench._answer([4.0, 1.0, 2.0, 3.0], [0.0, 0.25, 1.0], "mean") == [1.0, 1.75, 4.0]
    for mode, found in {"min": 1.0, "max": 4.0, "mean": 2.5, "median": 2.5}.items():
        assert bench._answer([4.0, 1.0, 2.0, 3.0], None, mode) == found


@parametrized("backend", ["event", "cudagraph", "cupti"], fast=["event"])
def test_backends_on_a_cpu_are_the_clock(backend: str) -> None:
    assert tilec.do_bench(lambda: None, _n_warmup=1, _n_repeat=2, backend=backend, device="cpu") >= 0


def test_a_hopeless_candidate_is_left_early() -> None:
    calls: list[int] = []
    tilec.do_bench(lambda: calls.append(0), early_stop_baseline=1e-9, cache_size=0)
    assert len(calls) == 6


def test_a_kernel_is_measured(kernel: Any) -> None:
    assert kernel.get_profiler().do_bench(n_warmup=1, n_repeat=3) > 0
    assert kernel.bench(torch.zeros(40, 24), torch.zeros(56, 24), _n_warmup=1, _n_repeat=2, cache_size=1) > 0


# ---- names ----

NAMES = """
import sys
import time
import tilec
assert not {"tvm", "numpy", "torch"} & set(sys.modules)
from tilec.profiler import do_bench, Profiler
from tilec.utils.tensor import TensorSupplyType, get_tensor_supply, torch_assert_close
from tilec.transform import PassConfigKey, simplify_prim_func
from tilec.math import cdiv, next_power_of_2
assert tilec.jit is tilec.lazy_jit and tilec.Profiler is Profiler
assert tilec.do_bench is tilec.profiler.do_bench
assert tilec.PassConfigKey.TL_ENABLE_FAST_MATH == "tl.enable_fast_math"
assert PassConfigKey.TL_ENABLE_FAST_MATH.value == "tl.enable_fast_math"
assert {PassConfigKey.TL_DISABLE_TMA_LOWER: 1} == {"tl.disable_tma_lower": 1}
assert (cdiv(7, 2), next_power_of_2(5)) == (4, 8)
from tilec.carver.arch import driver
assert driver.get_num_sms() > 0 and driver.get_device_name() and driver.get_shared_memory_per_block() > 0
from tilec.language.fp8 import determine_fp8_type
assert determine_fp8_type() == "float8_e4m3fn" and determine_fp8_type("e5m2") == "float8_e5m2"
from tilec.tileop.base import GemmWarpPolicy
from tilec.layout import make_swizzled_layout
assert tilec.DataType("float16").bits == 16 and tilec.Layout and tilec.Fragment
tilec.set_log_level("INFO")
tilec.disable_cache()
assert not tilec.is_cache_enabled()
tilec.enable_cache()
assert "tvm" not in sys.modules
"""


def test_public_names_load_lightly() -> None:
    done = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
