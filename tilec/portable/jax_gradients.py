"""The backward pass of functions of JAX: a call of the kernel that the manifest names, or an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from .loader import Kernel
from .operands import GRADIENT, Operands


class Gradients:
    """Of one kernel; ``functions`` has those of all kernels by name, when gradients are asked for."""

    def __init__(self, kernel: Kernel, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._kernel, self._functions, self._operands = kernel, functions, Operands(kernel.metadata)
        self._outputs = [out["name"] for out in self._operands.outputs]
        self._backward: Mapping[str, Any] = kernel.metadata.get("backward", {"kernel": None})

    def differentiable(self, run: Callable[..., Any], known: Mapping[str, Any]) -> Callable[..., Any]:
        """``run``, a function of the tensors, with its gradients. ``known``: dims and scalars."""

        def forward(*tensors: Any) -> Any:
            self._require([each.perturbed for each in tensors])
            given = tuple(each.value for each in tensors)
            results = run(*given)
            return results, (given, results)

        def backward(kept: Any, grads: Any) -> Any:
            tensors, results = kept
            return self._called(tensors, results, grads, known)

        found = jax.custom_vjp(run)
        found.defvjp(forward, backward, symbolic_zeros=True)
        return found

    def _require(self, perturbed: Sequence[bool]) -> None:
        """Raises TypeError where an input is to be differentiated by and no kernel says how."""
        is_there = self._backward["kernel"] in self._functions
        given = self._backward["gradients"].values() if is_there else ()
        wanted = [
            name for name, is_wanted in zip(self._operands.tensors, perturbed, strict=True) if is_wanted
        ]
        missing = ", ".join(name for name in wanted if name not in given)
        if missing:
            raise TypeError(
                f"{self._kernel.name} has no gradient of {missing}: name a backward kernel in its manifest "
                "([kernel.backward]), or stop_gradient it"
            )

    def _called(self, tensors: Any, results: Any, grads: Any, known: Mapping[str, Any]) -> tuple[Any, ...]:
        """For each tensor its gradient, None where there is none."""
        results, grads = ((each,) if len(self._outputs) == 1 else each for each in (results, grads))
        there = {
            **known,
            **dict(zip(self._operands.tensors, tensors, strict=True)),
            **dict(zip(self._outputs, results, strict=True)),
            **{GRADIENT + name: _dense(grad) for name, grad in zip(self._outputs, grads, strict=True)},
        }
        arguments, of = self._backward["arguments"], self._backward["gradients"]
        function: Any = self._functions[self._backward["kernel"]]
        dims = {name: known[name] for name in function.operands.hidden if name in known}
        made = function(**{name: there[text] for name, text in arguments.items()}, **dims)
        names = [out["name"] for out in function.operands.outputs]
        pairs = zip(names, made if isinstance(made, tuple) else (made,), strict=True)
        found = {of[name]: each for name, each in pairs if name in of}
        return tuple(found.get(name) for name in self._operands.tensors)


def _dense(grad: Any) -> Any:
    return jnp.zeros(grad.shape, grad.dtype) if isinstance(grad, SymbolicZero) else grad
