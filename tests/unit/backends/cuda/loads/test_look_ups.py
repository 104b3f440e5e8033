"""What gathers of a loading warpgroup know before they begin: where it is looked up, who has which rows."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.emit.copies.look_up import _by_lines
from tilec.backends.cuda.nodes import AsyncGather, LookUp
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.layout_algebra import terms
from tilec.ir.nodes import For, Kernel, Stmt, walk
from tilec.ir.nodes.barriers import WaitPhase
from tilec.ir.text.expr_printer import format_expr
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")


def product(place: str) -> Kernel:
    """A product whose first operand is gathered from rows ``place`` (over k and i) of a tensor."""
    text = [
        'kernel("product")',
        "M = dim(int32)",
        "W = dim(int32)",
        'A = tensor(float16, (M, 256), ("M", "256"), access="in")',
        'B = tensor(float16, (64, 256), ("64", "256"), access="in")',
        'rows = tensor(int32, (4, 64), ("4", "64"), access="in")',
        'C = tensor(float32, (64, 64), ("64", "64"), access="out")',
        "with launch(1, threads=(128, 1, 1)) as (bx,):",
        '    A_s = alloc(float16, (64, 64), "shared.dyn")',
        '    B_s = alloc(float16, (64, 64), "shared.dyn")',
        '    acc = alloc(float32, (64, 64), "local.fragment")',
        "    fill(acc[0:+64, 0:+64], 0.0)",
        "    for k in pipelined(0, 4, num_stages=2):",
        "        for i, j in parallel(64, 64):",
        f"            A_s[i, j] = A[{place}, k * 64 + j]",
        "        copy(B[0:+64, k * 64:+64], B_s[0:+64, 0:+64])",
        "        gemm(A_s[0:+64, 0:+64], B_s[0:+64, 0:+64], acc[0:+64, 0:+64], trans_b=True, clear=False)",
        "    copy(acc[0:+64, 0:+64], C[0:+64, 0:+64])",
    ]
    return parse_kernel("\n".join(text) + "\n")


def roles(place: str) -> list[Stmt]:
    """The statements of the product with roles."""
    return list(walk(lower(product(place), SM90A, until="split_roles").launches[0].body))


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("rows[0, i]", ["rows[0, i]"]),
        ("rows[0, i] + rows[1, i]", ["rows[0, i]", "rows[1, i]"]),
        ("i // W + rows[0, i % 8]", ["i // W", "rows[0, i % 8]"]),
        ("i // 4 % W", ["i // 4 % W"]),
        ("i // 4 + 1", []),
    ],
)
def test_what_takes_long_is_computed_in_front_of_the_loop(place: str, values: list[str]) -> None:
    stmts = roles(place)
    (loop,) = (stmt for stmt in stmts if isinstance(stmt, For) and any(_gathers(stmt)))
    found = [stmt for stmt in stmts if isinstance(stmt, LookUp)]
    assert sorted(format_expr(stmt.value) for stmt in found) == sorted(values)
    assert not any(stmt in found for stmt in walk(loop.body))


def test_what_changes_with_the_trip_is_looked_up_before_there_is_room() -> None:
    (loop,) = (stmt for stmt in roles("rows[k, i]") if isinstance(stmt, For) and any(_gathers(stmt)))
    kinds = [type(stmt) for stmt in loop.body if isinstance(stmt, (LookUp, WaitPhase, AsyncGather))]
    assert kinds == [LookUp, WaitPhase, AsyncGather]


def _gathers(loop: For) -> list[bool]:
    return [isinstance(stmt, AsyncGather) for stmt in loop.body]


def test_code_of_a_trip_reads_no_table() -> None:
    text = str(to_tir(lower(product("rows[0, i]"), SM90A), SM90A).launches[0].func)
    producer = text[text.index("place = T.alloc_local") :]
    trips = producer[producer.index("for k") :]
    assert "rows" in producer[: producer.index("for k")]
    assert "rows[" not in trips


@pytest.mark.parametrize(("columns", "rows"), [(64, 4), (128, 4), (512, 4), (96, 8), (32, 2)])
def test_a_thread_has_the_same_part_of_every_line_of_few_rows(columns: int, rows: int) -> None:
    layout = _by_lines((64, columns), 4, 8, 2)
    held = [term.size for term in terms(layout, 0) if term.space == "reg"]
    assert (held or [1])[0] == rows
    assert layout.shape[1] >= columns
