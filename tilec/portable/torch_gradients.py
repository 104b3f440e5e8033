"""The backward pass of operators of torch, and the refusal of those that have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from .loader import Kernel, Library
from .operands import GRADIENT, Operands


class Ungraded:
    """An operator that writes its arguments, where torch looks for gradients: it has none for such ones."""

    def __init__(self, namespace: str, name: str) -> None:
        self._namespace, self._name = namespace, name

    def __call__(self, *args: Any, **dims: Any) -> Any:
        """The operator, where no argument is to be differentiated."""
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            raise RuntimeError(
                f"{self._namespace}.{self._name} writes its arguments and cannot be differentiated; call it "
                "under torch.no_grad(), or with detached tensors"
            )
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(getattr(torch.ops, self._namespace), self._name)(*args, **dims)


class Written:
    """An operator that writes its arguments, where torch counts changes of tensors: for a backward pass that
    kept one it is an error. ``places`` are those of the written ones among the arguments."""

    def __init__(self, namespace: str, name: str, places: Sequence[int]) -> None:
        self._namespace, self._name, self._places = namespace, name, places

    def __call__(self, *args: Any, **dims: Any) -> Any:
        """The operator, its change counted."""
        torch.autograd.graph.increment_version([args[place] for place in self._places])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return getattr(getattr(torch.ops, self._namespace), self._name)(*args, **dims)


class Gradients:
    """The backward pass of an operator: a call of the kernel that the manifest names, or an error."""

    def __init__(self, kernel: Kernel, library: Library, namespace: str) -> None:
        self._name, self._namespace, self._library = kernel.name, namespace, library
        operands = Operands(kernel.metadata)
        self._inputs, self._outputs = operands.names, [out["name"] for out in operands.outputs]
        self._backward: Mapping[str, Any] | None = kernel.metadata.get("backward")

    @cached_property
    def _backward_operands(self) -> Operands:
        """What the backward kernel takes."""
        assert self._backward is not None
        return Operands(self._library.kernels[self._backward["kernel"]].metadata)

    def register(self, space: torch.library.Library) -> None:
        """Tells torch."""
        name = f"{self._namespace}::{self._name}"
        keep = None if self._backward is None else self._keep
        torch.library.register_autograd(name, self._run, setup_context=keep, lib=space)

    def _keep(self, ctx: Any, inputs: tuple[Any, ...], output: Any, keyword_only_inputs: Any = None) -> None:
        """What the backward kernel asks for: tensors as torch keeps them, other values as they are."""
        assert self._backward is not None
        outputs = output if isinstance(output, tuple) else (output,)
        there = {
            **dict(zip(self._inputs, inputs, strict=False)),
            **dict(zip(self._outputs, outputs, strict=True)),
        }
        wanted = [text for text in self._backward["arguments"].values() if not text.startswith(GRADIENT)]
        kept = {name: there[name] for name in dict.fromkeys(wanted)}
        ctx.names = [name for name, value in kept.items() if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(*(kept[name] for name in ctx.names))
        ctx.values = {name: value for name, value in kept.items() if name not in ctx.names}
        ctx.dims = dict(keyword_only_inputs or {})
        ctx.like = [(each.shape, each.dtype, each.device) for each in outputs]

    def _run(self, ctx: Any, *grads: Any) -> Any:
        """A gradient for each input, None for those that need none."""
        if self._backward is None:
            raise RuntimeError(
                f"{self._namespace}.{self._name} has no backward kernel: name one in its manifest "
                "([kernel.backward]), or call it under torch.no_grad()"
            )
        found = self._called(ctx, grads)
        missing = [
            name
            for name, needed in zip(self._inputs, ctx.needs_input_grad, strict=False)
            if needed and name not in found
        ]
        if missing:
            raise RuntimeError(
                f"{self._namespace}.{self._name}: its backward kernel {self._backward['kernel']} gives no "
                f"gradient of {', '.join(missing)}; detach it"
            )
        made = tuple(found.get(name) for name in self._inputs)
        return made if len(made) > 1 else made[0]

    def _called(self, ctx: Any, grads: tuple[Any, ...]) -> dict[str, Any]:
        """The gradients that the backward kernel gives, by the input that they belong to."""
        assert self._backward is not None
        there = {**ctx.values, **dict(zip(ctx.names, ctx.saved_tensors, strict=True))}
        for name, grad, (shape, dtype, device) in zip(self._outputs, grads, ctx.like, strict=True):
            given = torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad
            there[GRADIENT + name] = given.contiguous()
        operands, of = self._backward_operands, self._backward["gradients"]
        values = [there[self._backward["arguments"][name]] for name in operands.names]
        hidden = {name: ctx.dims[name] for name in operands.hidden if name in ctx.dims}
        result = getattr(getattr(torch.ops, self._namespace), self._backward["kernel"])(*values, **hidden)
        results = result if isinstance(result, tuple) else (result,)
        names = [out["name"] for out in operands.outputs]
        return {of[name]: each for name, each in zip(names, results, strict=True) if name in of}
