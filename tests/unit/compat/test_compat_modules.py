"""Names under which kernel files import things: those that are offered, and those that say what to do."""

from __future__ import annotations

import importlib
import sys

import pytest

import tilec
from tilec.aliases import PACKAGES
from tilec.errors import EnvironmentError_, InputError, UnsupportedError


def test_autotuner_exports_what_kernel_files_import() -> None:
    names: dict[str, object] = {}
    exec("from tilec.autotuner import *", names)
    assert {"autotune", "AutoTuner", "set_autotune_inputs", "get_autotune_inputs"} <= set(names)
    from tilec.autotuner.param import AutotuneResult, CompileArgs, ProfileArgs

    assert ProfileArgs().timeout == 30
    assert CompileArgs(out_idx=[-1]).out_idx == [-1]
    assert AutotuneResult is names["AutotuneResult"]


def test_dtypes_by_module() -> None:
    from tilec.language.dtypes import float16

    assert tilec.dtypes.float16 is float16
    assert float16 == "float16"
    assert tilec.DataType("float16").bits == 16
    assert importlib.import_module("tilec.language.dtypes").dtype("half") == "float16"
    with pytest.raises(AttributeError, match="float17"):
        tilec.dtypes.float17  # noqa: B018


def test_tvm_under_its_own_name() -> None:
    from tilec.tvm import DataType, tir

    assert DataType("float16").bits == 16
    assert tir.Var


def test_numbers_of_tir_are_expressions_of_the_language() -> None:
    from tilec.language.values.value import Value
    from tilec.tvm.tir import PrimExpr, const

    assert PrimExpr is Value
    assert isinstance(const(3, "uint16"), PrimExpr)
    assert [const(n).dtype for n in (3, 2.5, True)] == ["int32", "float32", "bool"]
    with pytest.raises(ValueError, match="300"):
        const(300, "uint8")


def test_tirx_is_tir_with_classes_to_ask_for() -> None:
    from tilec.language.values.value import Value
    from tilec.tvm import tir, tirx
    from tilec.tvm.ir import PrimExpr
    from tilec.tvm.tirx import FloatImm, IntImm, Var, const

    assert (tir.const, tir.Var, tirx.PrimExpr, PrimExpr) == (const, Var, Value, Value)
    assert isinstance(const(3), IntImm)
    assert not isinstance(const(3), (FloatImm, Var))
    assert isinstance(FloatImm("float16", 0.5), FloatImm)
    assert IntImm("int64", 7).dtype == "int64"
    assert isinstance(tirx.any(const(3) > 2, False), PrimExpr)
    assert [each.dtype for each in tirx.convert([1, 2.0])] == ["int32", "float32"]
    total = tirx.Add(const(3), const(4)) * const(2)  # TVM's own function with values of the language
    assert isinstance(total, Value)


def test_modules_of_tvm_that_do_not_exist_import_and_refuse() -> None:
    from tilec.tvm.script import tir as script
    from tilec.tvm.target import Target
    from tilec.tvm.tir.stmt_functor import no_such_function

    assert Target.__module__.startswith("tvm")
    for missing in (script.prim_func, no_such_function):
        with pytest.raises(UnsupportedError, match=r"tilec\.tvm\."):
            missing(None)


def test_comparing_as_tvm_does() -> None:
    import numpy as np

    from tilec.tvm import testing

    testing.assert_allclose(np.ones(3, np.float32), [1, 1, 1 + 1e-8])
    with pytest.raises(AssertionError):
        testing.assert_allclose([1.0, 2.0], [1.0, 2.1], rtol=1e-2)
    with pytest.raises(AssertionError):
        testing.assert_allclose([1.0], 1.0)


@pytest.mark.parametrize(
    ("module", "name", "home"),
    [
        ("jit", "JITKernel", "tilec"),
        ("jit.kernel", "JITKernel", "tilec"),
        ("language.copy", "copy", "tilec.language"),
        ("language.proxy", "ptr", "tilec.language"),
        ("language.eager.builder", "prim_func", "tilec.language"),
        ("language.math_intrinsics", "__exp", "tilec.language"),
        ("primitives.gemm.base", "GemmWarpPolicy", "tilec.language"),
        ("autotuner.tuner", "AutoTuner", "tilec"),
        ("profiler.bench", "do_bench", "tilec"),
        ("transform.pass_config", "PassConfigKey", "tilec"),
        ("layout.swizzle", "make_swizzled_layout", "tilec.layout"),
        ("intrinsics.wgmma_macro_generator", "SwizzleMode", "tilec"),
        ("cuda.intrinsics", "TensorCoreIntrinEmitter", "tilec.intrinsics"),
        ("cuda.intrinsics.mma_macro_generator", "TensorCoreIntrinEmitter", "tilec.intrinsics"),
        (
            "cuda.intrinsics.layout.mma_layout",
            "mma_store_32x8_to_shared_16x16_layout",
            "tilec.intrinsics.mma_layout",
        ),
    ],
)
def test_modules_whose_names_live_elsewhere(module: str, name: str, home: str) -> None:
    names: dict[str, object] = {}
    exec(f"from tilec.{module} import {name} as found", names)
    assert names["found"] is getattr(importlib.import_module(home), name)


