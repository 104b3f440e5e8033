"""None in place of a tensor that the kernel never touches: a stand-in of the right shape without memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.inprocess.measuring.inputs import with_dims
from tilec.inprocess.params import KernelParam

#: An address that no tensor has and that every alignment divides; nobody reads it.
_NOWHERE = 1 << 16


@dataclass(frozen=True)
class StandIn:
    """What the loader takes for a torch tensor."""

    shape: tuple[int, ...]
    dtype: str
    device: Any

    def data_ptr(self) -> int:
        """An address that is not NULL."""
        return _NOWHERE

    def stride(self) -> tuple[int, ...]:
        """Row-major."""
        strides, step = [], 1
        for extent in reversed(self.shape):
            strides.append(step)
            step *= max(extent, 1)
        return tuple(reversed(strides))


@dataclass(frozen=True)
class _Device:
    """As torch names devices."""

    type: str
    index: int


def untouched(params: Sequence[KernelParam], text: str) -> frozenset[str]:
    """Tensors that tile IR names where it declares them, and nowhere else."""
    tensors = [param.name for param in params if not param.is_scalar()]
    return frozenset(name for name in tensors if len(re.findall(rf"\b{_in_text(name, text)}\b", text)) == 1)


def _in_text(name: str, text: str) -> str:
    """The name of a parameter in tile IR: what lies at an address may have one of its own."""
    own = re.search(rf'^(\w+) = tensor\(.*\bname="{re.escape(name)}"\)', text, re.MULTILINE)
    return own[1] if own else re.escape(name)


def filled_in(
    values: Mapping[str, Any], params: Sequence[KernelParam], untouched: frozenset[str], kind: str
) -> dict[str, Any]:
    """``values`` by name, with stand-ins for None where the kernel does not touch the tensor. Raises
    TypeError for any other None, and where a runtime extent is in no other argument."""
    absent = [param for param in params if values.get(param.name, param) is None and not param.is_scalar()]
    if not absent:
        return dict(values)
    for param in absent:
        if param.name not in untouched:
            raise TypeError(f"{param.name} is None, and the kernel reads or writes it: pass a tensor")
    dims, device = _dims(values, params), _device(values, kind)
    made = dict(values)
    for param in with_dims(absent, dims):
        unknown = [extent for extent in param.shape if not isinstance(extent, int)]
        if unknown:
            raise TypeError(f"{param.name} is None, and no other argument says what {unknown[0]} is")
        made[param.name] = StandIn(tuple(map(int, param.shape)), str(param.dtype), device)
    return made


def _dims(values: Mapping[str, Any], params: Sequence[KernelParam]) -> dict[str, int]:
    """The runtime extents that stand alone in some other tensor's shape, by name."""
    found: dict[str, int] = {}
    for param in params:
        shape = getattr(values.get(param.name), "shape", ())
        for extent, size in zip(param.shape, shape, strict=False):
            if isinstance(extent, str) and extent.isidentifier():
                found.setdefault(extent, int(size))
    return found


def _device(values: Mapping[str, Any], kind: str) -> Any:
    """Where the other tensors lie: the first device of a kind."""
    devices = (getattr(value, "device", None) for value in values.values())
    return next((each for each in devices if getattr(each, "type", "") == kind), _Device(kind, 0))
