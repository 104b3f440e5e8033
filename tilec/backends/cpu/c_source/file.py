"""One C file for all launches of a variant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tilec.backends.cpu.c_source.expressions import Expressions, pointer_type
from tilec.backends.cpu.c_source.helpers import Helpers
from tilec.backends.cpu.c_source.names import Names
from tilec.backends.cpu.c_source.statements import Statements
from tilec.backends.cpu.c_source.types import c_type
from tilec.ir.exprs import dtype_of
from tilec.lowering.lowered import overlapping_pointers

_WORD = re.compile(r"\w+")
_BIND = re.compile(r"\s*(?:const \w+ |\w+ \*const )(\w+) = ")
_HEAD = """/* {title}: blocks [begin, end) of every launch. For GCC 12 and Clang 15 or newer; needs libm. */
#include <math.h>
#include <stdint.h>

"""


def c_source(functions: Mapping[str, Any], title: str) -> str:
    """The file with these functions by name. Raises UnsupportedError for what C has no words for."""
    helpers = Helpers()
    bodies = [_function(name, function, helpers) for name, function in functions.items()]
    return "\n".join([_HEAD.format(title=title) + helpers.text(), *bodies])


def _function(symbol: str, function: Any, helpers: Helpers) -> str:
    names = Names()
    statements = Statements(Expressions(helpers, names))
    shared = overlapping_pointers(function)
    params = ", ".join(
        _param(param, names, "" if place in shared else "restrict ")
        for place, param in enumerate(function.params)
    )
    lines = [f"void {symbol}({params}) {{"]
    lines += [f"  {line}" for line in _without_unread(list(statements.lines(function.body)))]
    return "\n".join([*lines, "}", ""])


def _without_unread(lines: list[str]) -> list[str]:
    """The lines without constants that no other line names; values have no effects."""
    while True:
        words = Counter(word for line in lines for word in _WORD.findall(line))
        kept = [line for line in lines if not ((bind := _BIND.match(line)) and words[bind[1]] == 1)]
        if len(kept) == len(lines):
            return kept
        lines = kept


def _param(param: Any, names: Names, promise: str) -> str:
    name = names.of(param)
    if hasattr(param.ty, "element_type"):
        return f"{pointer_type(param)}{promise}{name}"
    return f"{c_type(dtype_of(param)).name} {name}"