def test_such_modules_hide_no_function() -> None:
    for module in ("tilec.jit", "tilec.language.copy", "tilec.language.gemm", "tilec.language.print"):
        importlib.import_module(module)
    assert callable(tilec.jit)
    assert callable(tilec.language.copy)
    assert callable(tilec.language.gemm)
    assert not any(isinstance(each, type(sys)) for each in (tilec.jit, tilec.language.copy))
    names: dict[str, object] = {}
    exec("from tilec.language.proxy import *", names)
    assert names["Tensor"] is tilec.language.Tensor


def test_names_that_such_modules_lack_refuse_where_they_are_used() -> None:
    from tilec.ir import get_buffer_span  # type: ignore[attr-defined]
    from tilec.jit.adapter import CythonKernelAdapter  # type: ignore[import-not-found]
    from tilec.language.tir import no_such_thing  # type: ignore[import-not-found]

    for name in (get_buffer_span, CythonKernelAdapter, no_such_thing):
        with pytest.raises(UnsupportedError, match="is not supported"):
            name()


def test_tables_of_dtypes() -> None:
    import numpy as np

    torch = pytest.importorskip("torch")
    from tilec.dtypes import _TORCH_DTYPE_TO_STR  # type: ignore[attr-defined]
    from tilec.language import dtypes

    assert _TORCH_DTYPE_TO_STR[torch.bfloat16] == "bfloat16"
    assert dtypes._STR_TO_TORCH_DTYPE["float16"] is torch.float16
    assert (
        dtypes._NUMPY_DTYPE_TO_STR[np.float32] == dtypes._NUMPY_DTYPE_TO_STR[np.dtype("float32")] == "float32"
    )
    assert {bool: "bool", int: "int32", float: "float32"} == dtypes._PYTHON_DTYPE_TO_STR
    assert {"float16", "int4"} <= dtypes._all_dtypes
    with pytest.raises(UnsupportedError, match="_NO_SUCH_TABLE"):
        dtypes._NO_SUCH_TABLE["x"]


def test_swizzles_by_number() -> None:
    from tilec.layout import SwizzleMode

    assert [mode.swizzle_byte_size() for mode in SwizzleMode] == [1, 128, 64, 32]
    assert [mode.swizzle_atom_size() for mode in SwizzleMode] == [1, 8, 4, 2]
    assert SwizzleMode(2).is_swizzle_64b()
    assert SwizzleMode.NONE.is_none()


def test_answers_about_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilec.backends.cuda import driver
    from tilec.carver import arch
    from tilec.carver.arch import devices
    from tilec.utils import target as questions

    for module in (driver, devices):
        monkeypatch.setattr(module, "cuda_devices", lambda: 0)
    hopper, ampere = arch.CUDA("cuda -arch=sm_90a"), arch.get_arch("sm_80")
    assert (hopper.sm_version, hopper.compute_capability, hopper.platform) == (90, "90", "CUDA")
    assert (hopper.smem_cap, hopper.smem_opt_in, ampere.smem_opt_in) == (49152, 232448, 166912)
    assert arch.is_hopper_arch(hopper)
    assert arch.is_ampere_arch(ampere)
    assert not arch.is_ada_arch(ampere)
    assert arch.is_tensorcore_supported_precision("float16", "float32", ampere)
    assert not arch.is_tensorcore_supported_precision("float8_e4m3fn", "float32", ampere)
    with pytest.raises(UnsupportedError, match="number of multiprocessors of sm_90a"):
        hopper.compute_max_core  # noqa: B018
    with pytest.raises(UnsupportedError, match=r"CUDA\.bandwidth"):
        hopper.bandwidth  # noqa: B018
    with pytest.raises(EnvironmentError_, match="this machine has none"):
        arch.CUDA("cuda")
    assert arch.is_cpu_arch(arch.auto_infer_current_arch())
    assert questions.target_is_hopper("sm_90a")
    assert not questions.target_is_hopper("cpu")
    assert questions.target_has_async_copy("sm_80")
    assert not questions.target_has_bulk_copy("sm_80")


