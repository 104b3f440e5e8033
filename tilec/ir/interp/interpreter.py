"""The reference meaning of tile IR: runs a kernel on NumPy arrays, without any backend.

Blocks run one after the other, statements in program order; a Parallel runs as NumPy operations over its
whole iteration grid. Reads outside a buffer give 0, writes outside are dropped, contents that nobody wrote
are NaN (or a byte pattern), max and min ignore NaN, sums and products of floats are formed in float64 and
rounded once per statement. What the language leaves undefined and can be seen raises `EvalError`: integer
division by zero, an assumption that is false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilec.errors import InputError
from tilec.ir import nodes as ir
from tilec.ir.analysis.numbers.widen import widened
from tilec.ir.analysis.threads.in_order import in_order
from tilec.ir.interp.machine import Machine
from tilec.ir.interp.storage import Storage
from tilec.ir.interp.values import cast, numpy_dtype
from tilec.ir.num_sms import INTERPRETED, NUM_SMS
from tilec.spelling import counted


def run(
    kernel: ir.Kernel,
    args: Sequence[Any],
    dims: Mapping[str, int],
    *,
    reverse: bool = False,
    spoils: bool = False,
) -> bool:
    """Runs ``kernel`` in place. Returns whether it has sums that overflow in one order of their terms and not
    in another, or not in the same way; here they are what they are in float64, rounded once.

    Args:
        kernel: a verified kernel.
        args: per parameter, in kernel order, an array of its shape and dtype (strides are the array's own;
            bfloat16 and float8 as ml_dtypes) or a number.
        dims: the value of every dimension by name; pinned ones may be left out, and the number of
            multiprocessors.
        reverse: run the blocks of each launch in reverse order; where that changes results, blocks race.
        spoils: make NaN of the sums that the order decides; where that changes results, they depend on it.

    Raises:
        InputError: arguments that the kernel does not take.
        EvalError: the kernel does what the language leaves undefined.
        UnsupportedError: a node or function without a meaning here.
    """
    kernel = widened(in_order(kernel))
    machine = Machine(reverse, spoils)
    with np.errstate(all="ignore"):
        _bind_dims(machine, kernel, dims)
        _bind_params(machine, kernel, args)
        machine.block(kernel.body, True)
    return machine.sums.are_doubtful


def _bind_dims(machine: Machine, kernel: ir.Kernel, dims: Mapping[str, int]) -> None:
    for dim in kernel.dims:
        value = dims.get(dim.name, INTERPRETED if dim.name == NUM_SMS else dim.guard.eq)
        if value is None:
            raise InputError(f"kernel {kernel.name}: dimension {dim.name} has no value")
        if not dim.guard.admits(value):
            raise InputError(f"kernel {kernel.name}: {dim.name} = {value} breaks the guard {dim.guard}")
        if dim.var is not None:
            machine.bind(dim.var, numpy_dtype(str(dim.var.ty.dtype)).type(value))


def _bind_params(machine: Machine, kernel: ir.Kernel, args: Sequence[Any]) -> None:
    if len(args) != len(kernel.params):
        raise InputError(
            f"kernel {kernel.name} takes {counted(len(kernel.params), 'argument')}, got {len(args)}"
        )
    given = list(zip(kernel.params, args, strict=True))
    for param, value in given:
        if isinstance(param, ir.ScalarParam):
            machine.bind(param.var, cast(value, numpy_dtype(str(param.var.ty.dtype))))
    for param, value in given:
        if isinstance(param, ir.TensorParam):
            _bind_tensor(machine, param, value)


def _bind_tensor(machine: Machine, param: ir.TensorParam, array: Any) -> None:
    dtype = numpy_dtype(str(param.buffer.dtype))
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        found = getattr(array, "dtype", array)
        raise InputError(f"parameter {param.name} takes an array of {dtype}, got {found}")
    shape = tuple(machine.integer(extent) for extent in param.buffer.shape)
    if array.shape != shape:
        raise InputError(f"parameter {param.name} has shape {shape}, got {array.shape}")
    machine.place(param.buffer, Storage(array))
