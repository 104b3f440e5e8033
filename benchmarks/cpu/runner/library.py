"""The typed C functions of a built library: what an engine calls, without Python's work per call."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch


class Library:
    """The kernels of one library; ``metadata`` is the file that the build wrote beside it."""

    def __init__(self, path: Path, metadata: Path) -> None:
        described = json.loads(metadata.read_text())
        self._library = ctypes.CDLL(str(path))
        self._prefix = described["name"]
        self._kernels = {kernel["name"]: kernel for kernel in described["kernels"]}

    def call(self, name: str, tensors: Sequence[torch.Tensor], dims: Mapping[str, int]) -> Callable[[], None]:
        """A function without arguments that runs ``name`` once on tensors in the order of its signature."""
        function = getattr(self._library, f"{self._prefix}_{name}")
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        sizes = [ctypes.c_int64(dims[dim["name"]]) for dim in self._kernels[name]["dims"]]

        def run() -> None:
            status = function(None, *pointers, *sizes)
            if status != 0:
                raise RuntimeError(f"{name} returned status {status}")

        return run
