"""The kernels of a loaded library as functions of JAX; needs jax, jax_tvm_ffi, tvm_ffi and the loader alone.

    llm = functions(load("dist/llm"))
    jax.jit(lambda a, b: llm["matmul"](a, b) + 1)     # no Python runs when the compiled function does

A function takes the kernel's inputs, arrays or what jit traces, and returns its outputs; scalars are Python
numbers that the trace keeps, dims that no input shows are keywords. XLA calls the library by its door for
tvm-ffi, on CPUs and NVIDIA GPUs: the arrays say where. Gradients come from the kernel that the manifest names
(`[kernel.backward]`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import tvm_ffi

from .jax_gradients import Gradients
from .jax_targets import DEVICES, Target, attribute, struct
from .loader import DTYPES, Kernel, Library, default_of, device_of_variant
from .operands import Operands


def functions(library: Library) -> dict[str, Function]:
    """A function for every kernel that has code for CPUs or NVIDIA GPUs and element types of JAX, writes none
    of its inputs, and has its tensors side by side, its outputs too: scalars stand anywhere. Other kernels
    are left out."""
    module = tvm_ffi.load_module(str(library.path))
    made: dict[str, Function] = {}
    for name, kernel in library.kernels.items():
        if _is_expressible(kernel):
            made[name] = Function(library, kernel, module, made)
    return made


def _is_expressible(kernel: Kernel) -> bool:
    known, params = Operands(kernel.metadata), kernel.metadata["params"]
    order = _order(params)
    return (
        all(_has_type(param["dtype"]) for param in params if param["kind"] == "tensor")
        and not DEVICES.isdisjoint(map(device_of_variant, kernel.metadata["variants"]))
        and bool(known.outputs)
        and not known.mutates
        and len(set(order)) == len(order)
    )


def _has_type(dtype: str) -> bool:
    return DTYPES[dtype][1] >= 8 and hasattr(jnp, dtype if dtype != "bool" else "bool_")


def _order(params: Sequence[Mapping[str, Any]]) -> list[str]:
    """The parameters as jax_tvm_ffi is told them: all inputs are one word, all outputs another."""
    words = [
        f"attrs.{param['name']}" if param["kind"] != "tensor" else "rets" if param["output"] else "args"
        for param in params
    ]
    return [word for at, word in enumerate(words) if at == 0 or words[at - 1] != word]


class Function:
    """One kernel."""

    def __init__(self, library: Library, kernel: Kernel, module: Any, others: dict[str, Function]) -> None:
        self._name = kernel.name
        #: What it takes and returns.
        self.operands = Operands(kernel.metadata)
        self._gradients = Gradients(kernel, others)
        self.__doc__ = kernel.doc
        entry = module[f"{library.name}_{kernel.name}"]
        self._target = Target(library, kernel, entry, _order(kernel.metadata["params"]))
        #: What XLA calls it.
        self.target = self._target.name

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The outputs: one, or a tuple. TypeError for arguments that do not fit."""
        values = self._bound(args, named)
        self._check_forms(values)
        dims = self.operands.dims([*values.values()], named)
        self._check(values, dims)
        tensors = self.operands.tensors
        scalars = {name: value for name, value in values.items() if name not in tensors}
        call = self._gradients.differentiable(self._run(dims, scalars), {**dims, **scalars})
        return call(*(values[name] for name in tensors))

    def _bound(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Every input with its value."""
        known = self.operands
        wrong = [name for name in named if name not in (*known.names[len(args) :], *known.hidden)]
        if len(args) > len(known.names) or wrong:
            raise TypeError(f"{self._name} takes {', '.join((*known.names, *known.hidden))}")
        values = {
            **{param["name"]: default_of(param) for param in known.inputs},
            **dict(zip(known.names, args, strict=False)),
            **{name: value for name, value in named.items() if name in known.names},
        }
        missing = [name for name, value in values.items() if value is None]
        missing += [name for name in known.hidden if name not in named]
        if missing:
            is_or_are = "is" if len(missing) == 1 else "are"
            raise TypeError(f"{self._name}: {', '.join(missing)} {is_or_are} not given")
        return values

    def _check_forms(self, values: Mapping[str, Any]) -> None:
        """Numbers that are known and arrays with as many axes as the kernel has."""
        for param in self.operands.inputs:
            name, value = param["name"], values[param["name"]]
            if param["kind"] != "tensor":
                self._check_number(name, value)
                continue
            axes, wanted = getattr(value, "ndim", None), param["extents"]
            if axes is None:
                raise TypeError(f"{self._name}: {name} is {type(value).__name__}, expected an array")
            if axes != len(wanted):
                raise TypeError(f"{self._name}: {name} has {axes} axes, expected [{', '.join(wanted)}]")

    def _check_number(self, name: str, value: Any) -> None:
        if isinstance(value, jax.core.Tracer):
            raise TypeError(
                f"{self._name}: {name} is traced, and scalars are part of what is compiled: name it in "
                "static_argnames of jax.jit, or give a Python number"
            )
        if not isinstance(value, (int, float)) and getattr(value, "ndim", None) != 0:
            raise TypeError(f"{self._name}: {name} is {type(value).__name__}, expected a number")

    def _check(self, values: Mapping[str, Any], dims: Mapping[str, Any]) -> None:
        """Types and shapes, before anything is compiled."""
        inputs = self.operands.inputs
        for param, wanted in zip(inputs, self.operands.shapes(inputs, dims), strict=True):
            value = values[param["name"]]
            if param["kind"] != "tensor":
                continue
            if (str(value.dtype), list(value.shape)) != (param["dtype"], wanted):
                found = f"{value.dtype}{list(value.shape)}"
                raise TypeError(
                    f"{self._name}: {param['name']} is {found}, expected {param['dtype']}{wanted}"
                )

    def _run(self, dims: Mapping[str, Any], scalars: Mapping[str, Any]) -> Callable[..., Any]:
        """The call as a function of the tensors alone, which XLA sees."""
        known = self.operands
        shapes = known.shapes(known.outputs, dims)
        made = [struct(shape, out["dtype"]) for out, shape in zip(known.outputs, shapes, strict=True)]
        attributes = tuple(attribute(name, value) for name, value in scalars.items())

        def run(*tensors: Any) -> Any:
            results = self._target.call(made, attributes, dims)(*tensors)
            return results[0] if len(made) == 1 else results

        return run
