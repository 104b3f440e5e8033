"""Tiles that are added to boxes of tensors, on an emulated sm_90a: by TMA where the launch only adds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm.ir import Var

import tilec.language as T
from tilec.backends.cuda.analysis.pipelines.behind_rings import rings_of
from tilec.backends.cuda.codegen.images import source
from tilec.backends.cuda.matmul.strategy import Matmul
from tilec.backends.cuda.nodes import DrainStores, TensorAdd
from tilec.backends.cuda.passes.waits.place_shared import pool_bytes, shared_tiles
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.ir.nodes import Alloc, Kernel, Launch, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.lowering.emission.memory import tile_bytes
from tilec.targets import Target, parse_target

SM90A = parse_target("sm_90a")


def kernel_of(program: Any, **args: Any) -> Kernel:
    return elaborate(program(**args), name="kernel", dims={}, args={}, config={})


def added(kernel: Kernel) -> int:
    """How many statements of a kernel add by TMA."""
    launches = lower(kernel, SM90A).launches
    return sum(isinstance(stmt, TensorAdd) for launch in launches for stmt in walk(launch.body))


def text(kernel: Kernel, target: Target) -> str:
    """The CUDA source of a kernel."""
    return source(to_tir(lower(kernel, target), target), target, "kernel")


def staged_tiles(launch: Launch) -> set[Var]:
    """The shared tiles that what a launch adds passes through."""
    tiles = (stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc))
    return {tile for tile in tiles if "staged" in tile.name}


def run(kernel: Kernel, *arrays: np.ndarray) -> None:
    EmulatedKernel(kernel, SM90A)(list(arrays), {})


def shared_tile(rows, dtype, order=None, reads=False):
    """Each of three blocks adds all of A, tile by tile, the last one in part."""

    @T.prim_func
    def main(A: T.Tensor((rows, 64), dtype), C: T.Tensor((rows, 64), dtype), D: T.Tensor((64,), dtype)):
        with T.Kernel(3, threads=128):
            As = T.alloc_shared((64, 64), dtype)
            for k in T.serial(T.ceildiv(rows, 64)):
                T.copy(A[k * 64, 0], As)
                T.atomic_add(C[k * 64, 0], As, memory_order=order)
            if reads:
                for i in T.Parallel(64):
                    D[i] = C[0, i]

    return main


@pytest.mark.parametrize(
    ("dtype", "order"), [("float32", None), ("float16", None), ("int32", None), ("float32", "release")]
)
def test_a_shared_tile_is_added_as_a_box(dtype, order):
    made = kernel_of(shared_tile, rows=150, dtype=dtype, order=order)
    assert added(made) == 1
    a, c = (np.random.default_rng(seed).integers(-8, 9, (150, 64)).astype(dtype) for seed in (1, 2))
    wanted = c + 3 * a
    run(made, a, c, np.zeros(64, dtype))
    np.testing.assert_array_equal(c, wanted)


def test_threads_add_where_the_launch_reads_the_tensor():
    assert added(kernel_of(shared_tile, rows=64, dtype="float32", reads=True)) == 0


def bounded(rows, end):
    """Elements are added where a condition says so."""

    @T.prim_func
    def main(A: T.Tensor((rows, 64), "float32"), C: T.Tensor((rows, 64), "float32")):
        with T.Kernel(T.ceildiv(rows, 64), threads=128) as by:
            As = T.alloc_shared((64, 64), "float32")
            T.copy(A[by * 64, 0], As)
            for i, j in T.Parallel(64, 64):
                if by * 64 + i < end:
                    T.atomic_add(C[by * 64 + i, j], As[i, j])

    return main


@pytest.mark.parametrize(("end", "boxes"), [(100, 1), (90, 0)])
def test_a_condition_may_say_that_elements_lie_inside(end, boxes):
    made = kernel_of(bounded, rows=100, end=end)
    assert added(made) == boxes
    a, c = np.random.default_rng(7).standard_normal((2, 100, 64)).astype(np.float32)
    wanted = c.copy()
    wanted[:end] += a[:end]
    run(made, a, c)
    np.testing.assert_array_equal(c, wanted)


def parts_of_a_product(threads):
    """Blocks share K, unevenly; their sums meet in a tensor of the workspace, which a launch rounds."""

    @T.prim_func
    def main(A: T.Tensor((128, 256), "float16"), B: T.Tensor((256, 64), "float16"),
             C: T.Tensor((128, 64), "float16")):  # fmt: skip
        wide = T.alloc_global((128, 64), "float32")
        with T.Kernel(1, threads=128):
            T.fill(wide[0:128, 0:64], 0)
        with T.Kernel(2, threads=threads) as part:
            As, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 64), "float16")
            sums = T.alloc_fragment((128, 64), "float32")
            T.clear(sums)
            for k in T.Pipelined(1 + 2 * part, num_stages=2):
                T.copy(A[0, (part + k) * 64], As)
                T.copy(B[(part + k) * 64, 0], Bs)
                T.gemm(As, Bs, sums)
            for i, j in T.Parallel(128, 64):
                T.atomic_add(wide[i, j], sums[i, j])
        with T.Kernel(1, threads=128):
            T.copy(wide[0:128, 0:64], C[0:128, 0:64])

    return main


@pytest.mark.parametrize("threads", [128, 256])
def test_a_fragment_is_added_through_a_shared_tile(threads):
    made = kernel_of(parts_of_a_product, threads=threads)
    assert added(made) == 1
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((128, 256), (256, 64)))
    c = np.zeros((128, 64), np.float16)
    run(made, a, b, c)
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


def test_what_leaves_behind_a_loop_lies_where_its_rings_were():
    _, launch, _ = lower(kernel_of(parts_of_a_product, threads=256), SM90A).launches
    places = {str(alloc.buffer.name): alloc.place[1] for alloc in shared_tiles(launch.body)}
    ends = [places[str(ring.name)] + tile_bytes(Alloc(ring)) for ring in rings_of(launch)]
    assert places["sums_staged"] < max(ends)
    assert pool_bytes(launch) < max(ends) + 1024


def test_a_tile_is_read_while_threads_go_on():
    made = kernel_of(shared_tile, rows=64, dtype="float32")
    (launch,) = lower(made, SM90A).launches
    assert sum(isinstance(stmt, DrainStores) for stmt in walk(launch.body)) == 2


def rows_of_a_product(ends, scale):
    """Each block adds the rows of its part: up to an end that no tile has."""

    @T.prim_func
    def main(A: T.Tensor((192, 64), "float16"), B: T.Tensor((64, 64), "float16"),
             C: T.Tensor((160, 64), "float32")):  # fmt: skip
        with T.Kernel(3, threads=128) as part:
            As, Bs = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            sums = T.alloc_fragment((64, 64), "float32")
            T.clear(sums)
            for _ in T.Pipelined(2, num_stages=2):
                T.copy(A[part * 64, 0], As)
                T.copy(B, Bs)
                T.gemm(As, Bs, sums)
            for i, j in T.Parallel(64, 64):
                row = part * 48 + i
                if row < part * 48 + ends:
                    T.atomic_add(C[row, j], sums[i, j] * scale)

    return main


@pytest.mark.parametrize(("ends", "scale"), [(48, 1.0), (40, 0.5), (8, 2.0)])
def test_what_a_condition_leaves_out_adds_zeros(ends, scale):
    made = kernel_of(rows_of_a_product, ends=ends, scale=scale)
    assert added(made) == 1
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((192, 64), (64, 64)))
    c = rng.integers(-9, 9, (160, 64)).astype(np.float32)
    wanted = c.copy()
    for part in range(3):
        wanted[part * 48 : part * 48 + ends] += 2 * scale * a[part * 64 :][:ends].astype(np.float32) @ b
    run(made, a, b, c)
    np.testing.assert_array_equal(c, wanted)


def by_a_table(dtype, order=None, reads=False):
    """Rows of a tile are added to those that a table names, in vectors of what a thread has."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), dtype), rows: T.Tensor((64,), "int32"), C: T.Tensor((40, 64), dtype),
             D: T.Tensor((64,), dtype)):  # fmt: skip
        with T.Kernel(2, threads=128):
            held = T.alloc_fragment((64, 64), dtype)
            T.copy(A, held)
            for i, j in T.Parallel(64, 64):
                if i < 60:
                    T.atomic_add(C[rows[i], j], held[i, j] * 2, memory_order=order)
            if reads:
                for i in T.Parallel(64):
                    D[i] = C[0, i]

    return main


