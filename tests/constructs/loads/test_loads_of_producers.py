"""Loads of every kind go to the threads that load on sm_90a, with the results of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.statement_roles.split import loads
from tilec.backends.pipeline import lower
from tilec.targets import parse_target

M, N, K, TILE = 128, 64, 256, 64


@pytest.fixture(autouse=True)
def threads_of_producers_bring_any_tile(monkeypatch):
    monkeypatch.setattr(loads, "MOST_BYTES", 1 << 20)


def operands(rows=M):
    rng = np.random.default_rng(5)
    return [(rng.standard_normal(shape) / 4).astype(np.float16) for shape in ((rows, K), (N, K))]


def carried_out(kernel, inputs, expected, **ways):
    """All agree on the results of a kernel; ``ways`` are words of the roads of loads, by the tile's name."""
    made = elaborated(kernel, inputs, None, {}, {})
    roads = lower(made, parse_target("sm_90a"), until="split_roles").launches[0].roads
    rings = [road for road in roads if "ring of" in road.instruction]
    said = {road.statement.rpartition("-> ")[2]: road.instruction for road in rings}
    missing = [str(road) for road in roads]
    assert said.keys() == ways.keys(), missing
    assert all(way in said[tile] for tile, way in ways.items()), missing
    agree(kernel, *inputs, expected=expected, targets=("sm_90a",), rtol=2e-2, atol=2e-2)


def wide(*arrays):
    return [array.astype(np.float32) for array in arrays]


