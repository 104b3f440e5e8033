"""Element types of at most 8 bits: every door takes the parameter's own type and no sibling of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi
from doors import Door, tensor
from samples import image
from samples import tensor as parameter

from tilec.dtypes import lookup
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, VariantRecord
from tilec.package.write import write_package
from tilec.portable.loader import LaunchError, Library, _DataType, load
from tilec.targets import Host, native_host, native_target

COPY = """
#include <stdint.h>
void {p}_0(const uint8_t* a, uint8_t* b, int64_t n, void* scratch, int64_t begin, int64_t end) {{
  for (int64_t i = begin; i < end; i++) b[i] = a[i];
}}
"""
TAKEN = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "bool", "uint8", "int8")
#: All codes of DLPack 1.1 for types of at most 8 bits, with the width that each has.
CODES = {
    "int8": (0, 8), "uint8": (1, 8), "bool": (6, 8), "float8_e3m4": (7, 8), "float8_e4m3": (8, 8),
    "float8_e4m3b11fnuz": (9, 8), "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8),
    "float6_e2m3fn": (15, 6), "float6_e3m2fn": (16, 6), "float4_e2m1fn": (17, 4),
}  # fmt: skip


def _copy(dtype: str, host: Host) -> KernelRecord:
    target = native_target().name
    made = VariantRecord(target, (), image(f"small_{dtype}", COPY, [("N",)], target, host), ir_text="copy")
    params = (parameter("a", dtype, "N"), parameter("b", dtype, "N", access="out"))
    return KernelRecord(f"copy_{dtype}", params, (DimRecord("N"),), (made,), "b = a")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    host = native_host()
    spec = PackageSpec("small", "1.0.0", host, tuple(_copy(dtype, host) for dtype in TAKEN))
    return write_package(spec, tmp_path_factory.mktemp("small")).library


@pytest.fixture(scope="module")
def library(path: Path) -> Library:
    return load(path)


def stand_for_each_other(given: str, wanted: str) -> bool:
    """The same type, or bool and an integer."""
    return given == wanted or ("bool" in (given, wanted) and {given, wanted} <= {"bool", "int8", "uint8"})


@pytest.mark.parametrize("wanted", TAKEN)
def test_the_door_takes_one_code_width_and_lane(library: Library, wanted: str) -> None:
    door = Door(library, f"copy_{wanted}")
    data, out = np.arange(1, 5, dtype=np.uint8), np.zeros(4, np.uint8)
    own = _DataType(*CODES[wanted], 1)
    assert (own.code, own.bits) == (lookup(wanted).dlpack, lookup(wanted).bits)
    for name, (code, bits) in CODES.items():
        status, text = door.launch([tensor(data, dtype=_DataType(code, bits, 1)), tensor(out, dtype=own)])
        if stand_for_each_other(name, wanted):
            assert status == "TILEC_OK", name
            continue
        assert (status, text) == ("TILEC_ERR_DTYPE", f"copy_{wanted}: a is {name}, expected {wanted}")
    assert out.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("wanted", TAKEN)
def test_flipped_bits_of_a_type_are_refused(library: Library, wanted: str) -> None:
    door, (code, bits) = Door(library, f"copy_{wanted}"), CODES[wanted]
    data = np.zeros(4, np.uint8)
    own = _DataType(code, bits, 1)
    for bit in range(32):
        words = (code | bits << 8 | 1 << 16) ^ 1 << bit
        wrong = _DataType(words & 0xFF, words >> 8 & 0xFF, words >> 16)
        name = next((name for name, known in CODES.items() if known == (wrong.code, wrong.bits)), "")
        if wrong.lanes == 1 and stand_for_each_other(name, wanted):
            continue
        status, text = door.launch([tensor(data, dtype=wrong), tensor(data.copy(), dtype=own)])
        assert status == "TILEC_ERR_DTYPE", (wanted, bit)
        assert text.startswith(f"copy_{wanted}: a is ")
        assert text.endswith(f", expected {wanted}")


def _ml_dtypes_array(name: str) -> Any:
    known = {"bool": np.bool_, "uint8": np.uint8, "int8": np.int8}
    return np.array([1, 0, 1, 1], np.uint8).view(known.get(name) or getattr(ml_dtypes, name))


def _torch_array(name: str) -> Any:
    torch = pytest.importorskip("torch")
    if not hasattr(torch, name):
        pytest.skip(f"torch has no {name}")
    return torch.tensor([1, 0, 1, 1], dtype=torch.uint8).view(getattr(torch, name))


FRAMEWORKS = {"ml_dtypes": _ml_dtypes_array, "torch": _torch_array}
OTHERS = [name for name in CODES if name.startswith("float") and name not in TAKEN]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("dtype", TAKEN)
def test_arrays_of_the_type_are_copied(library: Library, framework: str, dtype: str) -> None:
    made = library.kernels[f"copy_{dtype}"](FRAMEWORKS[framework](dtype))
    assert str(made.dtype).rpartition(".")[2] == dtype
    found = made.view(np.uint8) if framework == "ml_dtypes" else made.view(_torch_array("uint8").dtype)
    assert found.tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("given", [*OTHERS, "float8_e5m2"])
def test_arrays_of_other_types_are_refused_by_name(library: Library, framework: str, given: str) -> None:
    array = FRAMEWORKS[framework](given)
    with pytest.raises(LaunchError, match=f"a is {given}, expected float8_e4m3fn") as caught:
        library.kernels["copy_float8_e4m3fn"](array, array)
    assert caught.value.name == "TILEC_ERR_DTYPE"


def test_lanes_of_a_dlpack_array_reach_the_door(library: Library) -> None:
    torch = pytest.importorskip("torch")
    pairs = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)

    class Array:
        """Nothing but DLPack."""

        def __dlpack__(self, **options: object) -> object:
            return pairs.__dlpack__()

    with pytest.raises(LaunchError, match="a is float4_e2m1fnx2, expected uint8"):
        library.kernels["copy_uint8"](Array(), np.zeros(4, np.uint8))


@pytest.mark.parametrize("given", ["float8_e4m3fnuz", "float8_e5m2", "float8_e8m0fnu", "bool"])
def test_the_door_of_tvm_ffi(path: Path, given: str) -> None:
    module, own, wrong = tvm_ffi.load_module(str(path)), _torch_array("float8_e4m3fn"), _torch_array(given)
    out = own.clone().zero_()
    module.small_copy_float8_e4m3fn(own, out)
    assert out.view(_torch_array("uint8").dtype).tolist() == [1, 0, 1, 1]
    with pytest.raises(TypeError, match=f"a is {given}, expected float8_e4m3fn"):
        module.small_copy_float8_e4m3fn(wrong, out)
