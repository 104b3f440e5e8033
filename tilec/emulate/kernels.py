"""A tile kernel on an emulated device: lowered once, called on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulate.launch import Emulator, Tensor
from tilec.errors import InputError
from tilec.ir.nodes import Kernel, ScalarParam, TensorParam
from tilec.ir.num_sms import NUM_SMS

if TYPE_CHECKING:
    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target


class EmulatedKernel:
    """``kernel`` lowered for a ``target`` of a family that is emulated; ``lowered`` in place of what lowering
    makes of it."""

    def __init__(
        self,
        kernel: Kernel,
        target: Target,
        *,
        lowered: LoweredKernel | None = None,
        multiprocessors: int = 2,
    ) -> None:
        from tilec.backends.cuda.emit.entry import lower_kernel
        from tilec.backends.pipeline import lower

        self.kernel = kernel
        made = lowered if lowered is not None else lower_kernel(lower(kernel, target), target, marks=True)
        self._emulator = Emulator(made, target, multiprocessors=multiprocessors)

    def __call__(self, args: Sequence[Any], dims: Mapping[str, int]) -> None:
        """Runs the kernel in place.

        Args:
            args: per parameter, in kernel order, an array (any strides; bfloat16 and 8-bit floats as
                ml_dtypes) or a number.
            dims: the value of every dim by name; pinned ones may be left out, and the multiprocessors,
                which are the emulator's.

        Raises:
            InputError: a dim has no value, or one that its guard shuts out.
            EmulationError: the code does what a device leaves undefined.
            UnsupportedError: an instruction that the emulator does not know.
        """
        values = {dim.name: self._dim(dim.name, dim.guard, dims) for dim in self.kernel.dims}
        tensors, scalars = [], {}
        for param, arg in zip(self.kernel.params, args, strict=True):
            if isinstance(param, TensorParam):
                tensors.append(Tensor(arg, param.name, is_output=param.access == "out"))
            else:
                scalars[param.name] = _travels(param, arg)
        self._emulator.run(tensors, scalars, values)

    def blocks(self, dims: Mapping[str, int]) -> int:
        """Thread blocks, or tiles of persistent ones, of all launches; scalar parameters count as 1."""
        values = {dim.name: self._dim(dim.name, dim.guard, dims) for dim in self.kernel.dims}
        scalars = {param.name: 1 for param in self.kernel.params if isinstance(param, ScalarParam)}
        return self._emulator.blocks({**values, **scalars})

    def _dim(self, name: str, guard: Any, dims: Mapping[str, int]) -> int:
        value = dims.get(name, self._emulator.multiprocessors if name == NUM_SMS else guard.eq)
        if value is None:
            raise InputError(f"kernel {self.kernel.name}: dimension {name} has no value")
        if not guard.admits(value):
            raise InputError(f"kernel {self.kernel.name}: {name} = {value} breaks the guard {guard}")
        return int(value)


def _travels(param: ScalarParam, value: Any) -> Any:
    """A scalar as it reaches the kernel (`tilec.codegen.image`)."""
    dtype = str(param.var.ty.dtype)
    if dtype == "float64":
        return np.float64(value)
    return np.float32(value) if "float" in dtype else int(value)
