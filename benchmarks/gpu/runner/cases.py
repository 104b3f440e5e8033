"""The cases of a bundle: calls of one variant each, and what they should give."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from tilec.portable.devices.cuda import CudaDevice
from tilec.portable.guarded import MARGIN, Guarded, OnDevice
from tilec.trials.comparison import Tolerance, compare

HERE = Path(__file__).resolve().parent
_POISON = 0xFF  # NaN in every float


class Case:
    """One case of cases.json."""

    def __init__(self, entry: dict[str, Any], files: Files) -> None:
        self.entry, self.files = entry, files
        self.kernel: str = entry["kernel"]
        self.target: str = entry["target"]
        self.name = f"{self.kernel} {entry['variant']} ({self.target}) {entry['dims']}"
        self.params: list[dict[str, Any]] = entry["params"]


class Call:
    """Fresh arguments of a case on a device: outputs are poison, and so is everything around tensors."""

    def __init__(self, case: Case, device: int = 0, margin: int = MARGIN) -> None:
        self._margin = margin
        self._case, self._files = case, case.files
        tensors = [param for param in case.params if "scalar" not in param]
        self.host = {param["name"]: self._filled(param) for param in tensors}
        self.placed = {
            param["name"]: OnDevice(self.host[param["name"]], param["dtype"], CudaDevice(device))
            for param in tensors
        }

    def _filled(self, param: dict[str, Any]) -> Guarded:
        dtype = _storage(param["dtype"])
        made = Guarded(tuple(param["shape"]), tuple(param["strides"]), dtype, _POISON, self._margin)
        if "input" in param:
            made.array[...] = self._files.array(param["input"], param["shape"], dtype)
        return made

    def run(self, library: Any, replaced: dict[str, Any] | None = None, **options: Any) -> None:
        """Launches the case's variant. ``replaced``: other arguments by name; ``options``: stream, ..."""
        scalars = {each["name"]: each["scalar"] for each in self._case.params if "scalar" in each}
        values = {**self.placed, **scalars, **(replaced or {})}
        free = {name: value for name, value in self._case.entry["dims"].items() if name not in values}
        options = {"variant": self._case.entry["variant"], **options}
        library.kernels[self._case.kernel](**values, **free, **options)

    def fetch(self) -> None:
        """Waits for the device and brings the tensors back."""
        for each in self.placed.values():
            each.fetch()

    def problems(self) -> tuple[float, list[str]]:
        """After `fetch`: the largest difference from what was expected, and what is wrong."""
        error, found = 0.0, []
        tolerance = Tolerance(**self._case.entry["tolerance"])
        for param in self._case.params:
            name = param["name"]
            if name not in self.host:
                continue
            got = self.host[name]
            if not got.intact():
                found.append(f"memory around {name} was written")
            if "output" in param:
                wanted = self._files.array(param["output"], param["shape"], np.dtype(param["wide"]))
                difference = compare(name, self._files.wide(got.array, param["dtype"]), wanted, tolerance)
                error = max(error, difference.error)
                found += [difference.text] if difference.text else []
            elif got.array.tobytes() != self._filled(param).array.tobytes():
                found.append(f"{name} is an input, but was written")
        return error, found


class Files:
    """What arrays.bin.gz holds, and the values of the 8-bit floats, for which NumPy has no types."""

    def __init__(self, data: np.ndarray, tables: dict[str, list[float]]) -> None:
        self._data, self._tables = data, tables

    def array(self, offset: int, shape: list[int], dtype: np.dtype) -> np.ndarray:
        """The array that starts at a byte."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.array(self._data[offset : offset + size]).view(dtype).reshape(shape)

    def wide(self, stored: np.ndarray, dtype: str) -> np.ndarray:
        """Values in a type of NumPy."""
        if dtype in self._tables:
            return np.array(self._tables[dtype])[stored]
        if dtype == "bfloat16":
            return (stored.astype(np.uint32) << 16).view(np.float32)
        return stored


def _storage(dtype: str) -> np.dtype:
    """NumPy's type, or the unsigned integer of that size."""
    if dtype == "bfloat16":
        return np.dtype(np.uint16)
    return np.dtype(np.uint8) if dtype.startswith("float8") else np.dtype(dtype)


def other_libraries() -> dict[str, Path]:
    """The folder's libraries that have rows but no cases, by the name that rows call them."""
    listed = json.loads((HERE / "cases.json").read_text())
    return {name: HERE / file for name, file in listed["others"].items()}


def read_cases() -> tuple[Path, list[Case]]:
    """The library, and its cases."""
    listed = json.loads((HERE / "cases.json").read_text())
    data = np.frombuffer(gzip.decompress((HERE / "arrays.bin.gz").read_bytes()), np.uint8)
    files = Files(data, listed["tables"])
    return HERE / listed["library"], [Case(entry, files) for entry in listed["cases"]]
