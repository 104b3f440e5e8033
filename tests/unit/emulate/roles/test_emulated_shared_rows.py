"""Rows that `split_row` shares among the blocks of a cluster, on the emulator beside the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from breadth import parametrized
from emulated import KERNELS, SM90A, Beside, kernel_of, lowered

import tilec.language as T
from tilec.build.schedules.sketch import sketch
from tilec.errors import UnsupportedError
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.trials.oracle import Author

OPEN = {"M": Guard(), "N": Guard(), "ldx": Guard()}
#: Kernels that ship: what a block of theirs takes without the key.
SHIPPED = {
    "softmax": ("softmax.py:softmax", {}),
    "softmax float16": ("softmax.py:softmax", {"dtype": "float16", "parts": 1, "as_stored": True}),
    "rmsnorm": ("norm.py:rmsnorm_residual", {"dtype": "bfloat16"}),
    "layernorm": ("norm.py:layernorm", {}),
}


@parametrized(
    ("name", "parts"), [(name, parts) for name in SHIPPED for parts in (2, 8)],
    fast=[("softmax", 2), ("layernorm", 8)],
)  # fmt: skip
def test_rows_that_a_cluster_holds(name: str, parts: int) -> None:
    entry, args = SHIPPED[name]
    config = {"rows": 2, "bN": 64 * parts, "threads": 64, "one_chunk": True, "split_row": parts}
    beside = Beside(kernel_of(entry, {**OPEN, "N": Guard(max=64 * parts)}, args, **config), SM90A)
    for width in (5, 64 * parts - 1):
        assert beside.run({"M": 3, "N": width, "ldx": width + 3}) == [], width


@parametrized("name", SHIPPED, fast=["softmax"])
def test_longer_rows(name: str) -> None:
    """Of which blocks take a part of each chunk: with running maxima they meet in every trip."""
    entry, args = SHIPPED[name]
    beside = Beside(kernel_of(entry, OPEN, args, rows=1, bN=128, threads=32, split_row=4), SM90A)
    for width in (7, 131, 500):
        assert beside.run({"M": 2, "N": width, "ldx": width}) == [], width


@parametrized("split_row", [1, 4], fast=[4])
def test_rows_whose_first_columns_are_masked(split_row: int) -> None:
    """All of the first chunk, whose maximum is then none."""

    def masked(dims: dict[str, int], rng: np.random.Generator) -> list[np.ndarray]:
        rows = rng.standard_normal((dims["M"], dims["N"])).astype("float32")
        rows[:, :200] = -np.inf
        return [rows]

    kernel = kernel_of("softmax.py:softmax", OPEN, {}, rows=2, bN=128, threads=32, split_row=split_row)
    author = Author(load_entry("softmax.py:softmax_reference", KERNELS), masked)
    assert Beside(kernel, SM90A, author).run({"M": 3, "N": 300, "ldx": 300}) == []


@pytest.mark.emulate
@pytest.mark.parametrize("name", ["softmax float16", "rmsnorm"])
def test_rows_that_begin_anywhere(name: str) -> None:
    entry, args = SHIPPED[name]
    config = {"rows": 1, "bN": 512, "threads": 32, "one_chunk": True, "split_row": 2, "phase": True}
    beside = Beside(kernel_of(entry, {**OPEN, "N": Guard(max=512)}, args, **config), SM90A)
    for width, more in ((5, 0), (509, 0), (509, 8), (512, 1)):
        assert beside.run({"M": 3, "N": width, "ldx": width + more}) == [], (width, more)


def made(build: Any, split_row: int = 4, **dims: Guard) -> Any:
    """A kernel of this file."""
    return elaborate(
        build, name="kernel", dims={"M": Guard(), **dims}, args={}, config={"split_row": split_row}
    )


def statistics(M, N):
    """Extremes, a number for each row, and a scan, of rows of a tile in shared memory."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32"), S: T.Tensor((M,), "float32"),
        C: T.Tensor((1,), "int32"),
    ):  # fmt: skip
        with T.Kernel(M, threads=32) as b:
            x, r = T.alloc_shared((1, 64), "float32"), T.alloc_fragment((1, 64), "float32")
            low, high = [T.alloc_fragment((1,), "float32") for _ in range(2)]
            T.clear(high)
            for c in T.serial(T.ceildiv(N, 64)):
                T.copy(X[b, c * 64], r)
                T.reduce_absmax(r, high, dim=1, clear=False)
            for c in T.serial(T.ceildiv(N, 64)):
                T.copy(X[b, c * 64], x)
                T.cumsum(x, dim=1, reverse=True)
                for i, j in T.Parallel(1, 64):
                    Y[b + i, c * 64 + j] = x[i, j] / (high[i] + 1.0)
            T.reduce_min(r, low, dim=1)
            for i in T.Parallel(1):
                S[b + i] = low[i]
            for _i in T.Parallel(1):
                T.atomic_add(C[0], 1)

    return main


