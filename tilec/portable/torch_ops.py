"""Registers the kernels of a loaded library as operators of torch; imports torch and the loader alone.

    names = register(load("dist/llm"))       # torch.ops.llm.matmul(a, b) from now on
    torch.compile(model)                     # fake kernels give shapes, also symbolic ones

An operator takes the kernel's parameters without the outputs that Python callers may leave out, and returns
those; other written tensors are marked as mutated. Dims that no argument shows are keywords. Gradients come
from the kernel that the manifest names (`[kernel.backward]`); an operator without one raises in a backward
pass. Inside of torch.autocast floating tensors become of the types that the kernel reads. Like `loader`,
this file and those beside it are part of every Python package that a build writes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .loader import Kernel, Library, LibraryError, default_of, device_of_variant
from .operands import Operands
from .torch_autocast import Autocast
from .torch_gradients import Gradients, Ungraded, Written
from .torch_schema import schema

#: What the dispatcher of torch calls the devices of which it has tensors, there and in torch.autocast.
_DISPATCH_KEYS = {"cpu": ("CPU", "AutocastCPU"), "cuda": ("CUDA", "AutocastCUDA")}
#: By namespace the build that it is of, and the Library object, as long as which torch keeps the operators.
#: One table for all copies of this file in a process.
_KNOWN: dict[str, tuple[str, torch.library.Library]] = torch.__dict__.setdefault("_tilec_operators", {})
#: Held by who registers: of threads that ask at once the first does it.
_LOCK: threading.Lock = torch.__dict__.setdefault("_tilec_operators_lock", threading.Lock())


def register(library: Library, namespace: str | None = None) -> tuple[str, ...]:
    """Registers every kernel whose element types torch has, under ``namespace`` (default: the library's
    name), and returns their names. Once more for the same build, it returns the names.

    Raises LibraryError where another build has the namespace, RuntimeError (of torch) where an operator of
    such a name exists that is no kernel."""
    names = tuple(name for name, kernel in library.kernels.items() if _is_expressible(kernel))
    with _LOCK:
        _register(library, names, namespace or library.name)
    return names


def _register(library: Library, names: Sequence[str], where: str) -> None:
    """Under the lock."""
    known, _ = _KNOWN.get(where, ("", None))
    if known == library.build_id:
        return
    if known:
        raise LibraryError(
            f"torch.ops.{where} has the operators of build {known}, not of {library.build_id} "
            f"({library.path}); name another namespace"
        )
    space = torch.library.Library(where, "FRAGMENT")
    for name in names:
        _Operator(library.kernels[name], library).register(space, library)
    _KNOWN[where] = (library.build_id, space)


def _is_expressible(kernel: Kernel) -> bool:
    dtypes = [param["dtype"] for param in kernel.metadata["params"] if param["kind"] == "tensor"]
    return bool(dtypes) and all(isinstance(getattr(torch, dtype, None), torch.dtype) for dtype in dtypes)


class _Operator:
    """One kernel as an operator."""

    def __init__(self, kernel: Kernel, library: Library) -> None:
        self._kernel, self._operands = Kernel(library, kernel.metadata), Operands(kernel.metadata)
        # A graph that torch makes of a compiled model has its own memory, in which it finds nobody else's
        self._kernel.keeps_workspace = False

    def register(self, space: torch.library.Library, library: Library) -> None:
        """Defines the operator, its kernels for the devices that the library has code for, and its fake."""
        name = self._kernel.name
        space.define(f"{name}{schema(self._operands)}", tags=(torch.Tag.pt2_compliant_tag,))
        for device in _DISPATCH_KEYS.keys() & map(device_of_variant, self._kernel.metadata["variants"]):
            key, inside_autocast = _DISPATCH_KEYS[device]
            space.impl(name, self.run, key)
            space.impl(name, Autocast(space.ns, name, self._operands.inputs), inside_autocast)
        if self._operands.mutates:
            space.impl(name, Written(space.ns, name, self._operands.written), "ADInplaceOrView")
        torch.library.register_fake(f"{space.ns}::{name}", self.fake, lib=space)
        if self._operands.mutates or not self._operands.outputs:
            space.impl(name, Ungraded(space.ns, name), "Autograd")
        else:
            Gradients(self._kernel, library, space.ns).register(space)

    def run(self, *args: Any, **dims: Any) -> Any:
        """The kernel on real tensors."""
        return self._kernel(*args, **dims)

    def fake(self, *args: Any, **given: Any) -> Any:
        """Empty outputs of the right shapes, for shapes that may be symbols; None for none."""
        known = self._operands
        if not known.outputs:
            return None
        values = [*args, *(default_of(param) for param in known.inputs[len(args) :])]
        dims = known.dims(values, given)
        self._check_shapes(values, dims)
        like = next(value for value in args if isinstance(value, torch.Tensor))
        made = [
            like.new_empty(shape, dtype=getattr(torch, out["dtype"]))
            for out, shape in zip(known.outputs, known.shapes(known.outputs, dims), strict=True)
        ]
        return made[0] if len(made) == 1 else tuple(made)

    def _check_shapes(self, values: list[Any], dims: Mapping[str, Any]) -> None:
        """As the library does: every tensor has the axes and extents that follow from the dims. Of symbols
        this is what torch then knows of them."""
        inputs = self._operands.inputs
        for param, value, wanted in zip(inputs, values, self._operands.shapes(inputs, dims), strict=True):
            if param["kind"] != "tensor":
                continue
            shape = f"the shape {tuple(value.shape)}, expected {wanted}"
            what = f"{self._kernel.name}: {param['name']} has {shape}"
            torch._check(value.dim() == len(wanted), what.__str__)
            for found, extent in zip(value.shape, wanted, strict=True):
                torch._check(found == extent, what.__str__)
