"""``break`` and ``continue`` of runtime loops, and of loops that are expanded while building."""

from __future__ import annotations

from tilec.errors import SourceRuntimeError, UnsupportedError
from tilec.ir import nodes as ir
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.builder import LOOPS, Builder
from tilec.language.values.kernel.places import loc, source_error, unsupported


def jump(builder: Builder, word: str, node: type[ir.Stmt]) -> bool:
    """``word`` ("break", "continue"): True if Python has to do it in a loop of its own, False if ``node`` was
    added. Raises `SourceRuntimeError` outside of loops, `UnsupportedError` where a loop cannot do it."""
    conditional = False
    for frame in reversed(builder.frames):
        conditional = conditional or frame.kind == "if"
        if frame.kind == "python":
            return _python_jump(word, conditional)
        if frame.kind in LOOPS:
            break
    else:
        raise source_error(
            SourceRuntimeError, f"{word} outside a loop", construct=word, remedy="move it into a loop"
        )
    if frame.kind == "parallel" and word == "break":
        raise unsupported("break in T.Parallel", remedy="guard the body with an if")
    frame.has_jump = True
    frame.is_left = frame.is_left or word == "break"
    builder.end_region(node(loc=loc()), word)
    return False


def _python_jump(word: str, conditional: bool) -> bool:
    if conditional:
        raise source_error(
            UnsupportedError,
            f"{word} of a Python loop under a runtime condition",
            construct=word,
            why="the loop is expanded while building",
            remedy="loop with T.serial",
        )
    return True


def loop_break() -> None:
    """``break`` of the innermost loop as a call, for helper functions and lambdas."""
    if jump(sessions.builder("T.loop_break"), "break", ir.Break):
        raise unsupported(
            "T.loop_break in a loop over a Python iterable",
            why="a call cannot leave a loop of Python",
            remedy="write break, or loop with T.serial",
        )
