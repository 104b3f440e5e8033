"""T.annotate_layout: tiles lie as their author says, and every result is the interpreter's."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from typing import Any

import pytest
from emulated import SM80, SM90A, Beside, elaborated

import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.nodes import Alloc, Kernel, walk
from tilec.ir.roads import Road
from tilec.ir.text.printer import format_layout
from tilec.language.frontend.elaborate import elaborate
from tilec.layout import make_swizzled_layout

TARGETS = pytest.mark.parametrize("target", [SM80, SM90A], ids=["sm_80", "sm_90a"])
Asked = Callable[[Any], Any] | None


def padded(columns: int) -> Callable[[Any], Any]:
    """Rows with ``columns`` free places behind them."""
    return lambda tile: T.Layout(tile.shape, lambda i, j: i * (tile.shape[1] + columns) + j)


def crossed(tile: Any) -> Any:
    """Chunks of 16 bytes permuted by the row, otherwise than this compiler does."""
    return T.Layout(tile.shape, lambda i, j: (i, j ^ (i % 4) * 8))


def turned(tile: Any) -> Any:
    """Columns one behind the other."""
    return T.Layout(tile.shape, lambda i, j: j * tile.shape[0] + i)


def product(
    left: Asked = None,
    right: Asked = None,
    sums: Any = None,
    columns: int = 32,
    rows: int = 32,
    width: int = 64,
) -> Any:
    @T.prim_func
    def main(
        A: T.Tensor((rows, 128), "float16"), B: T.Tensor((128, width), "float16"), C: T.Tensor((rows, width))
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((rows, columns), "float16")
            b = T.alloc_shared((columns, width), "float16")
            acc = T.alloc_fragment((rows, width), "float32")
            T.annotate_layout({tile: asked(tile) for tile, asked in ((a, left), (b, right)) if asked})
            T.annotate_layout({} if sums is None else {acc: sums})
            T.clear(acc)
            for k in T.Pipelined(128 // columns, num_stages=3):
                T.copy(A[0, k * columns], a)
                T.copy(B[k * columns, 0], b)
                T.gemm(a, b, acc)
            T.copy(acc, C)

    return elaborated(main)


def compiled(kernel: Kernel, target: Any) -> tuple[str, list[Road]]:
    """The CUDA text, and what is said of layouts."""
    lowered = to_tir(lower(kernel, target), target)
    roads = [road for road in lowered.launches[0].roads if road.kind == "layout"]
    return backend_of(target).text("source", lowered, target, "kernel"), roads


def layouts(kernel: Kernel, target: Any) -> dict[str, str]:
    """The layouts of tiles after inference."""
    found = lower(kernel, target, until="infer_layouts")
    return {
        str(stmt.buffer.name): format_layout(stmt.layout)
        for stmt in walk(found.body)
        if isinstance(stmt, Alloc) and stmt.layout is not None
    }


@TARGETS
@pytest.mark.parametrize(
    ("left", "expected", "shown"),
    [
        (make_swizzled_layout, "3:1024, 32:32, 32:1 ^ 4:8:64", r"a_column = .*\^"),
        (crossed, "3:1024, 32:32, 32:1 ^ 4:8:32", r"a_column = .*% \(uint\)4\) \* \(uint\)8"),
        (padded(8), "3:1280, 32:40, 32:1", r"\* \(uint\)40\)"),
        (padded(1), "32:33, 32:1", r"\* \(uint\)33\)"),
        (turned, "32:1, 32:32", r"tilec_bits_2"),
    ],
    ids=["swizzled", "crossed", "padded", "odd", "turned"],
)
def test_shared_tiles_lie_as_their_author_says(left, expected, shown, target):
    kernel = product(left, make_swizzled_layout, width=32)  # too few columns for wgmma
    text, roads = compiled(kernel, target)
    assert layouts(kernel, target)["a"] == expected
    assert [road.loss for road in roads] == [None, None]
    assert re.search(shown, text)
    assert Beside(kernel, target).run({}) == []


@TARGETS
def test_sums_in_an_order_of_their_own_are_converted(target):
    fragment = T.Fragment((32, 64), lambda i, j: (i * 4 + j // 16, j % 16))
    kernel = product(sums=fragment, columns=24)  # no depth of wgmma
    assert layouts(kernel, target)["acc"] == "8:4@lane 4:1@warp, 16:1@reg 4:1@lane"
    roads = to_tir(lower(kernel, target), target).launches[0].roads
    assert any("T.annotate_layout gives acc other places" in str(road) for road in roads)
    assert Beside(kernel, target).run({}) == []


@TARGETS
def test_fragments_decide_about_loops(target):
    @T.prim_func
    def main(A: T.Tensor((16, 64)), B: T.Tensor((16, 64))):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((16, 64), "float32")
            s = T.alloc_fragment((16,), "float32")
            T.annotate_layout(
                {f: T.Fragment((16, 64), lambda i, j: (j, i)), s: T.Fragment((16,), lambda i: (0, i))}
            )
            T.copy(A, f)
            T.reduce_sum(f, s, dim=1)
            for i, j in T.Parallel(16, 64):
                B[i, j] = f[i, j] + s[i]

    kernel = elaborated(main)
    assert layouts(kernel, target)["f"] == "16:1@reg, 32:1@lane 2:1@warp"
    assert all(road.loss is None for road in compiled(kernel, target)[1])
    assert Beside(kernel, target).run({}) == []


def test_warp_roles_say_which_layouts_they_have():
    kernel = product(make_swizzled_layout, padded(8), columns=64, rows=128)
    text, (left, right) = compiled(kernel, SM90A)
    assert "wgmma" in text
    assert left.loss is None
    assert right.loss is not None
    assert "slabs of 128 bytes" in right.loss.condition
    assert Beside(kernel, SM90A).run({}) == []


def held(i: Any, j: Any) -> Any:
    """The thread and the register of an accumulator's element."""
    return i // 16 * 32 + i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i // 8 % 2 * 2 + j % 2


