"""Spellings that programs have beside the usual ones: launches without extents, loops over threads with both
bounds, barriers by keyword, slices as places, names by annotation."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.errors import SourceTypeError, SourceValueError

LINE = np.arange(512, dtype=np.float32)


def test_one_block_without_extents():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(threads=64) as blocks:
            assert blocks == []
            for i in T.Parallel(64):
                B[i] = A[i] + T.get_block_extent(0)

    agree(main, LINE[:64], expected=LINE[:64] + 1)


def test_loops_over_threads_between_bounds():
    @T.prim_func
    def main(A: T.Tensor((4, 33), "int32")):
        with T.Kernel(1, threads=(32, 4)):
            for ty in T.thread_binding(0, 4, thread="threadIdx.y"):
                for tx in T.thread_binding(1, 33, "threadIdx.x", annotations={}):
                    A[ty, tx] = ty * 100 + tx
                A[ty, 0] = -1

    wanted = np.arange(4)[:, None] * 100 + np.arange(33)
    wanted[:, 0] = -1
    agree(main, expected=wanted)


def test_a_loop_over_more_threads_than_there_are():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            for tx in T.thread_binding(0, 64, thread="threadIdx.x"):
                A[tx] = tx

    with pytest.raises(ValueError, match="the block has 32 threads there"):
        elaborated(main, (), None, {}, {})


def test_barriers_by_keyword():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((128,), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            with T.ws(0):
                T.copy(A, tile)
                T.mbarrier_arrive(mbarrier=full[0])
                T.barrier_arrive(barrier_id=full[1])
            with T.ws(1):
                T.mbarrier_wait_parity(mbarrier=full[0], parity=0)
                T.barrier_wait(mb=full[1], parity=0)
                T.copy(tile, B)

    agree(main, LINE[:128], expected=LINE[:128])


def test_slices_take_vectors_scalars_and_slices():
    @T.prim_func
    def main(
        A: T.Tensor((512,), "float32"),
        B: T.Tensor((512,), "float32"),
        C: T.Tensor((4, 512), "float32"),
        D: T.Tensor((128,), "int32"),
    ):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            own, twice, rows = (T.alloc_local((4,), "float32") for _ in range(3))
            own[0:4] = T.ldg128(A[tx * 4 : tx * 4 + 4])
            twice[0:4] = own[0:4] * 2.0 + B[tx * 4 : tx * 4 + 4]
            rows[:] = 3
            C[0, tx * 4 : tx * 4 + 4] = own[0:4]
            C[1, tx * 4 : tx * 4 + 4] = twice
            C[2, tx * 4 : (tx + 1) * 4] = rows[0:4]
            C[3, tx * 4 : tx * 4 + 4] = T.Broadcast(T.cast(tx, "float32"), 4)
            halves = T.alloc_local((2,), "int16")
            halves[0:2] = T.ldg32(D[tx])
            halves[0:2] += T.int16x2(1, 2)
            T.stg32(D[tx], halves[0:2])

    words = (np.arange(128) * 65537).astype(np.int32)
    wanted = np.stack([LINE, LINE * 3, np.full(512, 3), np.repeat(np.arange(128), 4)]).astype(np.float32)
    agree(main, LINE, LINE, words, expected=[wanted, words + 1 + (2 << 16)])


def test_slices_of_tiles_are_copied_and_filled():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(2, threads=64) as bx:
            tile = T.alloc_shared((32, 64), "float16")
            tile[:, 0:32] = A[bx * 32 : (bx + 1) * 32, 32:64]
            tile[0:32, 32:64] = 0.5
            B[bx * 32 : bx * 32 + 32, :] = tile

    a = np.arange(64 * 64).reshape(64, 64) % 128
    wanted = np.concatenate([a[:, 32:], np.full((64, 32), 0.5)], axis=1)
    agree(main, a.astype(np.float16), expected=wanted)


def test_loaded_words_and_what_they_are_stored_to():
    @T.prim_func
    def main(A: T.Tensor((128,), "uint32"), B: T.Tensor((128,), "float32"), C: T.Tensor((256,), "float16")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            words = T.ldg128(A[tx * 4])
            B[tx * 4 : tx * 4 + 4] = words  # integers, as they were in memory
            C[tx * 8 : tx * 8 + 8] = words  # as many bytes

    halves = (np.arange(256) % 96).astype(np.float16)
    words = halves.view(np.uint32)
    agree(main, words, expected=[words.astype(np.float32), halves])


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (lambda A, x: x.__setitem__(slice(0, 4), T.ldg128(A[0])), "int8", "bits of float32 are stored"),
        (lambda A, x: x.__setitem__(slice(0, 3), T.ldg128(A[0])), "float32", "of 4 lanes is stored to"),
        (lambda A, x: x.__setitem__(slice(0, 2), A[0:3]), "float32", "a tile of 3 is assigned to"),
        (lambda A, x: x.__setitem__(0, A[0:3] * 2.0), "float32", "a slice of 3 elements of A is no operand"),
    ],
)
def test_slices_that_do_not_fit(body, kind, message):
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_local((4,), kind)
            body(A, x)
            B[0] = x[0]

    with pytest.raises((SourceValueError, SourceTypeError)) as caught:
        elaborated(main, (np.zeros(128, np.float32),), None, {}, {})
    assert message in caught.value.what


def test_names_by_annotation():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int64"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            first: T.let = A[tx]
            wide: T.let[T.int64] = A[tx]
            A[tx] = 0
            B[tx] = first + wide * 65536 * 65536
            with T.LetStmt(T.cast(first, "float32") * 0.5) as half:
                C[tx] = half

    a = np.arange(64, dtype=np.int32)
    agree(main, a, expected=[a * 0, a + a.astype(np.int64) * 2**32, a / 2])
