"""The cases of a bundle: arguments on the GPU with guarded surroundings, and what they should become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
MARGIN = 4096  # bytes around every tensor
POISON = 0xFF  # NaN in every float


class Guarded:
    """A tensor on the GPU inside a larger block of poison."""

    def __init__(self, entry: dict[str, Any], device: torch.device) -> None:
        dtype = getattr(torch, entry["dtype"])
        shape, strides = tuple(entry["shape"]), tuple(entry["strides"])
        size = dtype.itemsize
        span = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        self._block = torch.full(
            (2 * MARGIN + max(span, 1) * size,), POISON, dtype=torch.uint8, device=device
        )
        self.tensor = torch.as_strided(self._block.view(dtype), shape, strides, MARGIN // size)
        self._inside = torch.zeros(self._block.numel() // size, dtype=torch.bool, device=device)
        if 0 not in shape:
            torch.as_strided(self._inside, shape, strides, MARGIN // size).fill_(True)
        self._size = size

    def intact(self) -> bool:
        """Whether everything around the tensor is still poison."""
        around = self._block.view(-1, self._size)[~self._inside]
        return bool((around == POISON).all())


class Case:
    """One case of cases.json."""

    def __init__(self, entry: dict[str, Any], arrays: np.ndarray, device: torch.device) -> None:
        self.entry, self._arrays, self._device = entry, arrays, device
        self.name = f"{entry['kernel']} {entry['variant']} ({entry['target']}) {entry['dims']}"

    def arguments(self) -> dict[str, Any]:
        """Fresh arguments by name: `Guarded` tensors and numbers."""
        return {param["name"]: self._argument(param) for param in self.entry["params"]}

    def _argument(self, param: dict[str, Any]) -> Any:
        if "scalar" in param:
            return param["scalar"]
        made = Guarded(param, self._device)
        if "input" in param:
            made.tensor.copy_(self._input(param))
        return made

    def call(self, kernel: Any, arguments: dict[str, Any], **options: Any) -> None:
        """Runs the case's variant on ``arguments``."""
        values = {name: getattr(value, "tensor", value) for name, value in arguments.items()}
        free = {name: value for name, value in self.entry["dims"].items() if name not in values}
        kernel(**values, **free, variant=self.entry["variant"], **options)

    def problems(self, arguments: dict[str, Any]) -> tuple[float, list[str]]:
        """The largest difference from what was expected, and what is wrong."""
        error, found = 0.0, []
        for param in self.entry["params"]:
            if "scalar" in param:
                continue
            given = arguments[param["name"]]
            if not given.intact():
                found.append(f"memory around {param['name']} was written")
            if "output" in param:
                distance, text = self._difference(param, given.tensor)
                error = max(error, distance)
                found += [text] if text else []
            elif not torch.equal(_bytes(given.tensor), _bytes(self._input(param).to(self._device))):
                found.append(f"{param['name']} is an input, but was written")
        return error, found

    def _input(self, param: dict[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, param["dtype"])
        raw = self._read(param["input"], int(np.prod(param["shape"])) * dtype.itemsize)
        return torch.from_numpy(raw).view(dtype).reshape(param["shape"])

    def _difference(self, param: dict[str, Any], got: torch.Tensor) -> tuple[float, str]:
        raw = self._read(param["output"], int(np.prod(param["shape"])) * 8)
        wanted = raw.view(np.float64).reshape(param["shape"])
        values = got.double().cpu().numpy()
        limits = self.entry["tolerance"]
        exact = not got.dtype.is_floating_point and limits["rtol"] == 0
        slack = limits["atol"] if got.dtype.is_floating_point or exact else 1.0
        with np.errstate(invalid="ignore"):
            distance = np.abs(values - wanted)
            near = distance <= slack + limits["rtol"] * np.abs(wanted)
        near |= (values == wanted) | (np.isnan(values) & np.isnan(wanted))
        wrong = int(near.size - near.sum())
        error = float(distance[np.isfinite(distance)].max(initial=0.0))
        if wrong <= limits["max_mismatch"] * near.size:
            return error, ""
        place = tuple(np.argwhere(~near)[0])
        where = ", ".join(map(str, place))
        text = f"{wrong} of {near.size} wrong, first [{where}]: {values[place]:.7g}, not {wanted[place]:.7g}"
        return error, f"{param['name']}: {text}"

    def _read(self, offset: int, size: int) -> np.ndarray:
        return np.array(self._arrays[offset : offset + size])


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def read_cases(device: torch.device) -> tuple[str, list[Case]]:
    """The name of the library, and its cases."""
    listed = json.loads((HERE / "cases.json").read_text())
    arrays = np.fromfile(HERE / "arrays.bin", np.uint8)
    return listed["library"], [Case(entry, arrays, device) for entry in listed["cases"]]
