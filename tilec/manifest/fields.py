"""Types of the manifest's keys: what each value is made of, and the check of it.

`tilec.manifest.model` makes tables of them.
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeAlias, Union

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from tilec.dtypes import DTYPES
from tilec.ir.guards import Guard
from tilec.manifest.guards import admitted, parse_guard
from tilec.manifest.text.conditions import check_condition
from tilec.manifest.text.expressions import check_expression
from tilec.manifest.transformers.families import KINDS, LAYERS
from tilec.manifest.transformers.layers import parts
from tilec.reserved import is_identifier, package_problem, shown

Scalar: TypeAlias = Union[StrictBool, StrictInt, StrictFloat, StrictStr]  # noqa: UP007 (evaluated on 3.10)

#: In place of a config.
Automatic: TypeAlias = Literal["auto"]

_SCHEDULES = re.compile(r"[^:]+\.toml:[A-Za-z_]\w*")
_SOURCE = re.compile(r"[^:]+:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
#: PEP 440 without epochs, and semantic versions: numbers with dots, then words.
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*([.+_-]?[A-Za-z0-9]+)*")
_LONGEST_VERSION = 64
_LICENSE = re.compile(r"[A-Za-z0-9.+() -]{1,100}")


def _package_name(text: str) -> str:
    problem = package_problem(text)
    if problem:
        raise ValueError(problem)
    return text


def _version(text: str) -> str:
    if len(text) > _LONGEST_VERSION or not text.isascii() or not _VERSION.fullmatch(text):
        raise ValueError(
            f'"{shown(text)}" is no version: numbers with dots, then words behind . - + or _, such as 1.2.0, '
            "1.0rc1 or 2.0.0-beta.1+cuda12"
        )
    return text


def _license(text: str) -> str:
    if not _LICENSE.fullmatch(text):
        raise ValueError(
            f'"{shown(text)}" is no SPDX expression, such as apache-2.0 or "MIT OR BSD-3-Clause"'
        )
    return text


def _python_name(text: str) -> str:
    if not is_identifier(text) or keyword.iskeyword(text):
        raise ValueError(f'"{shown(text)}" is no name of Python')
    return text


def _class_name(text: str) -> str:
    if not text[:1].isupper():
        raise ValueError(f'"{shown(text)}" is no name of a class: start it with a capital letter')
    return _python_name(text)


def _schedule_source(text: str) -> str:
    if not _SCHEDULES.fullmatch(text):
        raise ValueError('it is written "file.toml:name"')
    return text


def _source_text(text: str) -> str:
    if not _SOURCE.fullmatch(text):
        raise ValueError(f'"{text}" is not of the form "path/to/file.py:name" or "package.module:name"')
    return text


def _guard_list(value: object) -> tuple[Guard, ...]:
    """One entry or a list of entries, no two of which admit the same dimensions."""
    entries = value if isinstance(value, (list, tuple)) else [value]
    if not entries:
        raise ValueError("the list is empty: give at least one integer or guard")
    guards = tuple(parse_guard(entry) for entry in entries)
    seen = set()
    for guard in guards:
        values = admitted(guard)
        if values in seen:
            raise ValueError(f'two variants would have the same guard "{guard}"')
        seen.add(values)
    return guards


def _one_guard(value: object) -> Guard:
    return value if isinstance(value, Guard) else parse_guard(value)


def not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values; there is at least one."""
    if not value:
        raise ValueError("the list is empty")
    return value


def _distinct(value: tuple[Any, ...]) -> tuple[Any, ...]:
    seen = [(type(item), item) for item in not_empty(value)]
    if len(set(seen)) != len(seen):
        raise ValueError("the list holds the same value twice")
    return value