def gathered(where, threads):
    """C[i, n] = sum_k A[rows[i], k] B[n, k], rows from a tensor or a tile, 0 where there is none."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        rows: T.Tensor((M,), "int32"),
        C: T.Tensor((M, N), "float32"),
        total: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(M // TILE, threads=threads) as bx:
            table = T.alloc_shared((TILE,), "int32")
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((N, TILE), "float16")
            acc, sums = T.alloc_fragment((TILE, N), "float32"), T.alloc_fragment((TILE,), "float32")
            if where == "tile":
                T.copy(rows[bx * TILE], table)
            T.clear(acc)
            for k in T.Pipelined(K // TILE, num_stages=3):
                for i, j in T.Parallel(TILE, TILE):
                    if where == "tile":
                        a[i, j] = A[table[i], k * TILE + j]
                    else:
                        row = rows[bx * TILE + i]
                        a[i, j] = T.if_then_else(row >= 0, A[row, k * TILE + j], 0)
                T.copy(B[0, k * TILE], b)
                T.gemm(a, b, acc, transpose_B=True)
            T.reduce_sum(acc, sums, dim=1)
            T.copy(sums, total[bx * TILE])
            T.copy(acc, C[bx * TILE, 0])

    return kernel


@pytest.mark.parametrize(("where", "threads"), [("tile", 128), ("tensor", 128), ("tile", 256)])
def test_rows_by_a_table(where, threads):
    A, B = operands()
    rows = np.random.default_rng(6).permutation(M).astype(np.int32)
    if where == "tensor":
        rows[::3] = -1
    a, b = wide(A, B)
    C = np.where(rows[:, None] >= 0, a[rows], 0) @ b.T
    carried_out(gathered(where, threads), (A, B, rows), (C, C.sum(1)), a="cp.async of 16 bytes", b="TMA")


def converted(kind):
    """C = A B^T over an A that threads turn into float16 on its way: floats, or pairs of 4 bits."""
    source = ((M, K), "float32") if kind == "floats" else ((M, K // 2), "uint8")

    @T.prim_func
    def kernel(
        A: T.Tensor(source[0], source[1]),
        B: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float32"),
        total: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(M // TILE, threads=128) as bx:
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((N, TILE), "float16")
            acc, sums = T.alloc_fragment((TILE, N), "float32"), T.alloc_fragment((TILE,), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // TILE, num_stages=2):
                if kind == "floats":
                    T.copy(A[bx * TILE, k * TILE], a)
                else:
                    for i, j, part in T.Parallel(TILE, TILE // 2, 2):
                        bits = A[bx * TILE + i, k * (TILE // 2) + j] >> T.cast(4 * part, "uint8")
                        a[i, 2 * j + part] = T.cast(bits & T.uint8(15), "float16") - T.float16(8)
                T.copy(B[0, k * TILE], b)
                T.gemm(a, b, acc, transpose_B=True)
            T.reduce_sum(acc, sums, dim=1)
            T.copy(sums, total[bx * TILE])
            T.copy(acc, C[bx * TILE, 0])

    return kernel


@pytest.mark.parametrize("kind", ["floats", "nibbles"])
def test_values_that_threads_convert(kind):
    A, B = operands()
    given = A.astype(np.float32)
    if kind == "nibbles":
        given = np.random.default_rng(7).integers(0, 256, (M, K // 2)).astype(np.uint8)
        A = (np.stack([given & 15, given >> 4], -1).reshape(M, K).astype(np.float32) - 8).astype(np.float16)
    a, b = wide(A, B)
    C = a @ b.T
    carried_out(converted(kind), (given, B), (C, C.sum(1)), a="stores by the loading warpgroup", b="TMA")


def scaled(kind):
    """C = A (B s)^T: vectors beside tiles, and tiles that those who compute scale in their place."""
    shape = {"vector": (K,), "row": (2, K), "column": (K, 2), "differences": (K, 2)}[kind]

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        S: T.Tensor(shape, "float32"),
        C: T.Tensor((M, N), "float32"),
        total: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(M // TILE, threads=128) as bx:
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((N, TILE), "float16")
            s = T.alloc_shared((TILE,), "float32")
            acc, sums = T.alloc_fragment((TILE, N), "float32"), T.alloc_fragment((TILE,), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // TILE, num_stages=2):
                T.copy(A[bx * TILE, k * TILE], a)
                T.copy(B[0, k * TILE], b)
                if kind == "vector":
                    T.copy(S[k * TILE : (k + 1) * TILE], s)
                elif kind == "row":
                    T.copy(S[1, k * TILE : (k + 1) * TILE], s)
                elif kind == "column":
                    T.copy(S[k * TILE : (k + 1) * TILE, 1], s)
                else:
                    for j in T.Parallel(TILE):
                        s[j] = S[k * TILE + j, 1] - S[k * TILE + j, 0]
                for n, j in T.Parallel(N, TILE):
                    b[n, j] = b[n, j] * s[j]
                T.gemm(a, b, acc, transpose_B=True)
            T.reduce_sum(acc, sums, dim=1)
            T.copy(sums, total[bx * TILE])
            T.copy(acc, C[bx * TILE, 0])

    return kernel


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("vector", "TMA"),
        ("row", "TMA"),
        ("column", "cp.async of 4 bytes by the loading warp,"),
        ("differences", "stores by the loading warp,"),
    ],
)
def test_vectors_and_tiles_scaled_in_their_place(kind, way):
    A, B = operands()
    shape = {"vector": (K,), "row": (2, K)}.get(kind, (K, 2))
    S = np.random.default_rng(8).random(shape).astype(np.float32)
    s = {"vector": S, "row": S[-1]}.get(kind, S[..., -1])
    a, b = wide(A, B)
    C = a @ (b * (s - S[:, 0] if kind == "differences" else s)).T
    carried_out(scaled(kind), (A, B, S), (C, C.sum(1)), a="TMA", b="TMA", s=way)


def paged(page):
    """C = A K^T over keys in pages of a table: a tile is several pages, and two of them in step; running sums
    of C's sums of rows."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        pages: T.Tensor((2 * K // page, page, N), "float16"),
        biases: T.Tensor((2 * K // page, page, N), "float16"),
        table: T.Tensor((K // page,), "int32"),
        C: T.Tensor((M, N), "float32"),
        total: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(M // TILE, threads=128) as bx:
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((TILE, N), "float16")
            bias = T.alloc_shared((TILE, N), "float16")
            acc, sums = T.alloc_fragment((TILE, N), "float32"), T.alloc_fragment((TILE,), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // TILE, num_stages=2):
                T.copy(A[bx * TILE, k * TILE], a)
                for p in T.unroll(TILE // page):
                    number = table[k * (TILE // page) + p]
                    T.copy(pages[number, :, :], b[p * page : (p + 1) * page, :])
                    T.copy(biases[number, :, :], bias[p * page : (p + 1) * page, :])
                T.gemm(a, b, acc)
                T.gemm(a, bias, acc)
            T.reduce_sum(acc, sums, dim=1)
            T.cumsum(sums)
            T.copy(sums, total[bx * TILE])
            T.copy(acc, C[bx * TILE, 0])

    return kernel


@pytest.mark.parametrize(("page", "way"), [(16, "TMA"), (64, "TMA"), (4, "cp.async of 16 bytes")])
def test_tiles_of_several_pages(page, way):
    A, _ = operands()
    rng = np.random.default_rng(9)
    pages, biases = ((rng.standard_normal((2 * K // page, page, N)) / 8).astype(np.float16) for _ in range(2))
    table = rng.permutation(2 * K // page)[: K // page].astype(np.int32)
    a, keys = wide(A, pages[table].reshape(K, N).astype(np.float32) + biases[table].reshape(K, N))
    C = a @ keys
    sums = C.sum(1).reshape(-1, TILE).cumsum(1).reshape(-1)
    carried_out(paged(page), (A, pages, biases, table), (C, sums), a="TMA", b=way, bias=way)


def test_scans_of_a_stage():
    """C = A (B s)^T where s is the running sum of a vector, in its place."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        S: T.Tensor((K,), "float32"),
        C: T.Tensor((M, N), "float32"),
        total: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(M // TILE, threads=128) as bx:
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((N, TILE), "float16")
            s = T.alloc_shared((TILE,), "float32")
            acc, sums = T.alloc_fragment((TILE, N), "float32"), T.alloc_fragment((TILE,), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // TILE, num_stages=2):
                T.copy(A[bx * TILE, k * TILE], a)
                T.copy(B[0, k * TILE], b)
                T.copy(S[k * TILE : (k + 1) * TILE], s)
                T.cumsum(s)
                for n, j in T.Parallel(N, TILE):
                    b[n, j] = b[n, j] * s[j]
                T.gemm(a, b, acc, transpose_B=True)
            T.reduce_sum(acc, sums, dim=1)
            T.copy(sums, total[bx * TILE])
            T.copy(acc, C[bx * TILE, 0])

    A, B = operands()
    S = np.random.default_rng(8).random(K).astype(np.float32) / 16
    a, b = wide(A, B)
    C = a @ (b * S.reshape(-1, TILE).cumsum(1).reshape(-1)).T
    carried_out(kernel, (A, B, S), (C, C.sum(1)), a="TMA", b="TMA", s="TMA")


ENDS = np.array([0, 40, 40, 64, 128], np.int32)


def of_groups(made):
    """Each group of rows of A times a matrix of its own, tiles of all groups one after another; what of them
    begins where is ``made`` in the block."""
    groups = len(ENDS) - 1

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((groups, N, K), "float16"),
        ends: T.Tensor((groups + 1,), "int32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(2, threads=128) as bx:
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((N, TILE), "float16")
            acc, begin = T.alloc_fragment((TILE, N), "float32"), T.alloc_shared((groups + 1,), "int32")
            for e in T.Parallel(groups + 1):
                begin[e] = T.if_then_else(e > 0, T.ceildiv(ends[e] - ends[T.max(e - 1, 0)], TILE), 0)
            if made == "by a scan":
                T.cumsum(begin)
            else:
                most = T.alloc_fragment((1,), "int32")
                T.reduce_max(begin, most)
                begin[0] = most[0] - most[0]
                T.cumsum(begin)
            tile, e = T.alloc_var("int32", init=bx), T.alloc_var("int32", init=0)
            while tile < begin[groups]:
                while begin[e + 1] <= tile:
                    e += 1
                row = ends[e] + (tile - begin[e]) * TILE
                T.clear(acc)
                for k in T.Pipelined(K // TILE, num_stages=3):
                    T.copy(A[row : row + TILE, k * TILE : (k + 1) * TILE], a)
                    T.copy(B[e, :, k * TILE : (k + 1) * TILE], b)
                    T.gemm(a, b, acc, transpose_B=True)
                for i, j in T.Parallel(TILE, N):
                    if row + i < ends[e + 1]:
                        C[row + i, j] = acc[i, j]
                tile += 2

    return kernel


def of_groups_inputs():
    a, _ = operands()
    return [a, (np.random.default_rng(6).standard_normal((len(ENDS) - 1, N, K)) / 4).astype(np.float16), ENDS]


def test_places_that_a_scan_makes():
    a, b = wide(*of_groups_inputs()[:2])
    parts = zip(ENDS[:-1], ENDS[1:], b, strict=True)
    expected = np.concatenate([a[begin:end] @ part.T for begin, end, part in parts])
    carried_out(of_groups("by a scan"), of_groups_inputs(), expected, a="TMA", b="TMA")


def test_a_load_of_the_loop_is_to_blame():
    made = elaborated(of_groups("by a maximum"), of_groups_inputs(), None, {}, {})
    roads = lower(made, parse_target("sm_90a"), until="split_roles").launches[0].roads
    (road,) = (road for road in roads if road.loss and "warp roles" in str(road))
    assert road.statement == "A -> a"
    assert "the place of a load depends on" in road.loss.condition
