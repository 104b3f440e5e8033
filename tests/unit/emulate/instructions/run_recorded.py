"""Runs the kernels of cases.cubin on GPU 0 and writes outputs.npz. Needs NumPy and the driver alone."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

import numpy as np

_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_UINT32 = 2  # CU_TENSOR_MAP_DATA_TYPE_UINT32
cuda = ctypes.CDLL("libcuda.so.1")


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


def check(name: str, *args: object) -> None:
    """Calls the driver."""
    result = getattr(cuda, name)(*args)
    if result:
        raise RuntimeError(f"{name}: error {result}")


def encoded(found: dict, pointers: list[ctypes.c_uint64]) -> ctypes.Array:
    """A tensor map, aligned to 64 bytes."""
    raw = ctypes.create_string_buffer(128 + 64)
    address = -(-ctypes.addressof(raw) // 64) * 64
    axes = len(found["extents"])
    if found["window"]:
        window, inner = found["window"], ctypes.c_int * (axes - 2)
        check(
            "cuTensorMapEncodeIm2col", ctypes.c_void_p(address), _UINT32, axes, pointers[found["tensor"]],
            (ctypes.c_uint64 * axes)(*found["extents"]), (ctypes.c_uint64 * 4)(*found["strides"]),
            inner(*window["lower"]), inner(*window["upper"]), *found["box"],
            (ctypes.c_uint32 * axes)(1, *window["steps"], 1), 0, _SWIZZLES[found["swizzle"]], 0, 0,
        )  # fmt: skip
        return (ctypes.c_char * 128).from_buffer_copy(ctypes.string_at(address, 128))
    check(
        "cuTensorMapEncodeTiled", ctypes.c_void_p(address), _UINT32, axes, pointers[found["tensor"]],
        (ctypes.c_uint64 * axes)(*found["extents"]), (ctypes.c_uint64 * 4)(*found["strides"]),
        (ctypes.c_uint32 * axes)(*found["box"]), (ctypes.c_uint32 * axes)(*[1] * axes), 0,
        _SWIZZLES[found["swizzle"]], 0, 0,
    )  # fmt: skip
    return (ctypes.c_char * 128).from_buffer_copy(ctypes.string_at(address, 128))


def run(module: ctypes.c_void_p, case: dict, words: np.ndarray) -> np.ndarray:
    """What a kernel writes for its input words."""
    result = np.zeros(case["outputs"], np.uint32)
    pointers = [ctypes.c_uint64(), ctypes.c_uint64()]
    for pointer, array in zip(pointers, (words, result)):  # noqa: B905 (older Python there)
        check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(array.nbytes))
        check(
            "cuMemcpyHtoD_v2", pointer, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes)
        )
    function = ctypes.c_void_p()
    check("cuModuleGetFunction", ctypes.byref(function), module, case["symbol"].encode())
    check("cuFuncSetAttribute", function, _DYNAMIC_SHARED, case["shared"])
    maps = [encoded(found, pointers) for found in case["maps"]]
    args = (ctypes.c_void_p * (2 + len(maps)))(*map(ctypes.addressof, (*pointers, *maps)))
    attribute = Attribute(_CLUSTER_DIMENSION, b"", (ctypes.c_uint * 16)(case["cluster"], 1, 1))
    config = Config(
        (ctypes.c_uint * 3)(case["blocks"], 1, 1), (ctypes.c_uint * 3)(case["threads"], 1, 1), case["shared"],
        None, ctypes.pointer(attribute), int(case["cluster"] > 1),
    )  # fmt: skip
    check("cuLaunchKernelEx", ctypes.byref(config), function, args, None)
    check("cuCtxSynchronize")
    check(
        "cuMemcpyDtoH_v2", result.ctypes.data_as(ctypes.c_void_p), pointers[1], ctypes.c_size_t(result.nbytes)
    )
    for pointer in pointers:
        check("cuMemFree_v2", pointer)
    return result


def main() -> None:
    """Every case, or those whose names are given."""
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    check("cuInit", 0)
    check("cuDeviceGet", ctypes.byref(device), 0)
    check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    check("cuCtxSetCurrent", context)
    check("cuModuleLoad", ctypes.byref(module), b"cases.cubin")
    inputs, found = np.load("inputs.npz"), {}
    try:
        for case in json.loads(Path("cases.json").read_text()):
            if len(sys.argv) == 1 or case["name"] in sys.argv[1:]:
                print(case["name"], flush=True)
                found[case["name"]] = run(module, case, np.ascontiguousarray(inputs[case["name"]]))
    finally:
        np.savez(Path(os.environ.get("OUT", ".")) / "outputs.npz", **found)


if __name__ == "__main__":
    main()
