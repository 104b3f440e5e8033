"""Matrices in registers that loops and copies tie together: which ones lie alike, and what of the statements
that name them needs them as they lie."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from tilec.ir.nodes import Alloc, Copy, Fill, Gemm, Launch, Parallel, Reduce, Stmt, Store, walk
from tilec.ir.traits import buffers, written

if TYPE_CHECKING:
    from tvm.ir import Var

#: Statements whose axes can trade places.
_TURNED = (Alloc, Fill, Copy, Parallel, Gemm, Reduce)


class Families:
    """The matrices in registers of a launch."""

    def __init__(self, launch: Launch) -> None:
        self._users = list(_users(launch))
        self._of: dict[Var, frozenset[Var]] = {}
        for stmt, names in self._users:
            if isinstance(stmt, (Copy, Parallel, Reduce)):
                self._join(frozenset(filter(_is_matrix, names)))

    def of(self, fragment: Var) -> frozenset[Var]:
        """The fragments that lie as ``fragment`` does, and itself."""
        return self._of.get(fragment, frozenset((fragment,)))

    def obstacle(self, family: Set[Var]) -> str | None:
        """What keeps the fragments of a family from holding their matrices transposed."""
        for stmt, names in self._users:
            reason = _obstacle(stmt, names & family) if names & family else None
            if reason is not None:
                return reason
        return None

    def _join(self, names: frozenset[Var]) -> None:
        joined = names.union(*(self.of(name) for name in names))
        self._of.update(dict.fromkeys(joined, joined))


def _users(launch: Launch) -> Iterator[tuple[Stmt, set[Var]]]:
    """Statements outside of loops over elements, each with all that it names, in such a loop's body, too."""
    inside = {part for stmt in walk(launch.body) if isinstance(stmt, Parallel) for part in walk(stmt.body)}
    for stmt in walk(launch.body):
        if stmt not in inside:
            yield stmt, {name for part in _parts(stmt) for name in _named(part)}


def _parts(stmt: Stmt) -> Iterator[Stmt]:
    return walk((stmt,)) if isinstance(stmt, Parallel) else iter((stmt,))


def _named(stmt: Stmt) -> Iterator[Var]:
    return iter((stmt.buffer,)) if isinstance(stmt, Alloc) else buffers(stmt)


def _is_matrix(buffer: Var) -> bool:
    return buffer.scope() == "local.fragment" and len(buffer.shape) == len(("rows", "columns"))


def _obstacle(stmt: Stmt, family: Set[Var]) -> str | None:
    name = ", ".join(sorted(str(buffer.name) for buffer in family))
    if not isinstance(stmt, _TURNED):
        return f"{type(stmt).__name__} takes {name} as it lies"
    if isinstance(stmt, Alloc) and stmt.asked is not None:
        return f"T.annotate_layout says where {name} lies"
    if isinstance(stmt, (Copy, Parallel)) and stmt.hints.loop_layout is not None:
        return f"loop_layout says which thread has what of {name}"
    if isinstance(stmt, Reduce) and len(stmt.src.extent) != len(("rows", "columns")):
        return f"{name} is a reduction of more axes"
    others = (part for part in _parts(stmt) if not isinstance(part, (*_TURNED, Store)))
    odd = next((part for part in others if family & set(written(part))), None)
    return None if odd is None else f"{type(odd).__name__} changes {name}"
