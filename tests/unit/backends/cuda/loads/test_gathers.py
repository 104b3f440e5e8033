"""Loads whose places are computed: what runs ahead of a pipelined loop, who moves what, what is shared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tvm import sym, tirx

from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.emit.copies.look_up import gathered_pieces
from tilec.backends.cuda.emit.emitter import DeviceEmitter
from tilec.backends.cuda.nodes import AsyncGather
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.exprs import int_value, substitute
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.lowering.analysis.facts import Facts
from tilec.targets import parse_target

SHIPPED = Path(__file__).parents[5] / "examples" / "kernels"
SM80 = parse_target("sm_80")


def decode(bN: int = 32, splits: int = 2) -> Kernel:
    """Decode attention over pages of 16, with 8 key heads and whole tiles of keys per split."""
    dims = {"B": Guard(), "Hkv": Guard(eq=8), "D": Guard(eq=64), "pages": Guard(), "longest": Guard(),
            "kv_page": Guard(div=8), "kv_row": Guard(div=8), "kv_head": Guard(div=8),
            "group": Guard(eq=8), "page": Guard(eq=16)}  # fmt: skip
    config = {"bN": bN, "splits": splits}
    entry = load_entry("decode.py:decode_paged", SHIPPED)
    return elaborate(entry, name="decode", dims=dims, args={"dtype": "float16"}, config=config)


def loop(value: str, *before: str) -> Kernel:
    """A pipelined loop that fills s with ``value`` (over k, i and j), then writes it out."""
    text = [
        'kernel("gather")',
        'x = tensor(float32, (256, 64), ("256", "64"), access="in")',
        't = tensor(int32, (64,), ("64",), access="in")',
        'y = tensor(float32, (64, 8, 64), ("64", "8", "64"), access="out")',
        "with launch(1, threads=(64, 1, 1)) as (bx,):",
        '    s = alloc(float32, (8, 64), "shared.dyn")',
        "    for k in pipelined(0, 64, num_stages=2):",
        *(f"        {line}" for line in before),
        "        for i, j in parallel(8, 64):",
        f"            s[i, j] = {value}",
        "        copy(s[0:+8, 0:+64], y[k:+1, 0:+8, 0:+64])",
    ]
    return parse_kernel("\n".join(text) + "\n")


def gathers(kernel: Kernel) -> list[AsyncGather]:
    """The asynchronous gathers of a lowered kernel."""
    return [stmt for stmt in walk(lower(kernel, SM80).body) if isinstance(stmt, AsyncGather)]


def test_decode_form(golden) -> None:
    golden(format_kernel(lower(decode(), SM80)))


@pytest.mark.parametrize(
    ("value", "width"),
    [
        ("x[t[k], j]", 4),
        ("x[t[k] * 8 + i, j]", 4),
        ("if_then_else(k * 8 + i < 100, x[k * 8 + i, j], 0.0)", 4),
        ("if_then_else(i < 3, x[i, j], float32(0.0))", 4),
        ("x[i, 63 - j]", 1),
        ("if_then_else(j < 5, x[i, j], 0.0)", 1),
        ("if_then_else(k < 9 and j < 40, x[k * 8 + i, j], 0.0)", 4),
        ("if_then_else(j < 42, x[i, j], 0.0)", 2),
        ("if_then_else(i + j // 8 - 1 >= 0, x[i + j // 8 - 1, j % 8], 0.0)", 4),
    ],
)
def test_computed_places_are_loaded_ahead(value: str, width: int) -> None:
    assert [gather.width for gather in gathers(loop(value))] == [width, width]
    text = cuda.source(to_tir(lower(loop(value), SM80), SM80), SM80, "test")
    assert text.count(f"tilec_cp_async_{4 * width}((&") == 2 * 512 // (64 * width)


@pytest.mark.parametrize(
    "value",
    ["if_then_else(i < 3, x[i, j], 1.0)", "x[i, j] + 1.0", "exp(x[i, j])", "cast(float32, k)", "y[k, i, j]"],
)
def test_what_is_no_plain_load_stays(value: str) -> None:
    assert gathers(loop(value)) == []


def test_a_tile_that_is_read_before_it_is_filled_stays() -> None:
    assert gathers(loop("x[t[k], j]", "copy(s[0:+1, 0:+64], y[k:+1, 0:+1, 0:+64])")) == []


@pytest.mark.parametrize(("bN", "pages"), [(16, 1), (64, 4)])
def test_a_page_is_looked_up_once(bN: int, pages: int) -> None:
    """In front of the loop and in it, for keys and for values."""
    text = cuda.source(to_tir(lower(decode(bN), SM80), SM80), SM80, "test")
    assert len(re.findall(r"int table_at\w* =", text)) == 4 * pages


@pytest.mark.parametrize(
    ("extents", "vector", "warps"), [((8, 64), 4, 2), ((16, 128), 8, 1), ((5, 24), 8, 4), ((64, 1), 1, 1)]
)
def test_pieces_cover_a_tile_once(extents: tuple[int, int], vector: int, warps: int) -> None:
    """Every element is moved by one thread: racecheck reports several, though they write the same."""
    ctx = DeviceEmitter(SM80, Facts(loop("x[i, j]")), warps=warps)
    ctx.lane, ctx.warp = tirx.Var("lane", "int32"), tirx.Var("warp", "int32")
    variables = (tirx.Var("i", "int32"), tirx.Var("j", "int32"))
    binds, pieces = gathered_pieces(variables, extents, vector, 4, ctx)
    parts = {bind.var: bind.value for bind in binds}
    names = {tile: ctx.env[tile] for tile in ctx.env}
    moved: dict[tuple[int, ...], int] = {}
    for lane in range(32):
        for warp in range(warps):
            place = {ctx.lane: tirx.const(lane, "int32"), ctx.warp: tirx.const(warp, "int32")}

            def number(expr, place=place) -> int | None:
                expr = substitute(substitute(substitute(expr, names), parts), place)
                return int_value(sym.Analyzer().simplify(expr))

            for piece in pieces:
                if all(number(guard) for guard in piece.guards):
                    start = tuple(number(piece.values[var]) for var in variables)
                    moved[start] = moved.get(start, 0) + 1
    rows, columns = extents
    assert sorted(moved) == [(row, column) for row in range(rows) for column in range(0, columns, vector)]
    assert set(moved.values()) == {1}
