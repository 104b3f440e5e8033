"""Metal source on this machine: compiled (`metal_compiled`), and run on arrays as the runtime runs it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from metal_compiled import compiled

from tilec.backends.base import backend_of
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Kernel, TensorParam
from tilec.ir.num_sms import NUM_SMS
from tilec.sizes import evaluate_size
from tilec.targets import parse_target

TARGET = parse_target("metal3")
#: Blocks at once of a persistent launch, and cores of the GPU.
CORES = 2


class OnMetal:
    """A kernel whose Metal source runs here; called as `tilec.emulate.EmulatedKernel` is."""

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        self.kernel = kernel
        backend = backend_of(TARGET)
        lowered = backend.lower_kernel(lower(kernel, TARGET), TARGET)
        self.image = backend.generator().compile_kernel(lowered, TARGET, "k")
        self.source = self.image.code.decode().rstrip("\0")
        self._library = compiled(self.source, folder)

    def __call__(self, args: Sequence[Any], dims: Mapping[str, int]) -> None:
        """Runs the kernel in place."""
        known = {dim.name: self._dim(dim, dims) for dim in self.kernel.dims}
        pairs = list(zip(self.kernel.params, args, strict=True))
        tensors = [arg for param, arg in pairs if isinstance(param, TensorParam)]
        numbers = [(param, arg) for param, arg in pairs if not isinstance(param, TensorParam)]
        slices = [
            np.zeros(max(1, evaluate_size(each.bytes, known)), np.uint8) for each in self.image.workspace
        ]
        given = np.array([*(_eight_bytes(param, arg) for param, arg in numbers), *known.values()], np.int64)
        buffers = (ctypes.c_void_p * (len(tensors) + len(slices) + 1))(
            *(each.ctypes.data for each in [*tensors, *slices, given])
        )
        values = {**known, **{param.name: arg for param, arg in numbers}}
        for launch in self.image.launches:
            shape = self._shape(launch, values)
            if 0 not in shape:
                failed = getattr(self._library, f"run_{launch.symbol}")(buffers, (ctypes.c_uint * 6)(*shape))
                assert failed == 0, "threads wait for ever"

    def blocks(self, dims: Mapping[str, int]) -> int:
        """Blocks of all launches."""
        known = {dim.name: self._dim(dim, dims) for dim in self.kernel.dims}
        values = {
            **{param.name: 1 for param in self.kernel.params if not isinstance(param, TensorParam)},
            **known,
        }
        return sum(int(np.prod(self._shape(launch, values)[:3])) for launch in self.image.launches)

    @staticmethod
    def _dim(dim: Any, dims: Mapping[str, int]) -> int:
        found = dims.get(dim.name, CORES if dim.name == NUM_SMS else dim.guard.eq)
        assert found is not None, dim.name
        return int(found)

    @staticmethod
    def _shape(launch: Any, values: Mapping[str, int]) -> list[int]:
        grid = [evaluate_size(text, values) for text in launch.grid] + [1] * (3 - len(launch.grid))
        if launch.gpu.blocks_per_unit:
            grid[0] = min(grid[0], launch.gpu.blocks_per_unit * CORES)
        return [*grid, *launch.threads]


def _eight_bytes(param: Any, value: Any) -> int:
    """A number as the runtime passes it."""
    if "float" in str(param.var.ty.dtype):
        return int(np.float32(value).view(np.int32))
    return int(value)
