"""The device of `toy_backend`: one toy, whose memory is the host's and whose driver interprets tile IR.
Importing this tells the runtime (by the address of the driver in TOY_DRIVER) and the loader of it."""

from __future__ import annotations

import ctypes
import os

import numpy as np

from tilec.ir.interp.interpreter import run
from tilec.ir.text.parser import parse_kernel
from tilec.portable.devices.base import Device
from tilec.portable.devices.cpu import HostMemory
from tilec.portable.loader import Kind, LaunchError, add_kind
from tilec.sizes import evaluate_size

NUMBER = 12  # kDLExtDev
RAN = []  # the tile IR of every call


class ToyDevice(Device):
    """Calls return when their work is done."""

    type, dlpack = "toy", NUMBER

    def facts(self):
        return {"name": "toy", "driver": None}

    def memory(self, size):
        if self.index:
            raise LaunchError(5, "TILEC_ERR_DEVICE", f"there is one toy, not number {self.index}")
        return HostMemory(size)

    shared_memory = memory

    def synchronize(self):
        pass

    def enter(self, threads):
        pass


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
def _driver(code, params, dims):
    kernel = parse_kernel(code.decode())
    RAN.append(code.decode())
    values = (ctypes.c_int64 * len(kernel.dims)).from_address(dims)
    sizes = dict(zip((dim.name for dim in kernel.dims), values, strict=True))
    run(kernel, [_tensor(param, params + 8 * n, sizes) for n, param in enumerate(kernel.params)], sizes)
    return 0


def _tensor(param, address, sizes):
    shape = tuple(evaluate_size(text, sizes) for text in param.extents)
    dtype, memory = np.dtype(str(param.buffer.dtype)), ctypes.c_void_p.from_address(address).value
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(memory), dtype).reshape(shape)


os.environ["TOY_DRIVER"] = str(ctypes.cast(_driver, ctypes.c_void_p).value)
add_kind(Kind("toy", NUMBER))
