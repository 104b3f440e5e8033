"""The text of groups and barriers: how the printer writes them and the parser reads them.

full = alloc_barriers((128, 128))
with thread_group(0, 128):
    barrier_wait(full[i], i % 2)
    bulk_load(x[0:+64], t[0:+64], full[i])
    barrier_arrive(full[i], expect=256, block=0)
    barrier_expect(full[i], 256)
cluster_barrier("arrive")
cluster_copy(s[0:+64], t[0:+64], block=1, barrier=full[i])
grid_barrier()
named_arrive(1, 64)
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm import tirx

from tilec.errors import IRError
from tilec.ir.nodes import barriers

if TYPE_CHECKING:
    from tilec.ir import nodes as ir
    from tilec.ir.text.parser import _Call, _Parser
    from tilec.ir.text.printer import Printer

ALLOC_WORD, GROUP_WORD = "alloc_barriers", "thread_group"


def barrier_buffer(name: str, count: int) -> Any:
    """The variable of ``count`` barriers."""
    return tirx.decl_buffer((count,), "uint64", name, scope=barriers.SCOPE)


def _element(out: Printer, stmt: Any) -> str:
    return f"{out.name(stmt.barrier)}[{out.expr(stmt.index)}]"


def _write_alloc(out: Printer, stmt: barriers.AllocBarrier) -> None:
    cluster = ", cluster=True" if stmt.cluster else ""
    out.line(f"{out.name(stmt.buffer)} = {ALLOC_WORD}({tuple(stmt.counts)!r}{cluster})")


def _write_group(out: Printer, stmt: barriers.Group) -> None:
    out.nest(f"with {GROUP_WORD}({stmt.first}, {stmt.count}):", stmt.body)


def _write_arrive(out: Printer, stmt: barriers.Arrive) -> None:
    expect = "" if stmt.expect is None else f", expect={out.expr(stmt.expect)}"
    block = "" if stmt.block is None else f", block={out.expr(stmt.block)}"
    out.line(f"barrier_arrive({_element(out, stmt)}{expect}{block})")


def _write_expect(out: Printer, stmt: barriers.ExpectBytes) -> None:
    out.line(f"barrier_expect({_element(out, stmt)}, {out.expr(stmt.count)})")


def _write_wait(out: Printer, stmt: barriers.WaitPhase) -> None:
    out.line(f"barrier_wait({_element(out, stmt)}, {out.expr(stmt.parity)})")


def _write_load(out: Printer, stmt: barriers.BulkLoad) -> None:
    alone = ", alone=True" if stmt.alone else ""
    out.line(f"bulk_load({out.region(stmt.src)}, {out.region(stmt.dst)}, {_element(out, stmt)}{alone})")


def _write_cluster(out: Printer, stmt: barriers.ClusterBarrier) -> None:
    out.line(f'cluster_barrier("{stmt.kind}")')


def _write_cluster_copy(out: Printer, stmt: barriers.ClusterCopy) -> None:
    block = "" if stmt.block is None else f", block={out.expr(stmt.block)}"
    barrier = "" if stmt.barrier is None else f", barrier={_element(out, stmt)}"
    out.line(f"cluster_copy({out.region(stmt.src)}, {out.region(stmt.dst)}{block}{barrier})")


def _write_grid(out: Printer, stmt: barriers.GridBarrier) -> None:
    out.line("grid_barrier()")


def _write_named(out: Printer, stmt: barriers.NamedArrive) -> None:
    out.line(f"named_arrive({stmt.number}, {stmt.count})")


WRITERS: dict[type[ir.Stmt], Callable[[Printer, Any], None]] = {
    barriers.AllocBarrier: _write_alloc,
    barriers.Group: _write_group,
    barriers.Arrive: _write_arrive,
    barriers.ExpectBytes: _write_expect,
    barriers.WaitPhase: _write_wait,
    barriers.BulkLoad: _write_load,
    barriers.ClusterBarrier: _write_cluster,
    barriers.ClusterCopy: _write_cluster_copy,
    barriers.GridBarrier: _write_grid,
    barriers.NamedArrive: _write_named,
}


def read_alloc(parser: _Parser, name: str, call: _Call) -> barriers.AllocBarrier:
    """``name = barriers(counts)``; the name is defined from here on."""
    counts = call.literal(0)
    parser.scope[name] = barrier_buffer(name, len(counts))
    return barriers.AllocBarrier(parser.scope[name], counts, call.literal("cluster", False))


def read_group(parser: _Parser, call: _Call, body: list[ast.stmt]) -> barriers.Group:
    """``with group(first, count):``."""
    return barriers.Group(call.literal(0), call.literal(1), parser.block(body))


def _place(parser: _Parser, node: ast.AST) -> tuple[Any, Any]:
    if not isinstance(node, ast.Subscript):
        raise IRError(f"expected a barrier, found {ast.unparse(node)}")
    return parser.variable(node.value), parser.expr(node.slice)


def _optional(parser: _Parser, call: _Call, key: str) -> Any:
    node = call.keywords.get(key)
    return None if node is None else parser.expr(node)


def _read_arrive(parser: _Parser, call: _Call) -> barriers.Arrive:
    expect, block = (_optional(parser, call, key) for key in ("expect", "block"))
    return barriers.Arrive(*_place(parser, call.arg(0)), expect, block)


def _read_expect(parser: _Parser, call: _Call) -> barriers.ExpectBytes:
    return barriers.ExpectBytes(*_place(parser, call.arg(0)), parser.expr(call.arg(1)))


def _read_wait(parser: _Parser, call: _Call) -> barriers.WaitPhase:
    return barriers.WaitPhase(*_place(parser, call.arg(0)), parser.expr(call.arg(1)))


def _read_load(parser: _Parser, call: _Call) -> barriers.BulkLoad:
    src, dst = parser.region(call.arg(0)), parser.region(call.arg(1))
    return barriers.BulkLoad(src, dst, *_place(parser, call.arg(2)), call.literal("alone", False))


def _read_cluster(parser: _Parser, call: _Call) -> barriers.ClusterBarrier:
    return barriers.ClusterBarrier(call.literal(0))


def _read_cluster_copy(parser: _Parser, call: _Call) -> barriers.ClusterCopy:
    src, dst = parser.region(call.arg(0)), parser.region(call.arg(1))
    node = call.keywords.get("barrier")
    barrier, index = (None, None) if node is None else _place(parser, node)
    return barriers.ClusterCopy(src, dst, _optional(parser, call, "block"), barrier, index)


def _read_grid(parser: _Parser, call: _Call) -> barriers.GridBarrier:
    return barriers.GridBarrier()


def _read_named(parser: _Parser, call: _Call) -> barriers.NamedArrive:
    return barriers.NamedArrive(call.literal(0), call.literal(1))


#: Statements that are a call of a word.
ACTIONS: dict[str, Callable[[_Parser, _Call], ir.Stmt]] = {
    "barrier_arrive": _read_arrive,
    "barrier_expect": _read_expect,
    "barrier_wait": _read_wait,
    "bulk_load": _read_load,
    "cluster_barrier": _read_cluster,
    "cluster_copy": _read_cluster_copy,
    "grid_barrier": _read_grid,
    "named_arrive": _read_named,
}
