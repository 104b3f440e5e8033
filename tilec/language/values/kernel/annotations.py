"""What authors ask for and nothing obeys: said as losses of the launch, or refused.

``annotations=`` of copies and loops takes any key, as in other tile languages: one that means nothing is a
loss. Other statements have no hints but the number of a schedule of warps; another key there is a mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.ir.roads import Loss, Road
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, source_error
from tilec.spelling import nearest

#: The key of ``annotations={T.WSID: id}``: the part of an author's schedule of warps that a statement is.
WSID = "ws_id"
#: Why such a schedule has no effect.
SCHEDULED_HERE = "tilec shares out the work of warps itself"


def known_annotations(construct: str, given: Any, keys: Collection[str] = ()) -> dict[str, Any]:
    """Those of ``keys`` among the annotations of a copy or a loop; every other one is a loss. Raises
    `SourceTypeError` for what is no dictionary."""
    annotations = _checked(construct, given)
    for key in annotations:
        if key not in keys:
            _say_unknown(construct, key, keys)
    return {key: value for key, value in annotations.items() if key in keys}


def check_annotations(construct: str, given: Any) -> None:
    """Raises `SourceValueError` for an annotation of a statement that has none; the number of a schedule of
    warps is a loss."""
    for key in _checked(construct, given):
        if key != WSID:
            raise source_error(
                SourceValueError,
                f"{construct} has no annotation {key!r}",
                construct=construct,
                remedy=f"{_nearest(key, (WSID,))}leave it out; known here: {WSID}",
            )
        _say_unknown(construct, key, ())


def unheeded(construct: str, condition: str, remedy: str) -> None:
    """A loss of the launch around: ``condition`` says what ``construct`` asks for in vain."""
    note(construct, "hint", "not as its author asks", Loss("", condition, remedy))


def note(statement: str, kind: str, how: str, loss: Loss) -> None:
    """A road, in the line of the author that runs, of the launch around it, or of all launches."""
    if sessions.current(statement).is_discovery:
        return
    builder, here = sessions.builder(statement), loc()
    frame = builder.kernel or builder.frames[0]
    frame.roads.append(Road(statement, kind, how, here.file, here.line, loss))


def _say_unknown(construct: str, key: Any, keys: Collection[str]) -> None:
    if key == WSID:
        unheeded(construct, SCHEDULED_HERE, "leave the schedule of warps out")
        return
    known = f"known here: {', '.join(keys)}" if keys else "it takes none"
    remedy = f"{_nearest(key, keys)}leave it out; {known}"
    unheeded(construct, f"the annotation {key!r} means nothing to {construct}", remedy)


def _nearest(key: Any, keys: Collection[str]) -> str:
    near = nearest(str(key), keys)
    return f"did you mean {near!r}? " if near else ""


def _checked(construct: str, given: Any) -> Mapping[Any, Any]:
    if given is None or isinstance(given, Mapping):
        return given or {}
    raise source_error(
        SourceTypeError,
        f"{construct} takes annotations as a dictionary, not {given!r}",
        construct=construct,
        remedy="write annotations={key: value}",
    )
