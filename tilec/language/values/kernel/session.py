"""One elaboration: the dimensions it was asked for, what is known about them, and the kernel under way.

Thread-local, so that several threads may elaborate at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilec.errors import SourceRuntimeError
from tilec.language.values.kernel.places import source_error

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.language.values.kernel.builder import Builder
    from tilec.language.values.kernel.elaboration import Session

_STATE = threading.local()


class ReachedKernel(Exception):
    """The declarations of a kernel are over: what a discovery wanted to see."""


@contextmanager
def importing() -> Iterator[None]:
    """In the block, a build imports the author's modules on this thread."""
    before = getattr(_STATE, "importing", False)
    _STATE.importing = True
    try:
        yield
    finally:
        _STATE.importing = before


def for_a_build() -> bool:
    """Whether code that runs now becomes part of a library that is built for other machines."""
    session: Session | None = getattr(_STATE, "session", None)
    return getattr(_STATE, "importing", False) or (session is not None and not session.open_dims)


def active() -> bool:
    """Whether a kernel is being elaborated on this thread."""
    return getattr(_STATE, "session", None) is not None


def current(construct: str) -> Session:
    """The elaboration under way; raises `SourceRuntimeError` outside of one."""
    session: Session | None = getattr(_STATE, "session", None)
    if session is None:
        raise source_error(
            SourceRuntimeError,
            f"{construct} is used outside a kernel",
            construct=construct,
            remedy="use it in a @T.prim_func or a @tilec.jit function",
        )
    return session


def builder(construct: str) -> Builder:
    """The kernel body under way; raises `SourceRuntimeError` outside of one."""
    found = current(construct).builder
    if found is None:
        raise source_error(
            SourceRuntimeError,
            f"{construct} is used outside a kernel body",
            construct=construct,
            remedy="move it into the @T.prim_func or the eager kernel",
        )
    return found


@contextmanager
def elaborating(session: Session) -> Iterator[Session]:
    """Make ``session`` the current one of this thread."""
    previous = getattr(_STATE, "session", None)
    _STATE.session = session
    try:
        yield session
    finally:
        _STATE.session = previous


def simplify(expr: Expr) -> Expr:
    """The expression simplified with everything known about dimensions and loop variables."""
    session: Session | None = getattr(_STATE, "session", None)
    if session is None:
        return expr
    from tilec.ir.analysis.numbers.ranges import BEYOND_TYPE

    try:
        return session.analyzer.simplify(_faithful(expr, session))
    except BEYOND_TYPE:  # which the analyzer comes to
        return expr


def constant(expr: Expr) -> int | None:
    """The integer that the expression always has, or None."""
    from tvm.tirx import IntImm

    found = simplify(expr)
    return int(found.value) if isinstance(found, IntImm) else None


def known_or_expr(expr: Expr) -> int | Expr:
    """An extent: the integer it always is, else the expression as it stands."""
    known = constant(expr)
    return expr if known is None else known


def prove(expr: Expr) -> bool | None:
    """Whether a condition always (True) or never (False) holds; None if that is not known."""
    from tvm import tirx

    from tilec.ir.analysis.numbers.ranges import BEYOND_TYPE, as_data_has_it

    if expr.ty.dtype != "bool":
        known = constant(expr)
        return None if known is None else known != 0
    session: Session | None = getattr(_STATE, "session", None)
    if session is None:
        return None
    expr = as_data_has_it(expr, session.analyzer)
    try:
        if session.analyzer.can_prove(expr):
            return True
        return False if session.analyzer.can_prove(tirx.Not(expr)) else None
    except BEYOND_TYPE:  # which the analyzer comes to
        return None


def _faithful(expr: Expr, session: Session) -> Expr:
    from tilec.ir.analysis.numbers.ranges import as_types_have_it

    return as_types_have_it(expr, session.analyzer)
