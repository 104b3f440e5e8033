"""What is said of accesses that are no vectors."""

from __future__ import annotations

import pytest
from cuda_kernels import SM80, shipped
from told import losses, told

from tilec.backends.cuda.nodes import ThreadLoop
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel, walk
from tilec.ir.text.parser import parse_kernel

ROTARY = {"tokens": Guard(), "H": Guard(), "D": Guard(eq=64), "S": Guard(),
          "ldx": Guard(div=8), "ldy": Guard(div=8)}  # fmt: skip


def notes(kernel: Kernel) -> list[str]:
    """What the kernel's only launch loses."""
    return losses(to_tir(lower(kernel, SM80), SM80).launches[0])


def tile_notes(*lines: str, threads: int = 32) -> list[str]:
    """Those of `tile_text`."""
    return notes(parse_kernel(tile_text(*lines, threads=threads)))


def tile_text(*lines: str, threads: int = 32) -> str:
    """One block over x and y of 2048 numbers, with a shared tile s of 64 rows of 32."""
    text = [
        'kernel("tile")',
        'x = tensor(float32, (2048,), ("2048",), access="in")',
        'n = tensor(int32, (2048,), ("2048",), access="in")',
        'y = tensor(float32, (2048,), ("2048",), access="out")',
        f"with launch(1, threads=({threads}, 1, 1)) as (bx,):",
        '    s = alloc(float32, (64, 32), "shared.dyn")',
        "    for i, j in parallel(64, 32):",
        "        s[i, j] = x[i * 32 + j]",
        *(f"    {line}" for line in lines),
    ]
    return "\n".join(text) + "\n"


def test_what_is_vectorised_needs_no_note():
    assert tile_notes("for i, j in parallel(64, 32):", "    y[i * 32 + j] = s[i, j]") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y[i * 32 + j] = x[n[i * 32 + j]]", "x is read element by element: where it is follows from values"),
        ("y[i * 32 + j] = s[j, i % 32]", "s is read element by element: neighbours are in different rows"),
        ("y[i * 32 + j] = x[i + j * 2]", "x is read element by element: neighbours are 2 elements apart"),
        ("s[i, j] = s[i, (j + 16) % 32] + 1.0", "s is written element by element: the loop reads and writes"),
    ],
)
def test_an_access_that_is_no_vector_says_why(line, expected):
    found = tile_notes("for i, j in parallel(64, 32):", f"    {line}")
    assert any(note.startswith(expected) for note in found), found


def test_interleaved_pairs_are_vectors():
    kernel = shipped("rotary.py:rotary", ROTARY, {"rows": 16, "interleaved": True})
    assert not any("X is read element by element" in note for note in notes(kernel))


@pytest.mark.parametrize(
    ("shape", "least", "guard"), [("n,", "", ">=16"), ("4, n", "", "%8"), ("n,", ", min=16", None)]
)
def test_a_tensor_of_one_axis_need_hold_a_vector_alone(shape, least, guard):
    """So much is what to ask for; rows have to lie multiples apart."""
    sizes = ", ".join(f'"{each.strip()}"' for each in shape.split(",") if each.strip())
    first = "" if shape == "n," else "3, "
    text = f"""\
kernel("tile")
n = dim(int32{least})
x = tensor(float16, ({shape}), ({sizes},), access="in")
y = tensor(float16, ({shape}), ({sizes},), access="out")
with launch((n + 2047) // 2048, threads=(128, 1, 1)) as (bx,):
    for i in parallel(2048):
        if bx * 2048 + i < n:
            y[{first}bx * 2048 + i] = x[{first}bx * 2048 + i]
"""
    launch = to_tir(lower(parse_kernel(text), SM80), SM80).launches[0]
    remedies = {road.loss.remedy for road in launch.roads if road.loss}
    said = {f'pin the extent of its rows, or give the dimension a guard such as "{guard}"'}
    assert remedies == (said if guard else set())


def test_one_element_a_thread_is_no_vector():
    text = ("for i in parallel(128):", "    y[i] = x[i]")
    assert tile_notes(*text, threads=128) == [], "there is nothing to change"
    update = ("for j in parallel(32):", "    s[0, j] = s[0, j] + 1.0")
    assert tile_notes(*update) == [], "an element in its place is no other one"
    launch = to_tir(lower(parse_kernel(tile_text(*text, threads=128)), SM80), SM80).launches[0]
    why = "x is read element by element: the loop has no two elements for every thread"
    assert any(why in line for line in told(launch))


@pytest.mark.parametrize(("row", "vector"), [(32, 4), (33, 1)])
def test_lanes_have_neighbours_of_a_tensor_that_are_no_vectors(row, vector):
    """Whatever a tile allows: with four elements for each, lanes would store to four times as many lines."""
    text = tile_text("for i, j in parallel(32, 32):", f"    y[i * {row} + j] = s[i, j]")
    (launch,) = lower(parse_kernel(text), SM80).launches
    *_, loop = (stmt for stmt in walk(launch.body) if isinstance(stmt, ThreadLoop))
    assert loop.vector == vector
