"""Registers the kernels of a loaded library as operators of torch; imports torch and the loader alone.

    names = register(load("dist/llm"))       # torch.ops.llm.matmul(a, b) from now on
    torch.compile(model)                     # fake kernels give shapes, also symbolic ones

An operator takes the kernel's parameters without the outputs that Python callers may leave out, and returns
those; other written tensors are marked as mutated. Dims that no argument shows are keywords. Gradients come
from the kernel that the manifest names (`[kernel.backward]`); an operator without one raises in a backward
pass. Like `loader`, this file is part of every Python package that a build writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .loader import Kernel, Library, LibraryError, default_of, device_of_variant, evaluate_size

#: Before the name of an output in `[kernel.backward]`: the gradient that comes in for it.
_GRADIENT = "grad "
#: What the dispatcher of torch calls the devices of which it has tensors.
_DISPATCH_KEYS = {"cpu": "CPU", "cuda": "CUDA"}
_KINDS = {"bool": "bool", "float": "float", "int": "SymInt"}
#: By namespace the build that it is of, and the Library object, as long as which torch keeps the operators.
#: One table for all copies of this file in a process.
_KNOWN: dict[str, tuple[str, torch.library.Library]] = torch.__dict__.setdefault("_tilec_operators", {})


def register(library: Library, namespace: str | None = None) -> tuple[str, ...]:
    """Registers every kernel whose element types torch has, under ``namespace`` (default: the library's
    name), and returns their names. Once more for the same build, it returns the names.

    Raises LibraryError where another build has the namespace, RuntimeError (of torch) where an operator of
    such a name exists that is no kernel."""
    names = tuple(name for name, kernel in library.kernels.items() if _is_expressible(kernel))
    where = namespace or library.name
    known, _ = _KNOWN.get(where, ("", None))
    if known == library.build_id:
        return names
    if known:
        raise LibraryError(
            f"torch.ops.{where} has the operators of build {known}, not of {library.build_id} "
            f"({library.path}); name another namespace"
        )
    space = torch.library.Library(where, "FRAGMENT")
    for name in names:
        _Operator(library.kernels[name]).register(space, library)
    _KNOWN[where] = (library.build_id, space)
    return names


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
        self._mutates = any(param["access"] != "in" for param in self._inputs if param["kind"] == "tensor")

    def register(self, space: torch.library.Library, library: Library) -> None:
        """Defines the operator, its kernels for the devices that the library has code for, and its fake."""
        name = self._kernel.name
        space.define(f"{name}{self.schema()}", tags=(torch.Tag.pt2_compliant_tag,))
        for device in _DISPATCH_KEYS.keys() & map(device_of_variant, self._kernel.metadata["variants"]):
            space.impl(name, self.run, _DISPATCH_KEYS[device])
        torch.library.register_fake(f"{space.ns}::{name}", self.fake, lib=space)
        if self._mutates or not self._outputs:
            space.impl(name, _Ungraded(space.ns, name), "Autograd")
        else:
            _Gradients(self._kernel, library, space.ns).register(space)

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
        return self._kernel(**dict(zip(self._names, args, strict=False)), **dims)

    def fake(self, *args: Any, **given: Any) -> Any:
        """Empty outputs of the right shapes, for shapes that may be symbols; None for none."""
        if not self._outputs:
            return None
        values = [*args, *(default_of(param) for param in self._inputs[len(args) :])]
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
        has_word = not isinstance(param["default"], (str, type(None)))  # infinities and NaN have none here
        default = f"={param['default']}" if has_word else ""
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


class _Ungraded:
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


class _Gradients:
    """The backward pass of an operator: a call of the kernel that the manifest names, or an error."""

    def __init__(self, kernel: Kernel, library: Library, namespace: str) -> None:
        self._name, self._namespace, self._library = kernel.name, namespace, library
        params = kernel.metadata["params"]
        self._inputs = [param["name"] for param in params if not param["output"]]
        self._outputs = [param["name"] for param in params if param["output"]]
        self._backward: Mapping[str, Any] | None = kernel.metadata.get("backward")

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
        wanted = [text for text in self._backward["arguments"].values() if not text.startswith(_GRADIENT)]
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
            there[_GRADIENT + name] = given.contiguous()
        kernel = self._library.kernels[self._backward["kernel"]]
        params = kernel.metadata["params"]
        values = [there[self._backward["arguments"][p["name"]]] for p in params if not p["output"]]
        hidden = {name: ctx.dims[name] for name in _hidden_dims(kernel) if name in ctx.dims}
        result = getattr(getattr(torch.ops, self._namespace), kernel.name)(*values, **hidden)
        results = result if isinstance(result, tuple) else (result,)
        names = [param["name"] for param in params if param["output"]]
        of = self._backward["gradients"]
        return {of[name]: each for name, each in zip(names, results, strict=True) if name in of}


def _hidden_dims(kernel: Kernel) -> list[str]:
    return [name for name, bind in _Operator(kernel)._binds.items() if bind is None]
