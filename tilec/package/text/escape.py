"""How free text enters generated files: one function for each place where it may stand.

Versions and docstrings are written by people. Every template gets them through these functions, none of which
fails: what a place cannot hold becomes U+FFFD, and comments are one line of printable characters.
"""

from __future__ import annotations

import json
import math
from typing import Any

_UNKNOWN = "\ufffd"


def valid(text: str) -> str:
    """``text`` as UTF-8 and C strings can hold it: without lone surrogates and NUL."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", _UNKNOWN)


def line(text: str) -> str:
    """One line of printable characters. Those that turn the direction of text are none: in a comment they
    could make the code behind it look like another."""
    return "".join(char if char.isprintable() else _UNKNOWN for char in " ".join(valid(text).split()))


def c_comment(text: str) -> str:
    """Inside of a block comment of C or C++, on one line; trigraphs are none."""
    text = line(text).replace("*/", "* /").replace("/*", "/ *")
    while "??" in text:
        text = text.replace("??", "? ?")
    return text


def c_string(text: str) -> str:
    """A string literal of C or C++ with the UTF-8 bytes of ``text``."""
    return '"' + "".join(map(_c_byte, valid(text).encode("utf-8"))) + '"'


def _c_byte(byte: int) -> str:
    char = chr(byte)
    if char in '"\\':
        return f"\\{char}"
    if 32 <= byte < 127 and char != "?":
        return char
    return f"\\{byte:03o}"


def cmake_string(text: str) -> str:
    """A quoted argument of CMake."""
    escaped = "".join(f"\\{char}" if char in '"\\$@' else char for char in line(text))
    return f'"{escaped}"'


def pkg_config(text: str) -> str:
    """The value of a field of a .pc file. Backslashes and dollars have no escape that all readers know."""
    return "".join(_UNKNOWN if char in "\\$" else char for char in line(text)).replace("#", "\\#")


def rust_doc(text: str) -> str:
    """One line of a doc comment of Rust, whose brackets are no links and angles no tags."""
    return "".join(f"\\{char}" if char in "[]<>" else char for char in line(text))


def toml_string(text: str) -> str:
    """A basic string of TOML."""
    return '"' + "".join(map(_toml_char, valid(text))) + '"'


def _toml_char(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08X}"


def python_string(text: str) -> str:
    """A string literal of Python, in ASCII."""
    escaped = valid(text).encode("unicode_escape").decode("ascii").replace('"', '\\"')
    return f'"{escaped}"'


def python_number(value: float) -> str:
    """A literal of Python, or the call that gives what has none."""
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return str(value) if is_finite else f'float("{value}")'


def python_doc(text: str) -> str:
    """One line inside of a docstring in double quotes."""
    return line(text).replace("\\", "\\\\").replace('"', '\\"')


def json_text(value: Any, **options: Any) -> str:
    """A document of JSON; ValueError for numbers that JSON does not have."""
    return valid(json.dumps(value, ensure_ascii=False, allow_nan=False, **options))
