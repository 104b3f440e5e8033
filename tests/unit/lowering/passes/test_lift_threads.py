"""Which loops of threads become loops over tiles, and which launches keep their threads."""

from __future__ import annotations

import pytest

from tilec.ir.nodes import Bind, Kernel, Launch, Parallel, Store, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.lowering.passes.lift_threads import LiftThreads
from tilec.targets import parse_target

HEAD = """\
kernel("by_threads")
X = tensor(float16, (64, 64), ("64", "64"), access="in")
Y = tensor(float16, (64, 64), ("64", "64"), access="out", output=True)
with launch(1, threads=(128, 1, 1)) as ((bx,), (tx, ty, tz)):
    a = alloc(float16, (64, 64), "shared.dyn")
    b = alloc(float16, (64, 64), "shared.dyn")
    row = alloc(float16, (64,), "shared.dyn")
    own = alloc(float16, (8,), "local")
    sums = alloc(float32, (64, 64), "local.fragment")
"""
PRODUCT = "gemm(a[0:+64, 0:+64], b[0:+64, 0:+64], sums[0:+64, 0:+64], trans_b=True, clear=True)"
#: Threads take eight neighbours each, in four trips.
SHARED_OUT = """\
for r in serial(0, 4, 1):
    for v in vectorized(0, 8, 1):
        {}
"""
AT = "r * 16 + tx // 8, tx % 8 * 8 + v"
FILL = SHARED_OUT.format(f"a[{AT}] = X[{AT}]")


def lifted(*parts: str, product: str = PRODUCT) -> Kernel:
    """What becomes of a launch of such statements, and a product."""
    lines = [line for part in (*parts, product) for line in part.splitlines()]
    kernel = parse_kernel(HEAD + "".join(f"    {line}\n" for line in lines))
    return LiftThreads().apply(kernel, parse_target("sm_90a"))


def launch(*parts: str, product: str = PRODUCT) -> Launch:
    """The launch of such a kernel."""
    return lifted(*parts, product=product).launches[0]


def loops(made: Launch) -> list[tuple[int, ...]]:
    """The extents of the loops over elements."""
    found = (stmt for stmt in walk(made.body) if isinstance(stmt, Parallel))
    return [tuple(map(int, loop.extents)) for loop in found]


OWN = f"    for v in vectorized(0, 8, 1):\n        a[{AT}] = own[v]"
LIFTED = {
    "at once": (FILL,),
    "barriers": (FILL, 'sync("threads")'),
    "arrays": (SHARED_OUT.format(f"own[v] = X[{AT}]").rstrip(), OWN),
    "one by one": (
        "for p in serial(0, 32, 1):",
        "    a[p * 2 + tx // 64, tx % 64] = X[p * 2 + tx // 64, tx % 64]",
    ),
    "results": (PRODUCT, SHARED_OUT.format(f"Y[{AT}] = a[{AT}]")),
    "names of names": (
        "eighth = tx // 8",
        "rest = tx % 8",
        "row_of = eighth + 0",
        "first = rest * 8",
        SHARED_OUT.format("a[r * 16 + row_of, first + v] = X[r * 16 + row_of, first + v]"),
    ),
}
ROWS = {
    "some": ("if tx < 64:", "    row[tx] = X[0, tx]"),
    "too many": (
        "for r in serial(0, 2, 1):",
        "    if r * 128 + tx < 64:",
        "        row[r * 128 + tx] = X[0, r * 128 + tx]",
    ),
}
STAY = {
    "in place": (SHARED_OUT.format(f"a[{AT}] = a[{AT}] + X[{AT}]"),),
    "of its own nest": (SHARED_OUT.format(f"a[{AT}] = b[tx % 64, v]") + f"        b[{AT}] = X[{AT}]",),
    "twice": (SHARED_OUT.format("a[r * 8 + tx // 16, tx % 8 * 8 + v] = X[r, v]"),),
    "after the loop": (
        SHARED_OUT.format(f"own[v] = X[{AT}]"),
        "for v in vectorized(0, 8, 1):",
        "    a[tx % 64, v] = own[v]",
    ),
    "same elements": (FILL, "row[tx % 64] = X[0, tx % 64]"),
    "atomics": (FILL, "atomic_add(row[0], cast(float16, tx))"),
    "unknown trips": (FILL.replace("serial(0, 4, 1)", "serial(0, bx, 1)"),),
    "in part": (
        "for v in vectorized(0, 4, 1):",
        "    own[v] = X[tx % 64, v]",
        SHARED_OUT.format(f"a[{AT}] = own[v]"),
    ),
}


@pytest.mark.parametrize("name", LIFTED)
def test_loops_that_fill_a_tile_are_lifted(name: str) -> None:
    made = launch(*LIFTED[name])
    assert not made.thread_vars
    assert loops(made) == [(64, 64)]


@pytest.mark.parametrize("name", ROWS)
def test_the_first_threads_may_fill_a_row(name: str) -> None:
    made = launch(*ROWS[name])
    assert not made.thread_vars
    assert loops(made) == [(64,)]


@pytest.mark.parametrize("name", STAY)
def test_launches_whose_threads_do_something_else_stay(name: str) -> None:
    assert launch(*STAY[name]).thread_vars


def test_arrays_of_small_floats_round_what_is_computed_of_them() -> None:
    twice = SHARED_OUT.format(f"own[v] = X[{AT}] + X[{AT}]").rstrip()
    text = format_kernel(lifted(twice, OWN))
    assert "a[i, j] = X[i, j] + X[i, j]" in text, "the store rounds"
    text = format_kernel(lifted(twice, OWN.replace("own[v]", "own[v] + own[v]")))
    held = "cast(float16, cast(float32, X[i, j] + X[i, j]))"
    assert f"a[i, j] = {held} + {held}" in text


def test_parts_of_long_values_have_names() -> None:
    """Written out, a value of 40 names of which each doubles the one before is a million millions long."""
    names = [f"n{link + 1} = n{link} + n{link}" for link in range(40)]
    nest = SHARED_OUT.format(f"n0 = X[{AT}]")
    made = lifted(nest.rstrip(), *(f"        {name}" for name in (*names, f"a[{AT}] = n40")))
    assert not made.launches[0].thread_vars
    (loop,) = (stmt for stmt in walk(made.launches[0].body) if isinstance(stmt, Parallel))
    *binds, store = loop.body
    assert binds
    assert all(isinstance(bind, Bind) for bind in binds)
    assert len(format_kernel(made)) < 5000
    assert isinstance(store, Store)


def test_a_launch_without_products_stays() -> None:
    assert launch(FILL, product="copy(a[0:+64, 0:+64], Y[0:+64, 0:+64])").thread_vars
