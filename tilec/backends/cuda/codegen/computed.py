"""Instructions of PTX in the texts of helpers, as calls of functions that other compilers know."""

from __future__ import annotations

import re
from collections.abc import Collection

#: asm("name %0, %1, 0x5;" : "=f"(result) : "f"(first));
_INSTRUCTION = re.compile(
    r'asm(?: volatile)?\("(?P<name>[a-z][\w.]*) %0, (?P<operands>[^";]*);" : '
    r'"[=+]\w"\((?P<result>\w+)\)(?: : (?P<given>"\w"\([^;]*\)))?(?: : "memory")?\);'
)
#: asm volatile("name [%0], %1;" : : "l"(at), "r"(value) : "memory");
_STORE = re.compile(
    r'asm volatile\("(?P<name>st\.[\w.]*) \[%0\], %1;" : : (?P<given>"\w"\([^;]*\)) : "memory"\);'
)
_GIVEN = re.compile(r'"\w"\(')
_WAITS = re.compile(r'asm volatile\("cp\.async\.(?:commit_group|wait_group \d+|wait_all);"[^;]*\);')


def function_of(instruction: str) -> str:
    """What stands for an instruction: its name with "_" for "."."""
    return f"tilec_{instruction.replace('.', '_')}"


def computed(text: str, known: Collection[str]) -> str:
    """``text`` with a call of `function_of` for each instruction that gives one value or stores one, where
    that is among the ``known`` functions. Copies are there when they have been issued, so that nothing waits
    for them."""

    def call(found: re.Match[str]) -> str:
        function = function_of(found["name"])
        if function not in known:
            return found[0]
        named = [found["result"], *_operands(found["given"] or "")]
        operands = [
            named[int(each[1:])] if each.startswith("%") else each
            for each in (part.strip("[]") for part in found["operands"].split(", "))
        ]
        return f"{found['result']} = {function}({', '.join(operands)});"

    def store(found: re.Match[str]) -> str:
        function = function_of(found["name"])
        return f"{function}({', '.join(_operands(found['given']))});" if function in known else found[0]

    return _WAITS.sub("", _STORE.sub(store, _INSTRUCTION.sub(call, text)))


def _operands(text: str) -> list[str]:
    """The expressions of operands: '"f"(a), "r"(b + c)'."""
    pieces = _GIVEN.split(text)[1:]
    return [piece.strip().rstrip(",").rstrip()[:-1] for piece in pieces]
