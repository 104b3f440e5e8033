"""A family of targets for tests: its machine code is the text of tile IR, its driver an interpreter of that.

All that a family needs is in this file: facts, the way to its code, what a package holds of it, and C for the
runtime, which hands the code of a variant to a function whose address is in TOY_DRIVER."""

from __future__ import annotations

import ctypes
import hashlib
import os

import numpy as np

from tilec.backends.base import Backend
from tilec.codegen.image import Image, LaunchCode
from tilec.families import forget, register
from tilec.ir.interp.interpreter import run
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.lowering.lowered import LoweredKernel, LoweredLaunch
from tilec.lowering.passes.expand_copies import ExpandCopies
from tilec.package.escape import c_string
from tilec.package.family import family_of_variant
from tilec.sizes import evaluate_size
from tilec.targets import Target

DEVICE = 12  # kDLExtDev
RUNTIME = """
#include <stdlib.h>
typedef int (*toy_driver)(const char* code, const tilec_value* params, const int64_t* dims);
static tilec_status toy_archs(int32_t device, const arch_list** out) {
  static arch_list list;
  list = (arch_list){.device_type = kDLExtDev};
  if (device != 0) return fail(TILEC_ERR_DEVICE, "there is one toy, not number %d", device);
  for (uint32_t i = 0; i < this_library.num_archs; i++)
    if (this_library.archs[i].device_type == kDLExtDev) list.archs[list.count++] = (uint8_t)i;
  *out = &list;
  return TILEC_OK;
}
static int64_t toy_units(const tilec_exec* exec) { return exec ? 1 : 0; }
static tilec_status toy_preload(const kernel_record* only, int32_t device) {
  return only || device == 0 ? TILEC_OK : TILEC_ERR_DEVICE;
}
static tilec_status toy_run(const kernel_record* kernel, const variant_record* variant, const arch_list* archs,
    const tilec_exec* exec, const tilec_value* params, const int64_t* dims) {
  const char* driver = getenv("TOY_DRIVER");
  if (driver && archs->count && exec && ((toy_driver)strtoull(driver, NULL, 10))(variant->code, params, dims) == 0)
    return TILEC_OK;
  return fail(TILEC_ERR_DRIVER, "%s: the toy broke", kernel->info.name);
}
static const device_family toy_family = {
  .title = "toys", .word = "toy", .device_type = kDLExtDev, .memory_align = 64, .tensor_align = 8,
  .archs = toy_archs, .units = toy_units, .preload = toy_preload, .run = toy_run};
"""  # noqa: E501


class ToyBackend(Backend):
    """One target, which runs everything."""

    name = device = "toy"
    title, word, example = "toys", "toy", 'toy = ["toy"]'
    has_entries, device_type, runtime = False, "kDLExtDev", RUNTIME
    late_stages = {"source": "source"}  # noqa: RUF012
    identity, roads = "source", ()

    def __enter__(self):
        """The device is there, and the family with it; ``ran`` has the tile IR of every call."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
        self.ran, self._driver = [], kind(self._run)
        os.environ["TOY_DRIVER"] = str(ctypes.cast(self._driver, ctypes.c_void_p).value)
        register(self)
        return self

    def __exit__(self, *_):
        forget(self)
        del os.environ["TOY_DRIVER"]

    def _run(self, code: bytes, params: int, dims: int) -> int:
        kernel = parse_kernel(code.decode())
        self.ran.append(code.decode())
        values = (ctypes.c_int64 * len(kernel.dims)).from_address(dims)
        sizes = dict(zip((dim.name for dim in kernel.dims), values, strict=True))
        run(kernel, [_tensor(param, params + 8 * n, sizes) for n, param in enumerate(kernel.params)], sizes)
        return 0

    def names(self):
        return ("toy",)

    def parse(self, name, features, place):
        return Target(name, "toy", "toy", name, (), 0, 0, False, "", "", (), (), (0, 0, 0))

    def may_run(self, code, device):
        return True

    def codes(self, spec, kernel, prefix, texts):
        own = {n: one for n, one in enumerate(kernel.variants) if family_of_variant(one) is self}
        codes = {n: c_string(one.image.code.decode()) for n, one in own.items()}
        return "".join(f"static char {prefix}_toy_{n}[] = {code};\n" for n, code in codes.items())

    def code(self, kernel, prefix, number):
        return f"{prefix}_toy_{number}"

    def passes(self, target):
        return (ExpandCopies(),)

    def lower_kernel(self, kernel, target):
        return LoweredKernel(kernel.name, (LoweredLaunch(kernel, ("1",), (1, 1, 1)),))

    def generator(self):
        return self

    def source(self, lowered, target, symbol_prefix):
        return format_kernel(lowered.launches[0].func)

    def compile_kernel(self, lowered, target, symbol_prefix):
        code = self.source(lowered, target, symbol_prefix).encode()
        launches = (LaunchCode(f"{symbol_prefix}_0", ("1",), (1, 1, 1)),)
        return Image(target.name, code, hashlib.sha256(code).hexdigest(), launches, needs=lowered.needs)

    def source_suffix(self, text):
        return ".tile"


def _tensor(param, address, sizes):
    shape = tuple(evaluate_size(text, sizes) for text in param.extents)
    dtype, memory = np.dtype(str(param.buffer.dtype)), ctypes.c_void_p.from_address(address).value
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(memory), dtype).reshape(shape)


class OnToy:
    """An array that says of itself that it lies on the toy."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self):
        return (DEVICE, 0)

    def __dlpack__(self):
        capsule, get = self.array.__dlpack__(), ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        ctypes.c_int32.from_address(get(capsule, b"dltensor") + 8).value = DEVICE
        return capsule
