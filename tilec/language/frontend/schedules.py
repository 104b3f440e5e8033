"""Schedule keys of a config: how a launch is carried out, never what it computes.

A key that is a parameter of the factory goes to the factory; the others in `SCHEDULE_KEYS` become hints of
every launch of the kernel, and what the target's lowering makes of them is in the notes of `tilec explain`.
``road`` asks for instructions (`tilec.ir.roads.ROADS`): it changes no code, `tilec.build.asked` judges by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from tilec.errors import SourceValueError
from tilec.ir.nodes import Kernel, Launch, TensorParam
from tilec.ir.roads import ROADS


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


def _are_counts(value: object) -> bool:
    return _is_count(value) or (
        isinstance(value, (list, tuple)) and 1 <= len(value) <= 3 and all(map(_is_count, value))
    )


def _are_names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)


def _is_order(value: object) -> bool:
    return value in ("row", "column")


def _are_roads(value: object) -> bool:
    names = [value] if isinstance(value, str) else value
    return isinstance(names, (list, tuple)) and bool(names) and all(name in ROADS for name in names)


_FORMS: dict[Callable[[object], bool], str] = {
    _is_count: "a positive integer",
    _is_switch: "true or false",
    _are_counts: "a positive integer or up to three of them, one per grid axis",
    _are_names: "a list of tensor names",
    _is_order: '"row" or "column"',
    _are_roads: f"one of {', '.join(ROADS)}, or a list of them",
}
#: Key to what its value must be.
SCHEDULE_KEYS: Mapping[str, Callable[[object], bool]] = {
    "persistent": _is_switch,
    "cluster": _are_counts,
    "pingpong": _is_switch,
    "swap": _is_switch,
    "split_k": _is_count,
    "group": _is_count,
    "group_order": _is_order,
    "unroll": _is_count,
    "promote_k": _is_count,
    "pdl": _is_switch,
    "min_blocks_per_sm": _is_count,
    "evict_first": _are_names,
    "evict_last": _are_names,
    "constant": _are_names,
    "scale_sums": _is_switch,
    "road": _are_roads,
}


def schedule_of(config: Mapping[str, object], parameters: Collection[str]) -> dict[str, object]:
    """The schedule keys of ``config``, without those that are ``parameters`` of the factory.

    Raises SourceValueError for a value of the wrong form."""
    found = {key: value for key, value in config.items() if key in SCHEDULE_KEYS and key not in parameters}
    for key, value in found.items():
        form = SCHEDULE_KEYS[key]
        if not form(value):
            raise SourceValueError(
                f"config value {key} = {value!r} is no schedule", remedy=f"give {_FORMS[form]}"
            )
    return found


def scheduled(kernel: Kernel, schedule: Mapping[str, object]) -> Kernel:
    """``kernel`` with the schedule as hints of its launches. Raises SourceValueError for a tensor that it
    does not have."""
    if not schedule:
        return kernel
    _check_names(kernel, schedule)
    hints = tuple(
        (key, tuple(value) if isinstance(value, list) else value) for key, value in schedule.items()
    )
    body = tuple(
        replace(stmt, hints=(*stmt.hints, *hints)) if isinstance(stmt, Launch) else stmt
        for stmt in kernel.body
    )
    return replace(kernel, body=body)


def _check_names(kernel: Kernel, schedule: Mapping[str, object]) -> None:
    known = [param.name for param in kernel.params if isinstance(param, TensorParam)]
    for key, value in schedule.items():
        names = value if SCHEDULE_KEYS[key] is _are_names and isinstance(value, (list, tuple)) else ()
        for name in names:
            if name not in known:
                raise SourceValueError(
                    f"{key} names {name}, which is no tensor of {kernel.name}",
                    remedy=f"its tensors are {', '.join(known)}",
                )
