"""Where in the author's files the frontend stands: lines for statements and errors."""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import TYPE_CHECKING

from tilec.errors import Place, SourceError, UnsupportedError

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from tilec.ir.nodes import Loc

_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_NOT_AUTHORS = (_OWN, os.path.join(sysconfig.get_path("stdlib"), ""), "<frozen")


def _is_authors(file: str) -> bool:
    return not file.startswith(_NOT_AUTHORS) and "site-packages" not in file


def _authors_frame() -> FrameType | None:
    """The innermost frame outside tilec: the rewritten kernel or a helper that it called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_authors(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def here(construct: str | None = None) -> Place:
    """The author's line that is being executed, with the construct it uses."""
    frame = _authors_frame()
    if frame is None:
        return Place(key=construct)
    return Place(frame.f_code.co_filename, frame.f_lineno, construct)


def loc() -> Loc:
    """The author's line as a statement carries it."""
    from tilec.ir.nodes import Loc

    frame = _authors_frame() or sys._getframe(1)  # in a thread, before the kernel runs: nobody's
    return Loc(frame.f_code.co_filename, frame.f_lineno)


def place_of_traceback(trace: TracebackType | None) -> Place | None:
    """The innermost line of a traceback that lies in the author's code: not here, not in a package."""
    found = None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if _is_authors(file):
            found = Place(file, trace.tb_lineno)
        trace = trace.tb_next
    return found


def source_error(
    kind: type[SourceError], what: str, *, construct: str | None = None, why: str = "", remedy: str = ""
) -> SourceError:
    """An error of class ``kind`` at the author's current line, for the caller to raise."""
    return kind(what, place=here(construct), why=why, remedy=remedy)


def unsupported(construct: str, *, why: str = "", remedy: str = "") -> SourceError:
    """An `UnsupportedError` for a construct at the author's current line, for the caller to raise."""
    what = f"{construct} is not supported"
    return source_error(UnsupportedError, what, construct=construct, why=why, remedy=remedy)
