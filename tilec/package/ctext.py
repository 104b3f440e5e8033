"""Small pieces of C text: strings, identifiers, arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Words that no parameter may have in C11 or C++17, and the names that generated functions use themselves.
_RESERVED = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class
    compl const const_cast constexpr continue decltype default delete do double dynamic_cast else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new noexcept
    not not_eq nullptr operator or or_eq private protected public register reinterpret_cast restrict
    return short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t
    while xor xor_eq NULL
    exec params dims out_bytes kernels""".split()
)


def identifier(name: str) -> str:
    """``name``, with an underscore behind it where C, C++ or the generated code has another use for it."""
    return f"{name}_" if name in _RESERVED else name


def string_literal(text: str) -> str:
    """A C string literal with the UTF-8 bytes of ``text``."""
    return '"' + "".join(map(_escape, text.encode("utf-8"))) + '"'


def _escape(byte: int) -> str:
    char = chr(byte)
    if char in '"\\':
        return f"\\{char}"
    if 32 <= byte < 127 and char != "?":
        return char
    return f"\\{byte:03o}"


def array(kind: str, name: str, rows: Iterable[str], *, const: bool = True) -> str:
    """A static array with one row a line; nothing for no rows, since C has no empty arrays."""
    lines = "".join(f"  {row},\n" for row in rows)
    qualifier = "const " if const else ""
    return f"static {qualifier}{kind} {name}[] = {{\n{lines}}};\n" if lines else ""


def row(*items: object) -> str:
    """One initialiser: ``{a, b, c}``."""
    return f"{{{', '.join(map(str, items))}}}"


def reference(name: str, rows: Sequence[object], offset: int = 0) -> str:
    """A pointer into an array that `array` wrote; NULL where it wrote none."""
    if not rows:
        return "NULL"
    return f"{name} + {offset}" if offset else name
