"""Arrays of threads that hold what a tensor says are not kept; others stay."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.idioms.tiles.read_tables import ReadTables
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
TEXT = """
kernel("small")
K = tensor(float16, (1024, 64), ("1024", "64"), access="in")
picks = tensor(int8, (8, 16), ("8", "16"), access="in")
O = tensor(int8, (8, 16), ("8", "16"), access="out")
with launch(8, threads=(128, 1, 1)) as (bx,):
    table = alloc(int8, (16,), "local")
    Q = alloc(float16, (64, 64), "shared.dyn")
    Ks = alloc(float16, (64, 64), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    for v in serial(0, {stop}, 1):
        table[{place}] = {value}
    {more}
    for k in pipelined(0, 16, num_stages=2):
        if table[15 - k] != int8(0):
            copy(K[k * 64:+64, 0:+64], Ks[0:+64, 0:+64])
            {product}
"""
PLAIN = {
    "stop": "16",
    "place": "v",
    "value": "picks[bx, v] * int8(2)",
    "more": "last = table[0]",
    "product": "gemm(Q[0:+64, 0:+64], Ks[0:+64, 0:+64], acc[0:+64, 0:+64], clear=False)",
}


def rewritten(**change: str) -> tuple[str, str]:
    """A kernel before and behind the pass."""
    kernel = parse_kernel(TEXT.format(**{**PLAIN, **change}))
    return format_kernel(kernel), format_kernel(ReadTables().apply(kernel, SM90A))


def test_readers_of_a_table_read_the_tensor() -> None:
    _, text = rewritten()
    assert "table" not in text
    assert "last = picks[bx, 0] * int8(2)" in text
    assert "if picks[bx, 15 - k] * int8(2) != int8(0):" in text


@pytest.mark.parametrize(
    "change",
    [
        {"stop": "15"},
        {"place": "15 - v"},
        {"value": "int8(2)"},
        {"value": "O[bx, v]", "more": "O[bx, 0] = int8(1)"},
        {"more": "table[3] = int8(0)"},
        {"product": "fill(acc[0:+64, 0:+64], 0.0)"},
    ],
    ids=["a part", "another order", "no tensor", "what it writes", "written twice", "no product"],
)
def test_other_tables_stay(change: dict[str, str]) -> None:
    before, after = rewritten(**change)
    assert before == after
