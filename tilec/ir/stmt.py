"""What a statement is, and what the types of its fields tell of it.

| a field of type | holds |
|---|---|
| ``Block``, ``tuple[Bind]`` | statements inside |
| ``Expr``, ``int | Expr`` | a value |
| ``Region``, ``Buffer`` | memory whose elements are read, or what the words below say |
| ``Defines[Var]`` | a name |
| a dataclass | what its fields hold, under the word of the field that holds it |
| anything else | a plain value |

Tuples of these and None go with them. The types are read once for each class. `tilec.ir.traits` has what
follows of reads, writes, names and rewriting, `tilec.ir.text` how a class is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache, wraps
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.errors import Columns

    Buffer: TypeAlias = Var

T = TypeVar("T")
R = TypeVar("R")
#: Memory that the statement writes; memory that it writes and reads.
Writes = Annotated[T, "writes"]
Updates = Annotated[T, "updates"]
#: Room that the statement needs for itself; barriers that it begins, signals or waits for.
Scratch = Annotated[T, "scratch"]
Signals = Annotated[T, "signals"]
#: Names for the blocks inside the statement; where there are none, for what follows it.
Defines = Annotated[T, "defines"]
#: Names for the expression in the next field alone.
Operands = Annotated[T, "operands"]
#: Indices of the buffer in the field before.
At = Annotated[T, "at"]
#: A part that a statement around declares.
Named = Annotated[T, "named"]
#: What is said of the statement: neither its meaning nor its text has it.
Aside = Annotated[T, "aside"]


@dataclass(frozen=True)
class Loc:
    """The line of the author's file that a statement comes from; ``columns``: its construct in that line."""

    file: str
    line: int
    columns: Columns | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class Region:
    """A box of a buffer: per axis a start expression and an extent (int where known, else an expression)."""

    buffer: Buffer
    start: tuple[Expr, ...]
    extent: tuple[int | Expr, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Stmt:
    """Base of all statements. Each is one of its own: equal to itself alone, a key of tables that stays."""

    loc: Aside[Loc | None] = field(default=None, repr=False)

    @property
    def update(self) -> str:
        """What this one does to the memory that its class updates: "updates", "writes" alone, or "reads"."""
        return "updates"

    def broken(self) -> str:
        """Which rule of its kind a statement of lowering breaks, as a text; empty where it breaks none."""
        return ""


Block: TypeAlias = tuple[Stmt, ...]


class Required:
    """The default of fields that have none."""


class Value:
    """The kind of fields of type ``Expr``."""


class Name:
    """The kind of fields of type ``Var``."""


class Memory:
    """The kind of fields of type ``Buffer``."""


_KINDS = {"Expr": Value, "Var": Name, "Buffer": Memory, "Stmt": Stmt, "Region": Region}


def cached(function: Callable[[Any], R]) -> Callable[[Any], R]:
    """`cache` for functions of a class, which type checkers take for no key."""
    return cache(function)


def kept(function: Callable[[Any], R]) -> Callable[[Any], R]:
    """A function of a statement alone whose answer the statement keeps: statements never change, and passes
    ask again and again. The answer must not change either."""
    key = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def answer(stmt: Stmt) -> R:
        own = vars(stmt)
        if key not in own:
            own[key] = function(stmt)
        return cast(R, own[key])

    return answer


@dataclass(frozen=True)
class Part:
    """A field: its ``kind`` (`Stmt`, `Value`, `Name`, `Memory`, a dataclass, or `object` for plain values),
    the ``word`` of its type, all ``types`` in it and whether they come in tuples (``several``), its
    ``default`` (`Required`: none). ``at`` is the field with the indices of the buffer that it names."""

    name: str
    kind: Any
    word: str
    types: tuple[Any, ...] = ()
    several: bool = False
    default: Any = Required
    at: Part | None = None

    @property
    def holds(self) -> bool:
        """Whether values of this field hold memory, names, values or statements."""
        if self.word == "aside" or self.kind is object:
            return False
        return self.kind in (Stmt, Value, Name, Memory) or bool(held(self.kind))


@cached
def parts(kind: Any) -> tuple[Part, ...]:
    """The fields of a dataclass, in order."""
    hints = get_type_hints(kind, localns=_KINDS, include_extras=True)
    found = [_part(item, hints[item.name]) for item in fields(kind)]
    for place, part in enumerate(found[1:]):
        if part.word == "at":
            found[place] = replace(found[place], at=part)
    return tuple(found)


@cached
def held(kind: Any) -> tuple[Part, ...]:
    """The fields of a dataclass that hold something of the IR; blocks among them."""
    return tuple(part for part in parts(kind) if part.holds)


@cached
def own(kind: Any) -> tuple[Part, ...]:
    """Those without the blocks."""
    return tuple(part for part in held(kind) if part.kind is not Stmt)


@cached
def blocks(kind: Any) -> tuple[str, ...]:
    """The names of the fields that are blocks."""
    return tuple(part.name for part in held(kind) if part.kind is Stmt)


def children(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks directly inside a statement, in the order of its fields."""
    return tuple(getattr(stmt, name) for name in blocks(type(stmt)))


def with_children(stmt: Stmt, inner: Sequence[Block]) -> Stmt:
    """``stmt`` with its inner blocks (in the order of `children`) replaced."""
    if not inner:
        return stmt
    changes: dict[str, Any] = dict(zip(blocks(type(stmt)), inner, strict=True))
    return replace(stmt, **changes)


def walk(block: Block) -> Iterator[Stmt]:
    """All statements of a block, parents before children, in program order."""
    for stmt in block:
        yield stmt
        for inner in children(stmt):
            yield from walk(inner)


def every_block(block: Block) -> Iterator[Block]:
    """A block and all those inside, parents before children."""
    yield block
    for stmt in block:
        for inner in children(stmt):
            yield from every_block(inner)


def _part(item: Any, hint: Any) -> Part:
    word = ""
    if get_origin(hint) is Annotated:
        hint, word = get_args(hint)
    types = tuple(_types(hint))
    known = [
        kind for kind in types if isinstance(kind, type) and (kind in _KINDS.values() or is_dataclass(kind))
    ]
    kind = known[0] if known else object
    default = item.default if item.default_factory is MISSING else item.default_factory()
    default = Required if default is MISSING else default
    several = get_origin(hint) is tuple
    return Part(item.name, Stmt if issubclass(kind, Stmt) else kind, word, types, several, default)


def _types(hint: Any) -> Iterator[Any]:
    """The types that a tuple or a union is of."""
    inner = get_args(hint)
    if not inner:
        yield hint
    for each in inner:
        yield from _types(each)
