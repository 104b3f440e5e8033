"""Kernels of jitted functions whose compile-time arguments are bound: of what ``f.partial(...)`` gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.inprocess import jitted
from tilec.inprocess.compilation.request import compile_request
from tilec.inprocess.functions import JITFunc

if TYPE_CHECKING:
    from tilec.inprocess.kernel import JITKernel


def compile(func: JITFunc, verbose: bool | None = None) -> JITKernel:
    """The kernel of what ``f.partial(...)`` gave."""
    if not isinstance(func, JITFunc):
        return jitted.compile(func, verbose=verbose)
    if verbose is None:
        return compile_request(func.prim_func.request)
    return jitted.compile(func.prim_func, verbose=verbose)
