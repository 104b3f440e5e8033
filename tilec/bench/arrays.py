"""Arguments of a measured call, on the host and on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.ir.interp.values import numpy_dtype
from tilec.package.model import ParamRecord
from tilec.portable.guarded import Guarded, OnDevice, aligned, held_bytes, window
from tilec.trials.facts import KernelFacts

if TYPE_CHECKING:
    from tilec.portable.devices.base import Device

_MARGIN = 256  # around arrays on a device: keeps the alignment of the start


def argument_set(
    kernel: KernelFacts, dims: Mapping[str, int], values: Mapping[str, Any], device: Device
) -> dict[str, Any]:
    """One set of arguments where a device works: arrays of their own, and numbers."""
    if device.on_host:
        return _host_set(kernel, dims, values)
    return _device_set(kernel, dims, values, device)


def _host_set(kernel: KernelFacts, dims: Mapping[str, int], values: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays aligned as frameworks align theirs."""
    made: dict[str, Any] = {}
    for param in kernel.params:
        made[param.name] = _zeros(param, dims) if param.is_tensor else values[param.name]
        if param.is_tensor and param.name in values:
            made[param.name][...] = values[param.name]
    return made


def _zeros(param: ParamRecord, dims: Mapping[str, int]) -> np.ndarray:
    """Zeros with the strides that the dims ask for."""
    shape, strides, dtype = param.shape(dims), param.element_strides(dims), numpy_dtype(param.dtype)
    block = aligned(held_bytes(shape, strides, dtype))
    block[...] = 0
    return window(block, shape, [stride * dtype.itemsize for stride in strides], dtype)


def _device_set(
    kernel: KernelFacts, dims: Mapping[str, int], values: Mapping[str, Any], device: Device
) -> dict[str, Any]:
    """The same in the memory of a device."""
    made: dict[str, Any] = {}
    for param in kernel.params:
        if not param.is_tensor:
            made[param.name] = values[param.name]
            continue
        host = Guarded(
            param.shape(dims), param.element_strides(dims), numpy_dtype(param.dtype), 0, margin=_MARGIN
        )
        if param.name in values:
            host.array[...] = values[param.name]
        made[param.name] = OnDevice(host, param.dtype, device)
    return made