def test_warp_roles_obey_who_asks_for_their_accumulators():
    kernel = product(sums=T.Fragment((64, 64), held), columns=64, rows=64)
    text, (road,) = compiled(kernel, SM90A)
    assert "wgmma" in text
    assert road.loss is None
    other = product(sums=T.Fragment((64, 64), lambda i, j: (i * 2 + j // 32, j % 32)), columns=64, rows=64)
    (road,) = compiled(other, SM90A)[1]
    assert "fragments those of wgmma" in str(road.loss)


def of_groups(asked: Any) -> Kernel:
    """A fragment of the second group of warps, and one of all of them."""

    @T.prim_func
    def main(A: T.Tensor((16, 64)), B: T.Tensor((16, 64)), C: T.Tensor((16, 64))):
        with T.Kernel(1, threads=256):
            f = T.alloc_fragment((16, 64), "float32")
            g = T.alloc_fragment((16, 64), "float32")
            T.annotate_layout({f: asked})
            T.copy(A, g)
            T.copy(g, C)
            with T.ws(1):
                T.copy(A, f)
                for i, j in T.Parallel(16, 64):
                    B[i, j] = f[i, j] * 2

    return elaborated(main)


@TARGETS
def test_a_fragment_of_one_group_lies_as_its_author_says(target):
    kernel = of_groups(T.Fragment((16, 64), lambda i, j: (j % 8 * 16 + i, j // 8)))
    assert layouts(kernel, target)["f"] == "16:1@lane, 2:16@lane 4:1@warp 8:1@reg"
    (road,) = compiled(kernel, target)[1]
    assert road.loss is None
    assert Beside(kernel, target).run({}) == []


def test_a_fragment_of_a_group_takes_no_more_threads_than_it_has():
    kernel = of_groups(T.Fragment((16, 64), lambda i, j: (j % 16 * 16 + i, j // 16)))
    (road,) = compiled(kernel, SM80)[1]
    assert "it takes 8 warps, 4 share f" in str(road.loss)


def refused(asked: Callable[[Any, Any, Any], dict[Any, Any]]) -> Road:
    """What is said of a layout that is not obeyed."""

    @T.prim_func
    def main(A: T.Tensor((32, 64), "float16"), B: T.Tensor((32, 64), "float16")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((32, 64), "float16")
            f = T.alloc_fragment((32, 64), "float16")
            T.annotate_layout(asked(A, s, f))
            T.copy(A, s)
            T.copy(s, f)
            T.copy(f, B)

    kernel = elaborated(main)
    assert Beside(kernel, SM80).run({}) == []
    (road,) = compiled(kernel, SM80)[1]
    return road


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (lambda A, s, f: {A: make_swizzled_layout(A)}, "memory of the caller"),
        (lambda A, s, f: {s: T.Layout((32, 64), lambda i, j: i * 64 + (i + j) % 64)}, "maps no digits"),
        (lambda A, s, f: {s: lambda i, j: i * 2}, "maps no digits"),
        (lambda A, s, f: {s: lambda i: i}, "has no value"),
        (lambda A, s, f: {s: T.Layout((64, 32))}, "is a tile of"),
        (
            lambda A, s, f: {f: T.Fragment((32, 64), lambda i, j: (i * 4 + j // 16, j % 16))},
            "it takes 4 warps",
        ),
    ],
)
def test_what_cannot_be_is_said_in_its_line(asked, why):
    road = refused(asked)
    assert road.loss is not None
    assert why in road.loss.condition
    assert road.loss.remedy
    assert "annotate_layout" in linecache.getline(road.file, road.line)


def groups(M, C):
    """Rows in groups of 32 columns: each is divided by its largest element."""

    @T.prim_func
    def main(
        X: T.Tensor((M, C), "float16"), Y: T.Tensor((M, C), "float16"), S: T.Tensor((M, C // 32), "float32")
    ):
        with T.Kernel(T.ceildiv(M, 4), threads=64) as b:
            x, top = T.alloc_fragment((4, C), "float32"), T.alloc_fragment((4, C // 32), "float32")
            T.copy(X[b * 4, 0], x)
            parts = T.view(x, (4, C // 32, 32))
            T.reduce_absmax(parts, top, dim=2)
            for i, j, k in T.Parallel(4, C // 32, 32):
                Y[b * 4 + i, j * 32 + k] = parts[i, j, k] / T.max(top[i, j], 1e-3)
            T.copy(top, S[b * 4, 0])

    return main


def heads(S, K):
    """Sums of a product in parts of a column: what all heads of a query add up to."""

    @T.prim_func
    def main(Q: T.Tensor((64, K), "float16"), X: T.Tensor((S, K), "float16"), Y: T.Tensor((S, 4), "float32")):
        with T.Kernel(T.ceildiv(S, 64), threads=128) as b:
            q, x = T.alloc_shared((64, K), "float16"), T.alloc_shared((64, K), "float16")
            sums, total = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, 4), "float32")
            T.copy(Q, q)
            T.copy(X[b * 64, 0], x)
            T.gemm(x, q, sums, transpose_B=True, clear_accum=True)
            parts = T.reshape(sums, (64, 4, 16))
            for i, j, k in T.Parallel(64, 4, 16):
                parts[i, j, k] = T.max(parts[i, j, k], 0.0)
            T.reduce_sum(parts, total, dim=2)
            T.copy(total, Y[b * 64, 0])

    return main


def packed(M, K):
    """Bytes with two numbers each, as fragments."""

    @T.prim_func
    def main(X: T.Tensor((M, K // 2), "uint8"), Y: T.Tensor((M, K), "float16")):
        with T.Kernel(T.ceildiv(M, 8), threads=64) as b:
            pairs, numbers = T.alloc_fragment((8, K // 2), "uint8"), T.alloc_fragment((8, K), "float16")
            T.copy(X[b * 8, 0], pairs)
            for i, j in T.Parallel(8, K):
                numbers[i, j] = T.cast(pairs[i, j // 2] >> (4 * (j % 2)) & 15, "float16") - 8.0
            T.copy(numbers, Y[b * 8, 0])

    return main


def unpacked(N, K):
    """A product whose second operand is made of bytes with two numbers each."""

    @T.prim_func
    def main(
        X: T.Tensor((64, K), "float16"), W: T.Tensor((N, K // 2), "uint8"), Y: T.Tensor((64, N), "float32")
    ):
        with T.Kernel(T.ceildiv(N, 64), threads=128) as b:
            x, w = T.alloc_shared((64, K), "float16"), T.alloc_shared((64, K // 2), "uint8")
            pairs, numbers = T.alloc_fragment((64, K // 2), "uint8"), T.alloc_fragment((64, K), "float16")
            wide, sums = T.alloc_shared((64, K), "float16"), T.alloc_fragment((64, 64), "float32")
            T.copy(X, x)
            T.copy(W[b * 64, 0], w)
            T.copy(w, pairs)
            for i, j in T.Parallel(64, K):
                numbers[i, j] = T.cast(pairs[i, j // 2] >> (4 * (j % 2)) & 15, "float16") - 8.0
            T.copy(numbers, wide)
            T.gemm(x, wide, sums, transpose_B=True, clear_accum=True)
            T.copy(sums, Y[0, b * 64])

    return main


@TARGETS
@pytest.mark.parametrize(
    ("build", "pinned", "dims"),
    [
        (groups, {"C": 256}, {"M": 5}),
        (groups, {"C": 96}, {"M": 3}),
        (heads, {"K": 64}, {"S": 70}),
        (packed, {"K": 64}, {"M": 11}),
        (unpacked, {"K": 64}, {"N": 70}),
    ],
)
def test_parts_of_an_index_are_in_registers(target, build, pinned, dims):
    """The layout allows it: nothing goes through shared memory, neither elements nor what is added up."""
    (name,) = dims
    guards = {name: Guard(), **{dim: Guard(eq=size) for dim, size in pinned.items()}}
    kernel = elaborate(build, name="views", dims=guards, args={}, config={})
    assert Beside(kernel, target).run({**dims, **pinned}) == []
    (launch,) = lower(kernel, target).launches
    tiles = [stmt.buffer.name for stmt in walk(launch.body) if isinstance(stmt, Alloc)]
    assert not [tile for tile in tiles if tile.endswith(("_shared", "_sums"))]


def passed_on(M, N):
    """A product whose sums go through a tile of the author's."""

    @T.prim_func
    def main(
        X: T.Tensor((M, 64), "float16"), W: T.Tensor((N, 64), "float16"), Y: T.Tensor((M, N), "float16")
    ):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            x, w = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            sums, tile = T.alloc_fragment((64, 64), "float32"), T.alloc_shared((64, 64), "float16")
            T.copy(X[by * 64, 0], x)
            T.copy(W[bx * 64, 0], w)
            T.gemm(x, w, sums, transpose_B=True, clear_accum=True)
            T.copy(sums, tile)
            T.copy(tile, Y[by * 64, bx * 64])

    return main


def test_tiles_that_sums_go_through_meet_no_bank_twice():
    kernel = elaborate(passed_on, name="passed", dims={"M": Guard(), "N": Guard(div=8)}, args={}, config={})
    assert Beside(kernel, SM80).run({"M": 70, "N": 72}) == []
    launch = to_tir(lower(kernel, SM80), SM80).launches[0]
    assert not [road for road in launch.roads if road.loss is not None and "bank" in road.loss.why]
