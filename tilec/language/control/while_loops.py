"""Loops on a condition: ``while`` and T.While."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.errors import Place, SourceRuntimeError
from tilec.ir import nodes as ir
from tilec.language.values.conversions import condition
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.builder import Builder, Frame
from tilec.language.values.kernel.places import source_error
from tilec.language.values.value import Value


@dataclass(frozen=True)
class WhileLoop:
    """A loop under way, whose statements are those of ``frame``. ``test`` is evaluated before each trip;
    ``fixed``: it reads no memory, so that it never changes."""

    builder: Builder
    frame: Frame
    test: Any
    fixed: bool

    def close(self) -> None:
        """Add the statement."""
        body = self.builder.pop(self.frame)
        self.builder.emit(ir.While(self.test, body, loc=self.frame.loc), "while")

    def check_ends(self) -> None:
        """Raise `SourceRuntimeError` for a loop that its body can neither end nor leave."""
        if not self.fixed or self.frame.is_left:
            return
        where = self.frame.loc
        raise SourceRuntimeError(
            "the condition of while never changes: the loop would not end once it runs",
            place=Place(where.file, where.line, "while", where.columns),
            why="it reads no variable and no buffer; a name that the body binds is another name",
            remedy="let the condition read a T.alloc_var or a buffer that the body assigns to",
        )


def enter(builder: Builder, frame: Frame, cond: Any) -> WhileLoop | None:
    """The loop on ``cond``, whose region ``frame`` was opened before ``cond`` was evaluated; None, the region
    closed, where ``cond`` is never true. Raises `SourceRuntimeError` where it is always true."""
    from tilec.ir.exprs import loads

    fixed = not isinstance(cond, Value) or not any(True for _ in loads(cond.expr))
    known = sessions.prove(cond.expr) if fixed and isinstance(cond, Value) else None
    known = bool(cond) if not isinstance(cond, Value) else known
    if known:
        raise source_error(
            SourceRuntimeError,
            "the condition of while is always true: it would never end",
            construct="while",
            remedy="test a T.alloc_var that the body sets, or leave a `for` over a bound with break",
        )
    if known is False:
        builder.pop(frame)
        builder.warn_once("while with a condition that is never true is left out")
        return None
    fixed = fixed and not frame.stmts
    return WhileLoop(builder, frame, _tested(builder, frame, cond), fixed)


def _tested(builder: Builder, frame: Frame, cond: Any) -> Any:
    """What is tested before each trip. A condition that takes statements to find (T.any_of of a tile) is
    found at the start of each trip, which then may leave the loop."""
    from tvm import tirx

    test = condition(cond, "while")
    if not frame.stmts:
        return test
    leave = ir.If(tirx.Not(test), (ir.Break(loc=frame.loc),), loc=frame.loc)
    builder.emit(leave, "while")
    return tirx.const(True, "bool")