@pytest.mark.parametrize(
    ("dtype", "call"),
    [
        ("float32", "tilec_add_float32x4"),
        ("float16", "tilec_add_float16x8"),
        ("bfloat16", "tilec_add_bfloat16x8"),
    ],
)
def test_neighbours_are_added_at_once(dtype, call):
    made = kernel_of(by_a_table, dtype=dtype)
    assert text(made, SM90A).count(f"{call}(") == 2  # the function and its call
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    rng = np.random.default_rng(8)
    a, c = (rng.integers(-8, 9, shape).astype(kind) for shape in ((64, 64), (40, 64)))
    rows = rng.integers(0, 40, 64).astype(np.int32)
    wanted = c.astype(np.float32)
    np.add.at(wanted, rows[:60], 4 * a[:60].astype(np.float32))
    run(made, a, rows, c, np.zeros(64, kind))
    np.testing.assert_array_equal(c.astype(np.float32), wanted)


def test_older_gpus_add_pairs_of_float16():
    sm80 = parse_target("sm_80")
    assert text(kernel_of(by_a_table, dtype="float16"), sm80).count("tilec_add_float16x2(") == 1 + 4
    assert "tilec_add_" not in text(kernel_of(by_a_table, dtype="float32"), sm80)


@pytest.mark.parametrize(("reads", "fences"), [(False, False), (True, True)])
def test_additions_release_nothing_where_nobody_could_tell(reads, fences):
    made = kernel_of(by_a_table, dtype="float32", order="release", reads=reads)
    assert ("__threadfence" in text(made, SM90A)) == fences


