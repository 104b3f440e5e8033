"""Where in the author's files the frontend stands: lines for statements and errors."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import sysconfig
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tilec.errors import Place, SourceError, UnsupportedError

if TYPE_CHECKING:
    import ast
    from types import CodeType, FrameType, TracebackType

    from tilec.errors import Columns
    from tilec.ir.nodes import Loc

_OWN = os.path.join(str(Path(__file__).parents[3]), "")  # the package, as code objects spell it
#: What TVM puts into tracebacks.
_COMPILED = (".cc", ".h", ".pyx", ".pxi")
_NOT_AUTHORS = (_OWN, os.path.join(sysconfig.get_path("stdlib"), ""), "<frozen")
#: Characters of an operand in a message.
_LONGEST = 200


def _is_authors(file: str) -> bool:
    foreign = "site-packages" in file or file.endswith(_COMPILED)
    return not (foreign or file.startswith(_NOT_AUTHORS))


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
    line, columns = _position(frame.f_code, frame.f_lasti, frame.f_lineno)
    return Place(frame.f_code.co_filename, line, construct, columns)


def loc() -> Loc:
    """The author's construct as a statement carries it."""
    from tilec.ir.nodes import Loc

    frame = _authors_frame() or sys._getframe(1)  # in a thread, before the kernel runs: nobody's
    return Loc(frame.f_code.co_filename, *_position(frame.f_code, frame.f_lasti, frame.f_lineno))


def place_of_traceback(trace: TracebackType | None) -> Place | None:
    """The innermost construct of a traceback that lies in the author's code: not here, not in a package."""
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if _is_authors(code.co_filename):
            found = Place(code.co_filename, *_marked(code, trace.tb_lasti, trace.tb_lineno))
        trace = trace.tb_next
    return found


def place_of_node(file: str, node: ast.AST, construct: str | None = None) -> Place:
    """Where a piece of the author's source stands."""
    line = getattr(node, "lineno", None)
    return Place(file, line, construct, _columns(line, *_span(node)))


def _marked(code: CodeType, instruction: int, line: int) -> tuple[int, None, Columns | None]:
    """The arguments of a `Place` behind its file."""
    return (line, None, _position(code, instruction, line)[1])


def _position(code: CodeType, instruction: int, line: int) -> tuple[int, Columns | None]:
    """The line of an instruction and the columns of the construct that it belongs to. Before Python 3.11 code
    knows its lines only: the whole line is the construct."""
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return line, _whole_line(code.co_filename, line)
    first, last, start, end = next(islice(positions(), instruction // 2, None), (None,) * 4)
    return line, _columns(line, first, last, start, end)


def _columns(
    line: int | None, first: int | None, last: int | None, start: int | None, end: int | None
) -> Columns | None:
    """The part of a construct that lies in ``line``, its first one."""
    if line is None or first != line or start is None:
        return None
    return start, end if last == line else None


def _whole_line(file: str, line: int) -> Columns | None:
    text = linecache.getline(file, line).rstrip()
    return (len(text) - len(text.lstrip()), None) if text else None


def _span(node: ast.AST) -> tuple[int | None, ...]:
    names = ("lineno", "end_lineno", "col_offset", "end_col_offset")
    return tuple(getattr(node, name, None) for name in names)


def source_error(
    kind: type[SourceError], what: str, *, construct: str | None = None, why: str = "", remedy: str = ""
) -> SourceError:
    """An error of class ``kind`` at the author's current line, for the caller to raise. It lists the buffers
    and values that the author's call was given."""
    return kind(what, place=here(construct), why=why, given=_given(), remedy=remedy)


def unsupported(construct: str, *, why: str = "", remedy: str = "") -> SourceError:
    """An `UnsupportedError` for a construct at the author's current line, for the caller to raise."""
    what = f"{construct} is not supported"
    return source_error(UnsupportedError, what, construct=construct, why=why, remedy=remedy)


def _given() -> str:
    """The operands of the call that the author's line makes, as the author would write them down."""
    frame: FrameType | None = sys._getframe(1)
    called = None
    while frame is not None and not _is_authors(frame.f_code.co_filename):
        called, frame = frame, frame.f_back
    return "" if called is None or frame is None else operands_of(called)


def call_of_traceback(trace: TracebackType | None) -> FrameType | None:
    """The frame of tilec that the author's innermost line called; None where that line itself raised."""
    called = None
    while trace is not None:
        frame = trace.tb_frame
        if _is_authors(frame.f_code.co_filename):
            called = None
        elif called is None and frame.f_code.co_filename.startswith(_OWN):
            called = frame
        trace = trace.tb_next
    return called


def operands_of(called: FrameType) -> str:
    """The arguments of a call that have dtypes or shapes."""
    code, values = called.f_code, called.f_locals
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    found = [values[name] for name in code.co_varnames[:count] if name in values]
    shown = (_shortened(text) for value in found for text in _described(value))
    return "\n".join(dict.fromkeys(shown))


def _shortened(text: str) -> str:
    """The beginning and the end of a text of more than a line or two."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 4 :]}"


def _described(value: object) -> list[str]:
    """What an operand is, for those that have dtypes or shapes: `describe` of their classes."""
    if isinstance(value, (tuple, list)):
        return [text for item in value for text in _described(item)]
    text = getattr(type(value), "described", None)
    return [text(value)] if text is not None else []
