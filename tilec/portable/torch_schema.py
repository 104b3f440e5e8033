"""What torch calls the signature of an operator. Imports nothing of torch: builds write it into C as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .operands import Operands

_KINDS = {"bool": "bool", "float": "float", "int": "SymInt"}


def schema(operands: Operands) -> str:
    """The signature behind the name: "(Tensor a, float alpha=1.0, *, SymInt N) -> Tensor"."""
    params = [_declare(number, param) for number, param in enumerate(operands.inputs)]
    for number in range(len(params) - 1):
        if any("=" not in later for later in params[number + 1 :]):
            params[number] = params[number].partition("=")[0]
    hidden = [f"SymInt {name}" for name in operands.hidden]
    arguments = ", ".join([*params, *(["*", *hidden] if hidden else [])])
    returned = ["Tensor"] * len(operands.outputs)
    return f"({arguments}) -> {returned[0] if len(returned) == 1 else '(' + ', '.join(returned) + ')'}"


def _declare(number: int, param: Mapping[str, Any]) -> str:
    if param["kind"] == "tensor":
        return f"Tensor{'' if param['access'] == 'in' else f'(a{number}!)'} {param['name']}"
    kind = next((_KINDS[start] for start in _KINDS if param["dtype"].startswith(start)), "SymInt")
    kind = "float" if param["dtype"].startswith(("bfloat", "tfloat")) else kind
    has_word = not isinstance(param["default"], (str, type(None)))  # infinities and NaN have none here
    default = f"={param['default']}" if has_word else ""
    return f"{kind} {param['name']}{default}"
