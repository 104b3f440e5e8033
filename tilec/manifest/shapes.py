"""The shapes file of `check` and `tune`: the calls that an engine makes.

{"calls": [{"kernel": "matmul", "dims": {"M": 17, "N": 4096, "K": 4096}, "count": 32, "target": "x86-64-v4"}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError
from pydantic_core import ErrorDetails

from tilec.errors import InputError, Place
from tilec.manifest.expansion.variants import Plan
from tilec.manifest.text.document import format_path
from tilec.manifest.text.json_file import read_json
from tilec.spelling import suggestion


class Call(BaseModel):
    """One shape of one kernel; ``count`` is how often a step calls it, ``target`` limits the question."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kernel: StrictStr
    dims: dict[StrictStr, Annotated[StrictInt, Field(ge=1)]] = Field(default={})
    count: Annotated[StrictInt, Field(ge=1)] = 1
    target: StrictStr | None = None


class ShapesFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    calls: tuple[Call, ...]


def read_shapes(path: Path, plan: Plan) -> tuple[Call, ...]:
    """The calls of a file. Raises InputError for what is no shapes file, or names what the plan lacks."""
    calls = parse_shapes(path)
    for at, call in enumerate(calls):
        _check_call(path, at, call, plan)
    return calls


def parse_shapes(path: Path) -> tuple[Call, ...]:
    """The calls of a file, whatever they name. Raises InputError for what is no shapes file."""
    try:
        return ShapesFile.model_validate(read_json(path, _FORM)).calls
    except ValidationError as error:
        first = error.errors()[0]
        place = Place(str(path), key=format_path(first["loc"]))
        raise InputError(
            f"{path} is no shapes file", place=place, why=_reason(first), remedy=_FORM
        ) from error


_FORM = 'write {"calls": [{"kernel": "name", "dims": {"M": 17}}]}'


def _reason(one: ErrorDetails) -> str:
    """Why the file was refused."""
    last, kind, found = one["loc"][-1] if one["loc"] else "", one["type"], one["input"]
    name = "a call" if isinstance(last, int) else f'"{last}"' if last else "the file"
    if kind == "missing":
        return f"the key {name} is missing"
    if kind == "extra_forbidden":
        return f"{name} is no key that is known here"
    if kind == "greater_than_equal":
        return f"{name} is {found}; it must be 1 or more"
    return f"{name} must be {_KINDS.get(kind, 'something else')}, and {json.dumps(found)} is not"


#: What pydantic's types of errors ask for, in the words of JSON.
_KINDS = {
    "string_type": "a string",
    "int_type": "an integer",
    "dict_type": "an object",
    "model_type": "an object",
    "tuple_type": "a list",
}


def _check_call(path: Path, at: int, call: Call, plan: Plan) -> None:
    """Every name of a call must be one of the plan's, and every dim must be given."""
    kernels = {kernel.name: kernel for kernel in plan.kernels}
    _require(path, f"calls[{at}].kernel", "kernel", call.kernel, kernels)
    dims = kernels[call.kernel].entry.dims
    for name in call.dims:
        _require(path, f"calls[{at}].dims", "dimension", name, dims)
    missing = [name for name in dims if name not in call.dims]
    if missing:
        raise InputError(
            f"a call of {call.kernel} gives no {', '.join(missing)}",
            place=Place(str(path), key=f"calls[{at}].dims"),
            remedy="give every dimension of the kernel",
        )
    if call.target is not None:
        targets = {variant.target.name: variant for variant in kernels[call.kernel].variants}
        _require(path, f"calls[{at}].target", "target", call.target, targets)


def _require(path: Path, key: str, kind: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        place = Place(str(path), key=key)
        raise InputError(f'unknown {kind} "{name}"', place=place, remedy=suggestion(name, known))
