"""How many registers threads that load and threads that compute get."""

from __future__ import annotations

import pytest
from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.statement_roles.split.loads import Load
from tilec.backends.cuda.statement_roles.split.registers import handed_on
from tilec.ir.nodes import Copy, Fill


def tile(rows, columns, scope="local.fragment", dtype="float32"):
    return tirx.decl_buffer((rows, columns), dtype, name="tile", scope=scope)


def load(gathers):
    to = tile(32, 512, "shared.dyn", "bfloat16")
    source = tile(4096, 512, "global", "bfloat16")
    copy = Copy(whole_tile(source), whole_tile(to))
    return Load(copy, to, copy, 8 if gathers else 0, "its rows are looked up" if gathers else None)


def sums(columns):
    return (Fill(whole_tile(tile(64, columns)), 0.0),)


@pytest.mark.parametrize(
    ("gathers", "columns", "expected"),
    [(True, 512, (88, 208)), (True, 896, (40, 232)), (False, 512, (40, 232)), (False, 896, (24, 240))],
)
def test_those_who_gather_get_few_where_sums_would_leave_registers(gathers, columns, expected):
    assert handed_on(2, [load(gathers)], sums(columns)) == expected
