"""Small pieces of C text: identifiers, arrays, initialisers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilec.reserved import C_WORDS

#: Names that generated functions use themselves, or that are macros where headers are included.
_RESERVED = C_WORDS | frozenset("NULL exec params dims out_bytes kernels linux unix errno".split())


def identifier(name: str) -> str:
    """``name``, with an underscore behind it where C, C++ or the generated code has another use for it."""
    return f"{name}_" if name in _RESERVED else name


def array(kind: str, name: str, rows: Iterable[str], *, const: bool = True) -> str:
    """A static array with one row a line; nothing for no rows, since C has no empty arrays."""
    lines = "".join(f"  {row},\n" for row in rows)
    qualifier = "const " if const else ""
    return f"static {qualifier}{kind} {name}[] = {{\n{lines}}};\n" if lines else ""


def row(*items: object) -> str:
    """The initialiser of an array: ``{a, b, c}``."""
    return f"{{{', '.join(map(str, items))}}}"


def record(**fields: object) -> str:
    """The initialiser of a struct: ``{.a = 1, .b = 2}``."""
    return row(*(f".{name} = {value}" for name, value in fields.items()))


def constants(values: Mapping[str, int]) -> str:
    """Numbers that C knows by name."""
    lines = "".join(f"  {name} = {value},\n" for name, value in values.items())
    return f"enum {{\n{lines}}};\n"


def reference(name: str, rows: Sequence[object], offset: int = 0) -> str:
    """A pointer into an array that `array` wrote; NULL where it wrote none."""
    if not rows:
        return "NULL"
    return f"{name} + {offset}" if offset else name
