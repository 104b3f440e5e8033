"""Schedule keys of a config (`tilec.ir.schedule`): how launches are carried out, never what they compute.

A key that is a parameter of the factory goes to the factory; the others become part of the schedule of each
launch of the kernel, and what the target's lowering makes of them is in the notes of `tilec explain`.
``road`` asks for instructions (`tilec.ir.roads.ROADS`): it changes no code, `tilec.build.elaborated.asked`
judges by it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tilec.errors import Place, SourceValueError
from tilec.ir.nodes import Kernel, Launch, TensorParam
from tilec.ir.schedule import KEYS, NAMES, SWITCH, Form


def schedule_of(config: Mapping[str, object], parameters: Collection[str]) -> dict[str, object]:
    """The schedule keys of ``config``, without those that are ``parameters`` of the factory.

    Raises SourceValueError for a value of the wrong form."""
    found = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in config.items()
        if key in KEYS and key not in parameters
    }
    for key, value in found.items():
        _check_form(key, config[key], KEYS[key].form, value)
    return found


def debugging(config: Mapping[str, object]) -> bool | None:
    """What ``config`` says of ``debug``; None where it says nothing. Raises as `schedule_of`."""
    debug = config.get("debug")
    if debug is not None:
        _check_form("debug", debug, SWITCH, debug)
    return debug  # type: ignore[return-value]


def _check_form(key: str, given: object, form: Form, value: object) -> None:
    """Raises SourceValueError, whose place is the ``key``, where ``value`` is not of the ``form``."""
    if not form.admits(value):
        raise SourceValueError(
            f"config value {key} = {given!r} cannot be used", place=Place(key=key), remedy=f"give {form.said}"
        )


def scheduled(kernel: Kernel, schedule: Mapping[str, Any]) -> Kernel:
    """``kernel`` whose launches have these keys. Raises SourceValueError for a tensor it does not have."""
    if not schedule:
        return kernel
    _check_names(kernel, schedule)
    body = tuple(
        replace(stmt, schedule=replace(stmt.schedule, **schedule)) if isinstance(stmt, Launch) else stmt
        for stmt in kernel.body
    )
    return replace(kernel, body=body)


def _check_names(kernel: Kernel, schedule: Mapping[str, object]) -> None:
    known = [param.name for param in kernel.params if isinstance(param, TensorParam)]
    for key, value in schedule.items():
        names = value if KEYS[key].form is NAMES and isinstance(value, tuple) else ()
        for name in names:
            if name not in known:
                raise SourceValueError(
                    f"{key} names {name}, which is no tensor of {kernel.name}",
                    remedy=f"its tensors are {', '.join(known)}",
                )
