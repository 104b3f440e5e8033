"""The text of thread-level statements: how the printer writes them and the parser reads them.

sync("threads", barrier=1, count=64)
thread_return()
v_1 = lane_shfl_xor(v, 16, width=16)
out[0] = thread_reduce(lambda a, b: a + b, 0.0, s[0], True, axes=(0,))
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm import tirx

from tilec.errors import IRError
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import threads

if TYPE_CHECKING:
    from tilec.ir import nodes as ir
    from tilec.ir.text.parser import _Call, _Parser
    from tilec.ir.text.printer import Printer

LANE_WORDS = tuple(f"lane_{kind}" for kind in threads.LANE_KINDS)
REDUCE_WORD = "thread_reduce"


def _write_sync(out: Printer, stmt: threads.Sync) -> None:
    named = "" if stmt.barrier is None else f", barrier={stmt.barrier}"
    counted = "" if stmt.count is None else f", count={stmt.count}"
    out.line(f'sync("{stmt.kind}"{named}{counted})')


def _write_return(out: Printer, stmt: threads.Return) -> None:
    out.line("thread_return()")


def _write_lane(out: Printer, stmt: threads.Lane) -> None:
    parts = [out.expr(operand) for operand in stmt.operands]
    parts += [f"width={stmt.width}"] if stmt.width != threads.WARP else []
    parts += [f"mask={out.expr(stmt.mask)}"] if stmt.mask is not None else []
    out.line(f"{out.name(stmt.var)} = lane_{stmt.kind}({', '.join(parts)})")


def _write_reduce(out: Printer, stmt: threads.ThreadReduce) -> None:
    left, right = (out.name(var) for var in stmt.vars)
    parts = [f"lambda {left}, {right}: {out.expr(stmt.combine)}"]
    parts += [out.expr(part) for part in (stmt.identity, stmt.value, stmt.cond)]
    indices = ", ".join(out.expr(index) for index in stmt.indices)
    element = f"{out.name(stmt.buffer)}[{indices or '()'}]"
    out.line(f"{element} = {REDUCE_WORD}({', '.join(parts)}, axes={stmt.axes!r})")


def _write_mma(out: Printer, stmt: threads.LaneMma) -> None:
    element = f"{out.name(stmt.buffer)}[{', '.join(map(out.expr, stmt.indices))}]"
    parts = ", ".join(map(out.expr, (stmt.a, stmt.b, stmt.lane)))
    out.line(f'lane_mma({element}, {parts}, shape="{stmt.shape}")')


def _write_load(out: Printer, stmt: threads.LaneLoad) -> None:
    element = f"{out.name(stmt.buffer)}[{', '.join(map(out.expr, stmt.indices))}]"
    parts = ", ".join(map(out.expr, (stmt.source, stmt.lane)))
    out.line(f"lane_load({element}, {parts}, count={stmt.count}, trans={stmt.trans})")


WRITERS: dict[type[ir.Stmt], Callable[[Printer, Any], None]] = {
    threads.Sync: _write_sync,
    threads.Return: _write_return,
    threads.Lane: _write_lane,
    threads.ThreadReduce: _write_reduce,
    threads.LaneMma: _write_mma,
    threads.LaneLoad: _write_load,
}


def _read_sync(parser: _Parser, call: _Call) -> threads.Sync:
    return threads.Sync(call.literal(0), call.literal("barrier", None), call.literal("count", None))


def _read_return(parser: _Parser, call: _Call) -> threads.Return:
    return threads.Return()


def _read_element(parser: _Parser, call: _Call) -> tuple[Any, tuple[Any, ...]]:
    place = call.arg(0)
    if not isinstance(place, ast.Subscript):
        raise IRError(f"{call.word} needs an element")
    return parser.variable(place.value), tuple(map(parser.expr, parser.indices(place.slice)))


def _read_mma(parser: _Parser, call: _Call) -> threads.LaneMma:
    buffer, indices = _read_element(parser, call)
    a, b, lane = (parser.expr(call.arg(place)) for place in (1, 2, 3))
    return threads.LaneMma(call.literal("shape", ""), buffer, indices, a, b, lane)


def _read_load(parser: _Parser, call: _Call) -> threads.LaneLoad:
    buffer, indices = _read_element(parser, call)
    source, lane = (parser.expr(call.arg(place)) for place in (1, 2))
    count, trans = call.literal("count", 4), call.literal("trans", False)
    return threads.LaneLoad(buffer, indices, source, count, trans, lane)


#: Statements that are a call of a word.
ACTIONS: dict[str, Callable[[_Parser, _Call], ir.Stmt]] = {
    "sync": _read_sync,
    "thread_return": _read_return,
    "lane_mma": _read_mma,
    "lane_load": _read_load,
}


def read_lane(parser: _Parser, name: str, call: _Call) -> threads.Lane:
    """``name = lane_kind(operands)``; the name is defined from here on."""
    kind = call.word.removeprefix("lane_")
    operands = tuple(parser.expr(node) for node in call.args)
    mask = call.keywords.get("mask")
    dtype = threads.lane_dtype(kind, tuple(dtype_of(operand) for operand in operands))
    limit = None if mask is None else parser.expr(mask)
    parser.scope[name] = tirx.Var(name, dtype)
    return threads.Lane(kind, parser.scope[name], operands, call.literal("width", threads.WARP), limit)


def read_reduce(parser: _Parser, buffer: Any, indices: tuple[Any, ...], call: _Call) -> threads.ThreadReduce:
    """``buffer[indices] = thread_reduce(lambda a, b: ..., identity, value, cond, axes=...)``."""
    combiner = call.arg(0)
    if not isinstance(combiner, ast.Lambda) or len(combiner.args.args) != 2:
        raise IRError(f"{REDUCE_WORD} needs a function of two operands")
    identity, value, cond = (parser.expr(call.arg(place)) for place in (1, 2, 3))
    left, right = (item.arg for item in combiner.args.args)
    pair = (tirx.Var(left, dtype_of(identity)), tirx.Var(right, dtype_of(identity)))
    outer = dict(parser.scope)
    parser.scope.update(zip((left, right), pair, strict=True))
    combine = parser.expr(combiner.body)
    parser.scope = outer
    return threads.ThreadReduce(
        pair, combine, identity, value, cond, buffer, indices, call.literal("axes", None)
    )
