"""Names under which kernel files import things: those that are offered, and those that say what to do."""

from __future__ import annotations

import importlib
import sys

import pytest

import tilec
from tilec.errors import UnsupportedError
from tilec.unoffered import PACKAGES


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
    from tilec.language.values import Value
    from tilec.tvm.tir import PrimExpr, const

    assert PrimExpr is Value
    assert isinstance(const(3, "uint16"), PrimExpr)
    assert [const(n).dtype for n in (3, 2.5, True)] == ["int32", "float32", "bool"]
    with pytest.raises(ValueError, match="300"):
        const(300, "uint8")


def test_targets_of_kernel_files(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilec.inprocess import targets
    from tilec.utils.target import check_cuda_availability, check_hip_availability, determine_target

    monkeypatch.setattr(targets, "cuda_devices", lambda: 0)
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
    from tilec.cuda.intrinsics import TensorCoreIntrinEmitter, get_swizzle_layout  # type: ignore[import-not-found]

    assert get_swizzle_layout is tilec.language.get_swizzle_layout
    with pytest.raises(UnsupportedError, match=r"use T\.gemm"):
        TensorCoreIntrinEmitter(a_dtype="float16")


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