def test_scans_extremes_and_what_one_block_stores() -> None:
    beside = Beside(made(statistics, N=Guard()), SM90A)
    for width in (3, 64, 150):
        assert beside.run({"M": 2, "N": width}) == [], width


@parametrized("parts", [2, 8], fast=[2])
def test_running_sums_whose_carry_is_their_last_column(parts: int) -> None:
    config = {"rows": 2, "bN": 32 * parts, "threads": 32, "split_row": parts}
    beside = Beside(kernel_of("scan.py:cumsum", OPEN, {}, **config), SM90A)
    for width in (5, 129, 300):
        assert beside.run({"M": 3, "N": width, "ldx": width}) == [], width


def kept_columns(M, N):
    """Rows less their first column, and the maximum of the last ones so far."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32"), S: T.Tensor((M,), "float32")):
        with T.Kernel(M, threads=32) as b:
            x, top = T.alloc_shared((64,), "float32"), T.alloc_fragment((1,), "float32")
            for c in T.serial(T.ceildiv(N, 64)):
                T.copy(X[b, c * 64], x)
                T.reduce_max(x, top, dim=0)
                for j in T.Parallel(64):
                    Y[b, c * 64 + j] = (x[j] - x[0]) * top[0]
                for i in T.Parallel(1):
                    S[b + i] = x[63] + x[17]

    return main


def test_columns_that_all_blocks_read() -> None:
    beside = Beside(made(kept_columns, N=Guard()), SM90A)
    for width in (64, 150):
        assert beside.run({"M": 2, "N": width}) == [], width


def square(M, N):
    """A reduced row and, beside it, a loop both of whose axes are axes of tensors that columns go along."""

    @T.prim_func
    def main(
        X: T.Tensor((64, 64), "float32"), Y: T.Tensor((64, 64), "float32"), Z: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(M, threads=32) as b:
            x, s = T.alloc_fragment((1, 64), "float32"), T.alloc_fragment((1,), "float32")
            for j in T.Parallel(64):
                x[0, j] = X[0, j] + X[j, 0]
            T.reduce_sum(x, s, dim=1)
            for j in T.Parallel(64):
                Z[b, j] = x[0, j] * s[0]
            for i, j in T.Parallel(64, 64):
                Y[i, j] = X[i, j]

    return main


def test_a_loop_has_parts_along_one_of_its_axes() -> None:
    beside = Beside(made(square, N=Guard(min=64)), SM90A)
    assert beside.run({"M": 1, "N": 64}) == []


def passed_on(M, N):
    """Two reductions of many rows, between them a tile that is in use no more when parts of sums come."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 64), threads=64) as b:
            x, r = [T.alloc_fragment((64, 64), "float32") for _ in range(2)]
            s = T.alloc_shared((64, 64), "float32")
            top, total = [T.alloc_fragment((64,), "float32") for _ in range(2)]
            T.copy(X[b * 64, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(64, 64):
                s[i, j] = x[i, j] - top[i]
            for i, j in T.Parallel(64, 64):
                r[i, j] = s[63 - i, j]
            T.reduce_sum(r, total, dim=1)
            for i, j in T.Parallel(64, 64):
                Y[b * 64 + i, j] = r[i, j] + total[i]

    return main


def test_what_other_blocks_store_lies_on_no_tile_of_a_block_behind_them() -> None:
    """A block that has met the others may tell its sums while one of them still reads its tile."""
    beside = Beside(made(passed_on, 8, N=Guard()), SM90A)
    assert beside.run({"M": 64, "N": 64}) == []


def in_place(M, N):
    """Rows that take the place of those that are read."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as b:
            x, s = T.alloc_fragment((1, 64), "float32"), T.alloc_fragment((1,), "float32")
            for c in T.serial(T.ceildiv(N, 64)):
                T.copy(X[b, c * 64], x)
                T.reduce_sum(x, s, dim=1)
                for j in T.Parallel(64):
                    X[b, c * 64 + j] = x[0, j] * s[0]

    return main


def test_rows_in_place() -> None:
    beside = Beside(made(in_place, N=Guard()), SM90A)
    assert beside.run({"M": 2, "N": 100}) == []


def odd(M, N):
    """Columns that four blocks do not share equally."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), S: T.Tensor((M,), "float32")):
        with T.Kernel(M, threads=32) as b:
            x, s = T.alloc_fragment((1, 66), "float32"), T.alloc_fragment((1,), "float32")
            T.copy(X[b, 0], x)
            T.reduce_sum(x, s, dim=1)
            T.copy(s, S[b])

    return main


def neighbours(M, N):
    """Columns that read the one beside them."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as b:
            x, s = T.alloc_shared((1, 64), "float32"), T.alloc_fragment((1,), "float32")
            T.copy(X[b, 0], x)
            T.reduce_sum(x, s, dim=1)
            for j in T.Parallel(64):
                Y[b, j] = x[0, j ^ 1] + s[0]

    return main


def turned(M, N):
    """Rows that are read back from where other blocks of a cluster leave them."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as b:
            x, s = T.alloc_fragment((1, 64), "float32"), T.alloc_fragment((1,), "float32")
            T.copy(X[b, 0], x)
            T.reduce_sum(x, s, dim=1)
            for j in T.Parallel(64):
                Y[b, j] = x[0, j] * s[0]
            for j in T.Parallel(64):
                X[b, j] = Y[b, 63 - j]

    return main


def narrower(M, N):
    """Rows of which a tile of fewer columns is written once more."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as b:
            x, w = T.alloc_fragment((1, 64), "float32"), T.alloc_fragment((1, 32), "float32")
            s, u = [T.alloc_fragment((1,), "float32") for _ in range(2)]
            T.copy(X[b, 0], x)
            T.copy(X[b, 0], w)
            T.reduce_sum(x, s, dim=1)
            T.reduce_sum(w, u, dim=1)
            for j in T.Parallel(64):
                Y[b, j] = x[0, j] * s[0]
            for j in T.Parallel(32):
                Y[b, j] = w[0, j] * u[0]

    return main


def windows(M, N):
    """Tiles of a row that begin inside of those before them."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as b:
            x, s = T.alloc_fragment((1, 64), "float32"), T.alloc_fragment((1,), "float32")
            for c in T.serial(T.ceildiv(N, 48)):
                T.copy(X[b, c * 48], x)
                T.reduce_sum(x, s, dim=1)
                for j in T.Parallel(64):
                    Y[b, c * 48 + j] = x[0, j] * s[0]

    return main


def numbered(M, N):
    """A number for each row that a counter gives."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), S: T.Tensor((M,), "float32"), C: T.Tensor((1,), "int32")):
        with T.Kernel(M, threads=32) as b:
            x, s = T.alloc_fragment((1, 64), "float32"), T.alloc_fragment((1,), "float32")
            T.copy(X[b, 0], x)
            T.reduce_sum(x, s, dim=1)
            for i in T.Parallel(1):
                number = T.atomic_add(C[0], 1, return_prev=True)
                S[b + i] = s[i] + T.cast(number, "float32")

    return main


def clusters(M, N):
    """Clusters of the author's."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), S: T.Tensor((M,), "float32")):
        with T.Kernel(M * 2, threads=32, cluster_dims=2) as b:
            x, s = T.alloc_fragment((1, 64), "float32"), T.alloc_fragment((1,), "float32")
            T.copy(X[b // 2, 0], x)
            T.reduce_sum(x, s, dim=1)
            T.copy(s, S[b // 2])

    return main


@pytest.mark.parametrize(
    ("build", "parts", "why"),
    [
        (odd, 4, "66 columns of .* have no 4 equal parts"),
        (odd, 11, "clusters have up to 8 blocks"),
        (neighbours, 4, "an index of x is no variable of a loop"),
        (turned, 4, "Y is read and written, not at the same place"),
        (narrower, 4, "Y is written by several blocks, not at the same place"),
        (windows, 4, "Y is written by several blocks, not at the same place"),
        (numbered, 4, "C is read and written, not at the same place"),
        (clusters, 4, "the launch has clusters already"),
    ],
)
def test_what_blocks_cannot_share_is_refused(build: Any, parts: int, why: str) -> None:
    with pytest.raises(UnsupportedError, match=f"split_row = {parts}: {why}"):
        lowered(made(build, parts, N=Guard()), "sm_90a")


def test_where_the_key_does_nothing_a_note_says_so() -> None:
    (launch,) = lowered(made(statistics, N=Guard()), "sm_80").launches
    assert "split_row = 4 has no effect on sm_80: blocks form clusters from sm_90 on" in launch.notes
    assert launch.cluster == (1, 1, 1)


def test_what_is_foreseen_of_a_launch_counts_its_clusters() -> None:
    (alone,) = sketch(made(statistics, 1, N=Guard())).launches
    (shared,) = sketch(made(statistics, 4, N=Guard())).launches
    assert shared.grid == (*alone.grid, "4")
    assert (shared.cluster, shared.words) == (4, alone.words // 4)
    assert shared.shared_bytes == alone.shared_bytes // 4
