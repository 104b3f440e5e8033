"""Reductions over axes of threads: T.comm_reducer, T.attr(.., "reduce_scope", ..), T.tvm_thread_allreduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.errors import SourceError, SourceRuntimeError, SourceTypeError
from tilec.ir.nodes import threads as ir
from tilec.language.threads.launches import current_launch
from tilec.language.tiles.memory.buffers import Element
from tilec.language.values.conversions import condition
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.builder import Frame
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.operands import stored_value, wrap
from tilec.language.values.value import Value, resolve
from tilec.spelling import counted

_NAME = "T.tvm_thread_allreduce"
SCOPE = "reduce_scope"


@dataclass(frozen=True)
class CommReducer:
    """How two values become one, and what changes nothing."""

    combine: Callable[[Any, Any], Any]
    identity: Any


def comm_reducer(combine: Callable[..., Any], identity: Sequence[Any]) -> CommReducer:
    """A reduction: a commutative function of two values, and a list of one value that changes nothing."""
    if len(identity) != 1:
        raise unsupported(
            f"T.comm_reducer of {counted(len(identity), 'value')}",
            remedy="reduce one value; pack two into an integer",
        )
    return CommReducer(combine, identity[0])


class Attr:
    """``with T.attr(node, key, value)``, or a statement that covers the rest of the block.

    "reduce_scope" says how `tvm_thread_allreduce` combines; other keys are hints."""

    def __init__(self, node: Any, key: str, value: Any = None) -> None:
        self._frame: Frame | None = None
        if key != SCOPE:
            return
        if not isinstance(node, CommReducer):
            raise source_error(
                SourceTypeError,
                f'T.attr(.., "{SCOPE}", ..) takes what T.comm_reducer gave, not {node!r}',
                construct="T.attr",
                remedy="write T.attr(T.comm_reducer(f, [identity]), ...)",
            )
        self._frame = sessions.builder("T.attr").region()
        self._outer = self._frame.combiner
        self._frame.combiner = node

    def __enter__(self) -> None:
        """The body follows."""

    def __exit__(self, *error: Any) -> None:
        if self._frame is not None:
            self._frame.combiner = self._outer


def tvm_thread_allreduce(
    count: Any, value: Any, cond: Any, target: Any, *axes: Any, dtype: str = "handle"
) -> int:
    """``target`` = ``value`` of all threads along ``axes`` (thread indices) that ``cond`` holds in, combined
    as the `T.attr` around says; every one of them gets it."""
    from tvm import tirx

    launch, builder = current_launch(_NAME), sessions.builder(_NAME)
    number = sessions.constant(wrap(count).expr)
    if number != 1:
        raise unsupported(f"{_NAME} of {number} values", remedy="reduce one value at a time")
    reducer = _combiner()
    if not isinstance(target, Element):
        raise source_error(
            SourceTypeError,
            f"{_NAME} writes an element such as out[0], not {target!r}",
            construct=_NAME,
            remedy="give out[0] of a T.alloc_local",
        )
    to = target.buffer.dtype
    left, right = tirx.Var("a", str(to)), tirx.Var("b", str(to))
    stmt = ir.ThreadReduce(
        (left, right),
        stored_value(reducer.combine(Value(left), Value(right)), to, _NAME),
        stored_value(reducer.identity, to, _NAME),
        stored_value(value, to, _NAME),
        condition(cond, _NAME),
        target.buffer.var,
        target.indices,
        tuple(sorted(_axis(axis, launch.thread_indices()) for axis in axes)),
        loc=loc(),
    )
    builder.emit(stmt, _NAME)
    return 0


def _combiner() -> CommReducer:
    for frame in reversed(sessions.builder(_NAME).frames):
        if frame.combiner is not None:
            found: CommReducer = frame.combiner
            return found
    raise source_error(
        SourceRuntimeError,
        f"{_NAME} stands in no reduce_scope",
        construct=_NAME,
        remedy='put it under with T.attr(T.comm_reducer(f, [identity]), "reduce_scope", ...)',
    )


def _axis(axis: Any, indices: tuple[Any, ...]) -> int:
    found = resolve(axis)
    if isinstance(found, Value):
        for number, var in enumerate(indices):
            if found.expr.same_as(var):
                return number
    raise _no_axis(axis)


def _no_axis(axis: Any) -> SourceError:
    return source_error(
        SourceTypeError,
        f"{_NAME} over {axis!r}, which is no thread index",
        construct=_NAME,
        remedy="give what T.get_thread_binding returned",
    )
