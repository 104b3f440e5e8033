"""Devices by their names: what verifies, measures and tunes libraries asks of one, a file for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from tilec.portable.devices.base import Device
from tilec.portable.loader import device_texts

#: Kinds by name, and where their classes are.
_KINDS = {
    "cpu": "tilec.portable.devices.cpu:CpuDevice",
    "cuda": "tilec.portable.devices.cuda:CudaDevice",
    "hip": "tilec.portable.devices.hip:HipDevice",
    "metal": "tilec.portable.devices.metal:MetalDevice",
}


def open_device(text: str, where: str = "") -> Device:
    """``cpu``, ``cuda``, ``hip:1`` or ``metal``, there or not; with ``where``, "module:class", one of a kind
    of others. Raises ValueError for other texts."""
    kinds = _KINDS if not where else {**_KINDS, text.partition(":")[0]: where}
    kind, number = split_device(text, list(kinds))
    module, _, name = kinds[kind].partition(":")
    made: Device = getattr(import_module(module), name)(number)
    return made


def split_device(text: str, kinds: Sequence[str]) -> tuple[str, int]:
    """Kind and number of a device. ``kinds``: the names that there are, that of the CPU, which has no
    numbers, first. Raises ValueError."""
    kind, _, number = text.partition(":")
    if kind not in kinds or not (number or "0").isdecimal() or (kind == kinds[0] and kind != text):
        raise ValueError(f"{text!r} is no device; write {device_texts(kinds)}")
    return kind, int(number or 0)


def where_is(device: Device) -> str:
    """Where the class of a device is, for `open_device` in another process."""
    return f"{type(device).__module__}:{type(device).__qualname__}"
