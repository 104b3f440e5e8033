"""How statements and the parts in their fields are written: a word and arguments, for every class.

A class that says nothing is written with its name in small letters; memory and values without a default stand
in order, all others under their names, left out where they have their defaults (or are false or None):

    async_copy(A[0:+64], tile[0:+64], width=8)

What it defines stands in front: ``x = word(...)``, or where it has a block ``for x in word(...):`` (without
names, ``with word(...):``); of several blocks those that are not empty each have a ``with`` of their name
inside. ``syntax`` of a class says otherwise ("": the text is one of Python's own statements, which printer
and parser know):

    copy(src, dst, hints=)      the arguments in order; `hints` under its name
    launch(hints=schedule)      a field under another name
    reduce_{kind}(src, axis=!)  a word for each of the ``kinds`` of the class; `axis` is always there
    print(text!r, *values)      as Python writes it; one argument for each
    barrier_wait(barrier[index], parity)        an element, whose indices are another field
    buffer[indices] = thread_reduce(combine)    what it is assigned to; what is over `Operands` is a lambda

Fields that it does not name follow under their names. ``declared`` of a class gives the arguments of what it
defines (dtype; shape and scope of a buffer) from its other fields; else they are arguments, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilec.ir.stmt import Memory, Part, Required, Stmt, cached, parts

#: The argument that has the dtypes of variables.
DTYPES = Part("dtypes", object, "")
_ARGUMENT = re.compile(r"(\*?)(\w+)(?:\[\w+\])?(=!|=|!r)?(\w*)")


@dataclass(frozen=True)
class Argument:
    """A field among the arguments, under the name ``key`` or in order. ``star``: one for each of its values;
    ``always``: also where it has its default; ``raw``: as Python writes it."""

    part: Part
    key: str = ""
    star: bool = False
    always: bool = False
    raw: bool = False

    def has_default(self, value: Any) -> bool:
        """Whether the argument may be left out."""
        if self.always or not self.key:
            return False
        if self.part.default is Required:
            return value is None or value is False
        return bool(value is self.part.default or (not hasattr(value, "ty") and value == self.part.default))


@dataclass(frozen=True)
class Form:
    """The ``words`` of a class by the kind that they stand for ("" where there is one), its ``arguments``,
    what it ``defines``, and the ``target`` that it is assigned to."""

    words: dict[str, str]
    arguments: tuple[Argument, ...]
    defines: tuple[Part, ...]
    operands: Part | None
    target: Part | None = None
    declares: bool = False

    def word(self, owner: Any) -> str:
        """The word of a statement or a part."""
        return self.words[owner.kind if len(self.words) > 1 else ""]


@cached
def form_of(kind: Any) -> Form:
    """The form of a class."""
    syntax = vars(kind).get("syntax", "")
    target, _, call = syntax.rpartition(" = ")
    word, _, given = call.partition("(")
    found = {part.name: part for part in parts(kind)}
    words = (
        {each: word.format(kind=each) for each in kind.kinds} if "{" in word else {"": word or small(kind)}
    )
    goal = found[target.partition("[")[0]] if target else None
    listed = [_argument(text, found) for text in given.rstrip(")").split(", ") if text]
    taken = {*(item.part.name for item in listed), *(["kind"] if "" not in words else []), goal and goal.name}
    defines = tuple(part for part in found.values() if part.word == "defines" and issubclass(kind, Stmt))
    others = [part for part in found.values() if part.name not in taken and _is_argument(part, defines)]
    in_order, named = _split(others, bool(syntax))
    ends = [] if not defines or "dtypes" in taken else [Argument(DTYPES, "dtypes")]
    arguments = (*in_order, *listed, *named, *ends)
    operands = next((part for part in found.values() if part.word == "operands"), None)
    return Form(words, arguments, defines, operands, goal, hasattr(kind, "declared"))


def _argument(text: str, found: dict[str, Part]) -> Argument:
    star, name, suffix, field = _ARGUMENT.fullmatch(text).groups()  # type: ignore[union-attr]
    part = DTYPES if name == "dtypes" else found[field or name]
    key = name if suffix in ("=", "=!") else ""
    return Argument(part, key, bool(star), suffix == "=!", suffix == "!r")


def _is_argument(part: Part, defines: tuple[Part, ...]) -> bool:
    return part.kind is not Stmt and part not in defines and part.word not in ("aside", "at", "operands")


def _split(others: list[Part], all_named: bool) -> tuple[list[Argument], list[Argument]]:
    """Those in order and those under their names."""
    first = [part for part in others if part.holds and part.default is Required and not all_named]
    return [Argument(part) for part in first], [
        Argument(part, part.name) for part in others if part not in first
    ]


def small(kind: type) -> str:
    """The word of a class that says none: AsyncCopy is async_copy."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def statements() -> dict[str, tuple[Any, str]]:
    """All words of statements: their class, and its kind."""
    known = {kind: form_of(kind) for kind in _classes(Stmt) if vars(kind).get("syntax") != ""}
    return {word: (kind, key) for kind, form in known.items() for key, word in form.words.items()}


def _classes(base: type[Stmt]) -> Iterator[type[Stmt]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _classes(kind)


@cached
def lambda_of(kind: Any) -> str:
    """The field whose expression is over the operands of a statement, if there are some."""
    names = [part.name for part in parts(kind)]
    operands = form_of(kind).operands
    return names[names.index(operands.name) + 1] if operands else ""


def key_of(part: Any) -> Any:
    """The buffer by which a part is named where another statement declares it."""
    return next(getattr(part, each.name) for each in parts(type(part)) if each.kind is Memory)


def flat(value: Any) -> tuple[Any, ...]:
    """The names in a field."""
    return () if value is None else value if isinstance(value, tuple) else (value,)