def _no_truth(value: object) -> object:
    """`true` is 1 to Python, and no number to a person."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is no number")
    return value


def _expression(value: object) -> str:
    """An integer stands for itself."""
    if type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is neither an integer nor an expression")
    return check_expression(value)


def _known(what: str, known: Iterable[str]) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """A check that every name is one of ``known``, joined names part by part."""
    names = tuple(known)

    def check(value: tuple[str, ...]) -> tuple[str, ...]:
        for name in (part for each in _distinct(value) for part in parts(each)):
            if name not in names:
                raise ValueError(f'"{name}" is no {what}; there are {", ".join(names)}')
        return value

    return check


def _axis(value: object) -> tuple[Any, ...]:
    """The values that tuning tries for one config key: a list, or a range of integers, ends included."""
    if isinstance(value, dict):
        value = _steps(value)
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(
            f"{value!r} is not a list of values; write [64, 128] or {{ min = 1, max = 4, step = 1 }}"
        )
    values = tuple(value)
    if len({repr(one) for one in values}) != len(values):
        raise ValueError("the list holds the same value twice")
    return values


def _steps(table: dict[str, Any]) -> list[int]:
    known = {"min", "max", "step"}
    if not {"min", "max"} <= set(table) <= known or any(type(one) is not int for one in table.values()):
        raise ValueError(f"{table!r} is no range; write {{ min = 1, max = 4, step = 1 }} with integers")
    step = table.get("step", 1)
    if step < 1 or table["min"] > table["max"]:
        raise ValueError(f"{table!r} holds no value: step is 1 or more, min at most max")
    return list(range(table["min"], table["max"] + 1, step))


def _point_list(value: object) -> tuple[Any, ...]:
    """Integers for the one dim that is no integer, tables of dims, or one table of lists, which multiply."""
    if isinstance(value, dict):
        lists = {name: one if isinstance(one, (list, tuple)) else [one] for name, one in value.items()}
        value = [dict(zip(lists, each, strict=True)) for each in itertools.product(*lists.values())]
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"{value!r} is no list of points; write [1, 8] or [{{ M = 8, N = 4096 }}]")
    for point in value:
        numbers = point.values() if isinstance(point, dict) else [point]
        if any(type(number) is not int or number < 1 for number in numbers):
            raise ValueError(f"{point!r} is no point: dims are integers of 1 or more")
    return tuple(value)


RelativeTolerance = Annotated[
    StrictFloat | None,
    Field(
        ge=0,
        examples=["rtol = 1e-3"],
        description="Relative tolerance of verify. Default: what a wider table says, or by dtype.",
    ),
]
AbsoluteTolerance = Annotated[
    StrictFloat | None,
    Field(
        ge=0,
        examples=["atol = 1e-3"],
        description="Absolute tolerance of verify. Default: what a wider table says, or by dtype.",
    ),
]
Mismatches = Annotated[
    StrictFloat | None,
    Field(
        ge=0,
        le=1,
        examples=["max_mismatch = 0.01"],
        description="Share of elements that may miss the tolerance. Default: what a wider table says, or 0.",
    ),
]
ScheduleSource = Annotated[StrictStr, AfterValidator(_schedule_source)]
SourceText = Annotated[StrictStr, AfterValidator(_source_text)]
GuardList = Annotated[tuple[Guard, ...], BeforeValidator(_guard_list)]
OneGuard = Annotated[Guard, BeforeValidator(_one_guard)]
Expression = Annotated[str, BeforeValidator(_expression)]
Layers = Annotated[tuple[StrictStr, ...], AfterValidator(_known("layer", LAYERS))]
Kinds = Annotated[tuple[StrictStr, ...], AfterValidator(_known("kind of model", KINDS))]
DTypes = Annotated[tuple[StrictStr, ...], AfterValidator(_known("element type", DTYPES))]
Names = Annotated[tuple[StrictStr, ...], AfterValidator(_distinct)]
Values = Annotated[tuple[Scalar, ...], AfterValidator(_distinct)]
Axis = Annotated[tuple[Any, ...], BeforeValidator(_axis)]
Points = Annotated[tuple[Any, ...], BeforeValidator(_point_list)]
Condition = Annotated[StrictStr, AfterValidator(check_condition)]
PackageName = Annotated[StrictStr, AfterValidator(_package_name)]
Version = Annotated[StrictStr, AfterValidator(_version)]
License = Annotated[StrictStr, AfterValidator(_license)]
PythonName = Annotated[StrictStr, AfterValidator(_python_name)]
ClassName = Annotated[StrictStr, AfterValidator(_class_name)]
Edition = Annotated[Literal[1], BeforeValidator(_no_truth)]
