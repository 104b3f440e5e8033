"""What device code says to people: printf, and the trap of a check that does not hold. Each text is a
function of its own, which keeps registers of the code around it free."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from tilec.backends.cuda.device.helper import Helper, Lanes

#: dtype -> its format and its C type.
FORMATS = {
    "int64": ("%lld", "long long"),
    "uint64": ("%llu", "unsigned long long"),
    "float64": ("%g", "double"),
}
_PRINT = """
__device__ __noinline__ void {name}({params}) {{
  printf("{text}\\n", {args});
}}
"""
_CHECK = """
__device__ __noinline__ void {name}() {{
  printf("{text}\\n");
  __trap();
}}
"""
_THREAD = tuple(f"threadIdx.{axis}" for axis in "xyz")


def printed(own: str, kinds: Sequence[str]) -> Helper:
    """A line behind the thread's place: a format with values of these dtypes, escaped as in C."""
    text = f"thread (%d, %d, %d) {own}"
    names = [f"v{position}" for position in range(len(kinds))]
    params = ", ".join(f"{FORMATS[kind][1]} {name}" for kind, name in zip(kinds, names, strict=True))
    args = ", ".join((*(f"(int){axis}" for axis in _THREAD), *names))

    def meaning(lanes: Lanes, *values: Any) -> None:
        lanes.cuda("printf", _read(text), *map(lanes.place, _THREAD), *values)

    return _named("print", _PRINT, meaning, text=text, params=params, args=args)


def trapped(reason: str) -> Helper:
    """The reason, and the end of the launch."""
    text = escaped(reason)

    def meaning(lanes: Lanes) -> None:
        lanes.cuda("printf", _read(text))
        lanes.cuda("__trap")

    return _named("check", _CHECK, meaning, text=text)


def _named(kind: str, template: str, meaning: Any, **parts: str) -> Helper:
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    name = f"tilec_{kind}_{digest}"
    return Helper(name, template.format(name=name, **parts), meaning)


_SPECIAL = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "%": "%%"}


def escaped(text: str) -> str:
    """As a format in a C string."""
    return "".join(_SPECIAL.get(letter, letter if letter.isprintable() else "?") for letter in text)


def _read(text: str) -> str:
    """What a C string holds, with the end of the line."""
    return text.replace("\\\\", "\0").replace('\\"', '"').replace("\\n", "\n").replace("\0", "\\") + "\n"
