"""Registers the kernels of a loaded library as operators of torch; imports torch and the loader alone.

    names = register(load("dist/llm"))       # torch.ops.llm.matmul(a, b) from now on
    torch.compile(model)                     # fake kernels give shapes, also symbolic ones

An operator takes the kernel's parameters without the outputs that Python callers may leave out, and returns
those; other written tensors are marked as mutated. Dims that no argument shows are keywords. There are no
gradients. Like `loader`, this file is part of every Python package that a build writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .loader import Kernel, Library, evaluate_size

_KINDS = {"bool": "bool", "float": "float", "int": "SymInt"}
#: torch keeps an operator as long as its Library object lives.
_KEEP: list[torch.library.Library] = []


def register(library: Library, namespace: str | None = None) -> tuple[str, ...]:
    """Registers every kernel whose element types torch has, under ``namespace`` (default: the library's
    name), and returns their names. Raises RuntimeError (of torch) where such an operator exists already."""
    space = torch.library.Library(namespace or library.name, "FRAGMENT")
    _KEEP.append(space)
    names = [name for name, kernel in library.kernels.items() if _is_expressible(kernel)]
    for name in names:
        _Operator(library.kernels[name]).register(space)
    return tuple(names)


def _is_expressible(kernel: Kernel) -> bool:
    dtypes = [param["dtype"] for param in kernel.metadata["params"] if param["kind"] == "tensor"]
    return bool(dtypes) and all(isinstance(getattr(torch, dtype, None), torch.dtype) for dtype in dtypes)


class _Operator:
    """One kernel as an operator."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        params = kernel.metadata["params"]
        self._inputs = [param for param in params if not param["output"]]
        self._outputs = [param for param in params if param["output"]]
        self._names = [param["name"] for param in self._inputs]
        self._places = {
            index: self._names.index(p["name"]) for index, p in enumerate(params) if not p["output"]
        }
        self._binds = {dim["name"]: self._bind(dim["binds"]) for dim in kernel.metadata["dims"]}

    def register(self, space: torch.library.Library) -> None:
        """Defines the operator, its kernels for the devices that the library has code for, and its fake."""
        name = self._kernel.name
        space.define(f"{name}{self.schema()}", tags=(torch.Tag.pt2_compliant_tag,))
        targets = {variant.target for variant in self._kernel.variants}
        on_gpu = {target for target in targets if target.startswith(("sm_", "compute_"))}
        for device, there in (("CPU", targets - on_gpu), ("CUDA", on_gpu)):
            if there:
                space.impl(name, self.run, device)
        torch.library.register_fake(f"{space.ns}::{name}", self.fake, lib=space)

    def schema(self) -> str:
        """The signature as torch writes it: "(Tensor a, float alpha=1.0, *, SymInt N) -> Tensor"."""
        params = [self._declare(number, param) for number, param in enumerate(self._inputs)]
        for number in range(len(params) - 1):
            if any("=" not in later for later in params[number + 1 :]):
                params[number] = params[number].partition("=")[0]
        hidden = [f"SymInt {name}" for name, bind in self._binds.items() if bind is None]
        arguments = ", ".join([*params, *(["*", *hidden] if hidden else [])])
        returned = ["Tensor"] * len(self._outputs)
        return f"({arguments}) -> {returned[0] if len(returned) == 1 else '(' + ', '.join(returned) + ')'}"

    def run(self, *args: Any, **dims: Any) -> Any:
        """The kernel on real tensors."""
        result = self._kernel(**dict(zip(self._names, args, strict=False)), **dims)
        return () if result is None else result

    def fake(self, *args: Any, **given: Any) -> Any:
        """Empty outputs of the right shapes, for shapes that may be symbols."""
        values = [*args, *(param["default"] for param in self._inputs[len(args) :])]
        dims = {
            name: given[name] if bind is None else self._read(bind, values)
            for name, bind in self._binds.items()
        }
        like = next(value for value in args if isinstance(value, torch.Tensor))
        made = [
            like.new_empty(
                [evaluate_size(text, dims) for text in out["extents"]], dtype=getattr(torch, out["dtype"])
            )
            for out in self._outputs
        ]
        return made[0] if len(made) == 1 else tuple(made)

    def _declare(self, number: int, param: Mapping[str, Any]) -> str:
        if param["kind"] == "tensor":
            return f"Tensor{'' if param['access'] == 'in' else f'(a{number}!)'} {param['name']}"
        kind = next((_KINDS[start] for start in _KINDS if param["dtype"].startswith(start)), "SymInt")
        kind = "float" if param["dtype"].startswith(("bfloat", "tfloat")) else kind
        default = "" if param["default"] is None else f"={param['default']}"
        return f"{kind} {param['name']}{default}"

    def _bind(self, binds: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """The first place of a dim that is an argument; None if the caller must give the dim."""
        return next(
            (each for each in binds if each["source"] == "constant" or each["param"] in self._places), None
        )

    def _read(self, bind: Mapping[str, Any], values: list[Any]) -> Any:
        if bind["source"] == "constant":
            return bind["add"]
        value = values[self._places[bind["param"]]]
        if bind["source"] == "scalar":
            return value
        value = value.shape[bind["axis"]] if bind["source"] == "shape" else value.stride(bind["axis"])
        return (value - bind["add"]) * bind["div"] // bind["mul"]