def rows_by_a_table(dtype):
    """Rows of sums are added, weighted, to those that a table names: the last ones to none, and columns up to
    the end of a tensor that no tile has."""

    @T.prim_func
    def main(A: T.Tensor((70, 128), "float16"), B: T.Tensor((128, 136), "float16"),
             rows: T.Tensor((70,), "int32"), weights: T.Tensor((70,), "float32"),
             C: T.Tensor((40, 136), dtype)):  # fmt: skip
        with T.Kernel(2, 2, threads=128) as (bx, by):
            As, Bs = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 128), "float16")
            sums = T.alloc_fragment((64, 128), "float32")
            T.clear(sums)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[by * 64, k * 64], As)
                T.copy(B[k * 64, bx * 128], Bs)
                T.gemm(As, Bs, sums)
            for i, j in T.Parallel(64, 128):
                place = by * 64 + i
                if place < 67:
                    T.atomic_add(C[rows[place], bx * 128 + j], T.cast(sums[i, j] * weights[place], dtype))

    return main


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_product_may_add_to_rows_that_a_table_names(dtype):
    made = kernel_of(rows_by_a_table, dtype=dtype)
    (launch,) = lower(made, SM90A).launches
    assert isinstance(launch.strategy, Matmul)
    assert f"tilec_add_{dtype}x2(" in text(made, SM90A)
    rng = np.random.default_rng(9)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((70, 128), (128, 136)))
    rows, weights = rng.integers(0, 40, 70).astype(np.int32), rng.integers(1, 3, 70).astype(np.float32)
    c = rng.integers(-9, 9, (40, 136)).astype(dtype)
    wanted = c.astype(np.float32)
    np.add.at(wanted, rows[:67], (weights[:, None] * (a.astype(np.float32) @ b))[:67])
    run(made, a, b, rows, weights, c)
    np.testing.assert_array_equal(c.astype(np.float32), wanted)


def masked_trips(held):
    """Products of rows of A, of which the first n count, with ``held`` fragments that trips hand on."""

    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        n: T.int32,
        C: T.Tensor((256, 64), "float32"),
        D: T.Tensor((held, 64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            sums = [T.alloc_fragment((64, 64), "float32") for _ in range(held)]
            T.copy(B, Bs)
            for each in sums:
                T.clear(each)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64, 0], As)
                T.gemm(As, Bs, s, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    s[i, j] = T.if_then_else(k * 64 + i < n, s[i, j], 0)
                for number, each in enumerate(sums):
                    for i, j in T.Parallel(64, 64):
                        each[i, j] += s[i, j] * (number + 1)
                T.atomic_add(C[k * 64, 0], s)
            for number, each in enumerate(sums):
                T.copy(each, D[number, 0, 0])

    return main


@pytest.mark.parametrize(("held", "loops"), [(1, 2), (5, 1)])
def test_trips_that_go_apart_add_by_one_tile(held, loops):
    """A warpgroup that may share its multiprocessor keeps one loop where registers are few."""
    kernel = kernel_of(masked_trips, held=held)
    assert added(kernel) == loops
    (launch,) = lower(kernel, SM90A).launches
    assert len(staged_tiles(launch)) == 1
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, shape).astype("float16") for shape in ((256, 64), (64, 64)))
    c, d = np.ones((256, 64), "float32"), np.zeros((held, 64, 64), "float32")
    EmulatedKernel(kernel, SM90A)([a, b, 150, c, d], {})
    wanted = a.astype("float32") @ b.astype("float32")
    wanted[150:] = 0
    np.testing.assert_array_equal(c, 1 + wanted)
    np.testing.assert_array_equal(
        d, np.stack([wanted.reshape(4, 64, 64).sum(0) * (at + 1) for at in range(held)])
    )


@pytest.mark.parametrize(("columns", "tiles"), [(32, 2), (64, 1)])
def test_parts_of_other_extents_have_tiles_of_their_own(columns, tiles):
    """A launch adds all of its sums to a tensor, and some or all of their columns once more."""

    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((256, 64), "float32")
    ):
        with T.Kernel(1, threads=128) as _:
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            T.copy(B, Bs)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64, 0], As)
                T.gemm(As, Bs, s, clear_accum=True)
                T.atomic_add(C[k * 64, 0], s)
                for i, j in T.Parallel(64, columns):
                    T.atomic_add(C[k * 64 + i, j], s[i, j] * 2)

    kernel = kernel_of(lambda: main)
    assert added(kernel) == 2
    (launch,) = lower(kernel, SM90A).launches
    assert len(staged_tiles(launch)) == tiles
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-4, 5, shape).astype("float16") for shape in ((256, 64), (64, 64)))
    c = np.ones((256, 64), "float32")
    run(kernel, a, b, c)
    wanted = a.astype("float32") @ b.astype("float32")
    wanted[:, :columns] *= 3
    np.testing.assert_array_equal(c, 1 + wanted)
