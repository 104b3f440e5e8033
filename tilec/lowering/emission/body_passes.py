"""Passes of functions of TVM that rewrite statements and expressions by their kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: A class of nodes, or several, and what becomes of one: innermost first.
    Rewrite = tuple[Any, Callable[[Any], Any]]


def body_pass(name: str, rewrites: Callable[[tirx.PrimFunc], Sequence[Rewrite]]) -> Any:
    """The pass named "tilec.<name>". ``rewrites`` of a function are what it does to the body; none leave it
    alone."""
    import tvm_ffi

    def mapped(function: tirx.PrimFunc, _module: Any, _context: Any) -> tirx.PrimFunc:
        found = rewrites(function)
        body = tvm_ffi.structural_map(function.body, found) if found else function.body
        return function if body.same_as(function.body) else function.with_body(body)

    return tirx.transform.prim_func_pass(mapped, opt_level=0, name=f"tilec.{name}")
