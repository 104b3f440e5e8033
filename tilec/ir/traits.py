"""What statements read, write, name and define, and statements over other parts: for every class of every
dialect, from the types of its fields (`tilec.ir.stmt`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tvm.ir import Expr, TensorLoad, Var

from tilec.ir.exprs import int_value, loads
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.stmt import Block, Memory, Part, Region, Stmt, Value, held, kept, own

if TYPE_CHECKING:
    from tilec.ir.stmt import Buffer

#: The words of memory whose elements a statement reads, and writes.
_READ, _WRITTEN = ("", "reads", "updates"), ("writes", "updates")
Leaf: TypeAlias = tuple[type, str, Any]


@kept
def _leaves(stmt: Stmt) -> tuple[Leaf, ...]:
    """The kind, the word and the value of all that a statement itself holds."""
    return tuple(_found(stmt, ""))


def _found(owner: Any, word: str) -> Iterator[Leaf]:
    for part in own(type(owner)):
        value = getattr(owner, part.name)
        if value is not None and part.word != "named":
            yield from _flat(value, part.kind, part.word or word)


def _flat(value: Any, kind: type, word: str) -> Iterator[Leaf]:
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from _flat(each, kind, word)
    elif isinstance(value, Expr):
        yield kind, word, value
    elif is_dataclass(value):
        yield from _found(value, word)


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """The values that a statement itself uses, those of its regions included."""
    return (value for kind, _, value in _leaves(stmt) if kind is Value)


def loads_of(*stmts: Stmt) -> Iterator[TensorLoad]:
    """What the values load that statements themselves use; of the statements in their bodies with
    :func:`tilec.ir.stmt.walk`."""
    return (load for stmt in stmts for expr in expressions(stmt) for load in loads(expr))


def buffers(stmt: Stmt) -> Iterator[Buffer]:
    """Every buffer that a statement itself reads or writes, as often as it names it."""
    yield from _memory(stmt, (*_READ, *_WRITTEN))
    yield from _loaded(stmt)


def read(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that a statement itself may read."""
    yield from _memory(stmt, _READ)
    yield from _loaded(stmt)


@kept
def written(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers that a statement itself may write."""
    return tuple(_memory(stmt, _WRITTEN))


def scratch(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers that a statement has for itself."""
    return tuple(_memory(stmt, ("scratch",)))


def _memory(stmt: Stmt, words: tuple[str, ...]) -> Iterator[Buffer]:
    found = ((word, value) for kind, word, value in _leaves(stmt) if kind is Memory)
    return (value for word, value in found if (stmt.update if word == "updates" else word) in words)


@kept
def _loaded(stmt: Stmt) -> tuple[Buffer, ...]:
    return tuple(load.source for load in loads_of(stmt))


def regions(stmt: Stmt) -> Iterator[Region]:
    """The regions that a statement itself names."""
    return (found for part in own(type(stmt)) for found in _regions(getattr(stmt, part.name)))


def _regions(value: Any) -> Iterator[Region]:
    if isinstance(value, Region):
        yield value
    elif isinstance(value, tuple):
        yield from (found for each in value for found in _regions(each))
    elif is_dataclass(value):
        yield from (found for part in own(type(value)) for found in _regions(getattr(value, part.name)))


def defined(stmt: Stmt) -> tuple[Var, ...]:
    """The variables and buffers that a statement defines: for the blocks inside it where there are some, else
    for what follows."""
    return tuple(value for _, word, value in _leaves(stmt) if word == "defines")


def operand_names(stmt: Stmt) -> tuple[Var, ...]:
    """The variables that a statement has for one of its own expressions alone."""
    return tuple(value for _, word, value in _leaves(stmt) if word == "operands")


def mentioned(stmt: Stmt) -> set[Var]:
    """The variables and buffers that a statement itself names or defines."""
    found: set[Var] = set()
    for kind, _, value in _leaves(stmt):
        found.update(_names(value) if kind is Value else (value,))
    return found


def _names(expr: Expr) -> Iterator[Var]:
    for node in walk_expr(expr):
        if isinstance(node, Var):
            yield node
        elif isinstance(node, TensorLoad):
            yield node.source


class Rewriter:
    """Statements over other parts: what its methods do not replace stays. A part that several statements
    share is rewritten once, so that they share it again."""

    def __init__(self) -> None:
        self._shared: dict[object, object] = {}

    def block(self, block: Iterable[Stmt]) -> Block:
        """The statements of a block."""
        return tuple(new for stmt in block for new in self.stmts(stmt))

    def stmts(self, stmt: Stmt) -> Block:
        """What stands in a block in place of a statement: one, several or none."""
        return (self.stmt(stmt),)

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement and what is inside."""
        return replace(stmt, **self._changes(stmt))

    def expr(self, expr: Expr) -> Expr:
        """A value."""
        return expr

    def buffer(self, buffer: Buffer) -> Buffer:
        """A buffer where a statement names it."""
        return buffer

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        """An element that a statement names; the indices are rewritten already."""
        return self.buffer(buffer), indices

    def region(self, region: Region) -> Region:
        """A region."""
        start, extent = (tuple(map(self._size, sizes)) for sizes in (region.start, region.extent))
        return Region(self.buffer(region.buffer), start, extent)

    def defined(self, var: Var) -> Var:
        """A variable or buffer where it is defined."""
        return var

    def _size(self, size: int | Expr) -> int | Expr:
        return size if isinstance(size, int) else self.expr(size)

    def _changes(self, owner: Any) -> dict[str, Any]:
        found = held(type(owner))
        made = {part.name: self._value(getattr(owner, part.name), part) for part in found}
        for part in found:
            buffer = getattr(owner, part.name)
            if part.at and buffer is not None:
                given = made[part.at.name]
                made[part.name], at = self.element(buffer, given if part.at.several else (given,))
                made[part.at.name] = at if part.at.several else at[0]
        return made

    def _value(self, value: Any, part: Part) -> Any:
        if isinstance(value, Expr):
            return self._leaf(value, part)
        if isinstance(value, (tuple, list)):
            inner = bool(value) and all(isinstance(each, Stmt) for each in value)
            made = self.block(value) if inner else tuple(self._value(each, part) for each in value)
            if len(made) != len(value):
                return made
            kept = isinstance(value, tuple) and all(new is old for new, old in zip(made, value, strict=True))
            return value if kept else made
        if isinstance(value, Stmt):
            return self.stmt(value)
        if isinstance(value, Region):
            return self.region(value)
        return self._part(value) if is_dataclass(value) else value

    def _leaf(self, value: Any, part: Part) -> Any:
        if part.word in ("defines", "operands"):
            return self.defined(value)
        if part.kind is Memory:
            return value if part.at else self.buffer(value)
        return self.expr(value)

    def _part(self, value: Any) -> Any:
        if value not in self._shared:
            made = self._changes(value)
            kept = all(new is getattr(value, name) for name, new in made.items())
            self._shared[value] = value if kept else replace(value, **made)
        return self._shared[value]


def is_single(buffer: Buffer) -> bool:
    """Whether a buffer has one element."""
    return all(int_value(extent) == 1 for extent in buffer.shape)
