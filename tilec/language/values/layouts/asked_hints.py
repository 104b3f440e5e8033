"""Hints of copies and loops as their author gives them, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.errors import SourceError, SourceValueError
from tilec.ir.hints import ASKED, EVICTIONS, INSTRUCTIONS, Hints
from tilec.ir.layout import Layout as DigitMap
from tilec.ir.roads import Loss
from tilec.language.values.kernel.annotations import known_annotations, note, unheeded
from tilec.language.values.kernel.places import source_error
from tilec.language.values.layouts.layout import Layout


class _UnknownPolicy(SourceError, KeyError):
    """An eviction policy that does not exist; callers may catch it as `KeyError`."""

    __str__ = SourceError.__str__


def hints_of(construct: str, given: Mapping[str, Any], annotations: Any = None) -> Hints:
    """What the keywords ``given`` and ``annotations``, which win, ask for. Raises `KeyError` for an eviction
    policy, `SourceValueError` for an instruction or a width, that does not exist."""
    asked = {**given, **known_annotations(construct, annotations, ASKED)}
    asked = {key: value for key, value in asked.items() if value is not None}
    policy = asked.get("eviction_policy")
    if policy is not None and policy not in EVICTIONS:
        raise source_error(
            _UnknownPolicy,
            f"eviction_policy {policy!r} is none of {', '.join(EVICTIONS)}",
            construct=construct,
            remedy="use one of them, or leave it out",
        )
    instruction = asked.get("prefer_instruction")
    if instruction is not None and instruction not in INSTRUCTIONS:
        raise _wrong(construct, "prefer_instruction", instruction, f"use one of {', '.join(INSTRUCTIONS)}")
    width = asked.get("coalesced_width")
    if width is not None and (not isinstance(width, int) or width < 1):
        raise _wrong(construct, "coalesced_width", width, "give a number of elements")
    mask = asked.get("cluster_mask")
    if mask is not None and (not isinstance(mask, int) or mask < 1):
        raise _wrong(construct, "cluster_mask", mask, "give a positive integer, a bit for each block")
    for switch in ("disable_tma", "prefer_async"):
        if switch in asked:
            asked[switch] = bool(asked[switch]) or None
    layout = _layout(construct, asked.pop("loop_layout", None))
    return Hints(**asked, loop_layout=layout)


def say_unheeded(construct: str, hints: Hints, why: str) -> None:
    """A loss of the launch for each of ``hints`` of a statement that goes element by element."""
    for name in hints.unheard:
        unheeded(construct, f"{name} means nothing here, {why}", "leave it out")


def _layout(construct: str, layout: Layout | None) -> DigitMap | None:
    """The digits of a loop's layout; None, and a loss of the launch, where there are none."""
    if layout is None:
        return None
    from tilec.language.values.layouts.digit_maps import UnfitLayout, digit_map  # loads NumPy

    try:
        return digit_map(layout, of_threads=True)
    except UnfitLayout as unfit:
        note(construct, "layout", "keeps its own layout", Loss("", str(unfit), unfit.remedy))
        return None


def _wrong(construct: str, name: str, value: object, remedy: str) -> SourceError:
    return source_error(
        SourceValueError, f"{name}={value!r} is no hint of {construct}", construct=construct, remedy=remedy
    )
