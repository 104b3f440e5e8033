"""The loop that runs the passes of a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from operator import is_
from typing import TYPE_CHECKING

from tilec.backends.base import backend_of
from tilec.errors import CompileError, InputError
from tilec.ir.nodes import Block, Kernel, Launch, Stmt
from tilec.ir.rules.verifier import verify
from tilec.lowering.analysis.places import explained
from tilec.settings import read_settings

if TYPE_CHECKING:
    from tilec.lowering.passes.base import Pass
    from tilec.targets import Target


def passes(target: Target) -> tuple[Pass, ...]:
    """The passes to the form that `to_tir` reads."""
    return backend_of(target).passes(target)


def stages(target: Target) -> tuple[str, ...]:
    """The names that ``until`` of `lower` takes, in order; "tile" is the kernel before all passes."""
    return ("tile", *(step.name for step in passes(target)))


def lower(kernel: Kernel, target: Target, *, until: str | None = None) -> Kernel:
    """``kernel`` after the passes of ``target``; ``until`` names the last one.

    Verified before the first and after the last one, between them too where TILEC_VERIFY is set, after those
    that changed something. InputError for an ``until`` that is no stage; UnsupportedError for what the target
    has nothing for; IRError when a pass breaks the rules of the IR."""
    if until is not None and until not in stages(target):
        raise InputError(
            f"lowering to {target.name} has no stage {until!r}",
            remedy=f"use one of {', '.join(stages(target))}",
        )
    verify(kernel)
    if until == "tile":
        return kernel
    refuse(kernel, target)
    with explained(kernel):
        return _with_room(kernel, target, until)


def _with_room(kernel: Kernel, target: Target, until: str | None) -> Kernel:
    """Lowered, again with fewer stages of rings as long as they leave too little for what later passes make.
    Raises what the first attempt did where that does not help."""
    first: CompileError | None = None
    for_rings: int | None = None
    while True:
        try:
            return _lowered(_with_rings(kernel, for_rings), target, until)
        except CompileError as error:
            first = first or error
            if error.for_rings is None or not 0 < error.for_rings < (for_rings or inf):
                raise first from None
            for_rings = error.for_rings


def _with_rings(kernel: Kernel, most: int | None) -> Kernel:
    """With rings of so many bytes at most in each launch."""
    if most is None:
        return kernel
    body = [replace(stmt, for_rings=most) if isinstance(stmt, Launch) else stmt for stmt in kernel.body]
    return replace(kernel, body=tuple(body))


def refuse(kernel: Kernel, target: Target) -> None:
    """Raises UnsupportedError for a statement of tile IR that no device of ``target`` carries out."""
    with explained(kernel):
        backend_of(target).refuse(kernel, target)


def _lowered(kernel: Kernel, target: Target, until: str | None) -> Kernel:
    verify_all = read_settings().verify
    for step in passes(target):
        before, kernel = kernel, step.apply(kernel, target)
        if verify_all and not _is_verified(before, kernel):
            verify(kernel)
        if step.name == until:
            break
    verify(kernel)
    return kernel


def _is_verified(before: Kernel, after: Kernel) -> bool:
    """Whether the verifier, which has seen one kernel, has nothing new to see in the next."""
    signature = after.params is before.params and after.dims is before.dims
    return signature and _same(before.body, after.body, _alike)


def _alike(before: Stmt, after: Stmt) -> bool:
    """Whether two statements are one, or launches of the same statements in the same grid."""
    if before is after:
        return True
    if not (isinstance(before, Launch) and isinstance(after, Launch)):
        return False
    fixed = ("grid", "threads", "block_vars", "thread_vars")
    return all(getattr(before, name) is getattr(after, name) for name in fixed) and _same(
        before.body, after.body, is_
    )


def _same(before: Block, after: Block, alike: Callable[[Stmt, Stmt], bool]) -> bool:
    return len(before) == len(after) and all(map(alike, before, after))