def test_answers_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilec.backends.cuda import driver as own
    from tilec.carver.arch import CUDA, devices, driver
    from tilec.contrib import nvcc

    attributes = {75: 9, 76: 0, 10: 32, 12: 65536, 8: 49152, 16: 132, 38: 50 << 20}
    for module in (own, devices, driver):
        monkeypatch.setattr(module, "cuda_devices", lambda: 1)
        monkeypatch.setattr(module, "device_attribute", lambda number, device=0: attributes[number])
    monkeypatch.setattr(devices, "get_device_name", lambda: "a device")
    own.target_here.cache_clear()
    found = CUDA("cuda")
    own.target_here.cache_clear()
    assert (found.name, found.sm_version, found.compute_max_core) == ("a device", 90, 132)
    assert (found.l2_cache_size_bytes, found.reg_cap) == (50 << 20, 65536)
    assert nvcc.get_target_compute_version() == "9.0"
    assert nvcc.is_hopper("cuda")
    assert nvcc.have_tma()


def test_answers_about_the_compiler() -> None:
    from tilec.contrib import nvcc
    from tilec.tvm.contrib import nvcc as of_tvm  # type: ignore[import-not-found]

    assert nvcc.get_target_compute_version("sm_80") == "8.0"
    assert of_tvm.get_target_compute_version({"kind": "cuda", "arch": "sm_90a"}) == "9.0"
    assert nvcc.parse_compute_version("8.9") == (8, 9)
    assert [nvcc.get_target_arch(version) for version in ("8.0", (9, 0))] == ["80", "90a"]
    assert nvcc.have_bf16("8.0")
    assert not nvcc.have_fp8("8.0")
    assert nvcc.have_tensorcore(target="sm_80")
    with pytest.raises(InputError, match="is no GPU"):
        nvcc.get_target_compute_version("x86-64-v3")
    with pytest.raises(UnsupportedError, match="compile_cuda"):
        nvcc.compile_cuda("")


def test_targets_of_kernel_files(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilec.backends.cuda import driver
    from tilec.utils.target import check_cuda_availability, check_hip_availability, determine_target

    monkeypatch.setattr(driver, "cuda_devices", lambda: 0)
    assert determine_target() == "llvm"
    assert determine_target("cuda -arch=sm_80") == "cuda"
    assert determine_target("x86-64-v3", return_object=True).name == "x86-64-v3"
    assert not check_hip_availability()
    assert isinstance(check_cuda_availability(), bool)


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_that_are_not_offered_import_and_refuse(package: str) -> None:
    module = importlib.import_module(f"tilec.{package}.anything.deep")
    value = module.Something
    with pytest.raises(UnsupportedError, match=f"tilec.{package}.anything.deep.Something") as found:
        value(1)
    assert found.value.remedy == PACKAGES[package]
    with pytest.raises(UnsupportedError):
        value.attribute()

    class Derived(value):  # type: ignore[misc, valid-type]
        pass

    assert Derived()


def test_emitters_import() -> None:
    from tilec.cuda.intrinsics import get_swizzle_layout  # type: ignore[import-not-found]
    from tilec.intrinsics.mma_macro_generator import INT4TensorCoreIntrinEmitter

    assert get_swizzle_layout is tilec.language.get_swizzle_layout
    with pytest.raises(UnsupportedError, match=r"use T\.gemm"):
        INT4TensorCoreIntrinEmitter(a_dtype="float16")


@pytest.mark.parametrize("name", ["lower", "register_cuda_postproc", "register_cuda_postproc_callback"])
def test_functions_that_are_not_offered(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"tilec.{name}"):
        getattr(tilec, name)(lambda code, _target: code)


def test_passes_are_not_offered() -> None:
    function = object()
    assert tilec.transform.simplify_prim_func(function) is function
    with pytest.raises(UnsupportedError, match=r"tilec\.transform\.LowerTileOp"):
        tilec.transform.LowerTileOp()
    assert tilec.transform.PassConfigKey is tilec.PassConfigKey


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute nothing_like_it"):
        tilec.nothing_like_it  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tilec.nothing_like_it")
    assert "tvm" not in vars(tilec) or "tilec.tvm" in sys.modules
