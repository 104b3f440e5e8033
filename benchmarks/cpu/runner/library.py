"""The typed C functions of a built library: what an engine calls, without Python's work per call."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

_CPU = 1


class _Exec(ctypes.Structure):
    """``tilec_exec``, its device in two numbers."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_size_t),
        ("parallel_for", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
        ("variant", ctypes.c_void_p),
        ("num_workers", ctypes.c_uint32),
        ("reserved0", ctypes.c_uint32),
    )


class Library:
    """The kernels of one library; ``metadata`` is the file that the build wrote beside it."""

    def __init__(self, path: Path, metadata: Path) -> None:
        described = json.loads(metadata.read_text())
        self._library = ctypes.CDLL(str(path))
        self._prefix = described["name"]
        self._kernels = {kernel["name"]: kernel for kernel in described["kernels"]}

    def call(
        self, name: str, args: Sequence[torch.Tensor | int], dims: Mapping[str, int]
    ) -> Callable[[], None]:
        """A function without arguments that runs ``name`` once on tensors and integers in the order of its
        signature, with the workspace that it wants."""
        function = getattr(self._library, f"{self._prefix}_{name}")
        given = [_passed(arg) for arg in args]
        sizes = [ctypes.c_int64(dims[dim["name"]]) for dim in self._kernels[name]["dims"]]
        memory = self._workspace(name, sizes)
        run_with = _exec(memory)

        def run() -> None:
            status = function(ctypes.byref(run_with), *given, *sizes)
            if status != 0:
                raise RuntimeError(f"{name} returned status {status}")

        return run

    def _workspace(self, name: str, sizes: Sequence[ctypes.c_int64]) -> torch.Tensor:
        """Memory for a call with these dims; PyTorch aligns it to 64 bytes."""
        wanted = ctypes.c_size_t()
        ask = getattr(self._library, f"{self._prefix}_{name}_workspace")
        if ask(None, *sizes, ctypes.byref(wanted)) != 0:
            raise RuntimeError(f"the workspace of {name} is not known")
        return torch.empty(wanted.value, dtype=torch.uint8)


def _passed(arg: torch.Tensor | int) -> ctypes.c_void_p | ctypes.c_int32:
    return ctypes.c_int32(arg) if isinstance(arg, int) else ctypes.c_void_p(arg.data_ptr())


def _exec(memory: torch.Tensor) -> _Exec:
    """A call on the library's own threads; ``memory`` has to live as long as it."""
    made = _Exec(struct_size=ctypes.sizeof(_Exec), device_type=_CPU)
    made.workspace, made.workspace_size = memory.data_ptr() or None, memory.nbytes
    made.memory = memory
    return made
