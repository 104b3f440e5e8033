"""A jitted function with its compile-time arguments: what ``f.partial(...)`` gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilec.inprocess.compilation.request import BoundKernel
from tilec.inprocess.params import KernelParam
from tilec.ir.nodes import Alloc, TensorParam
from tilec.language.values.scalars import dtype as as_dtype
from tilec.targets import Target


@dataclass(frozen=True)
class JITFunc:
    """A jitted function with its compile-time arguments. ``const_args`` is the key of its kernel;
    ``arg_parser(*args, **kwargs)`` gives the key of a call and the arguments that the kernel takes."""

    target: Target
    target_host: Any
    const_args: tuple[Any, ...]
    arg_parser: Callable[..., Any]
    prim_func: BoundKernel

    @property
    def pass_configs(self) -> dict[str, Any]:
        """Pass options: those of the kernel's code under those of the decorator."""
        return self.prim_func.request.made.pass_configs

    @property
    def compile_flags(self) -> list[str]:
        """Flags for the device compiler, the kernel's own first."""
        return list(self.prim_func.request.made.compile_flags)

    @cached_property
    def outs(self) -> list[KernelParam]:
        """The tensors that calls return, in order."""
        made = self.prim_func.request.made
        outputs = {param.name: param for param in made.kernel.params if isinstance(param, TensorParam)}
        return [_about(outputs[name].buffer, name) for name in made.returned]

    @cached_property
    def global_allocs(self) -> list[KernelParam]:
        """The tensors of T.alloc_global."""
        body = self.prim_func.request.made.kernel.body
        return [_about(stmt.buffer, str(stmt.buffer.name)) for stmt in body if isinstance(stmt, Alloc)]


def _about(buffer: Any, name: str) -> KernelParam:
    from tilec.ir.exprs import int_value

    sizes = [int_value(extent) for extent in buffer.shape]
    shape = [str(extent) if size is None else size for extent, size in zip(buffer.shape, sizes, strict=True)]
    return KernelParam(as_dtype(str(buffer.dtype)), shape, name)
