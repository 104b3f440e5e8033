"""Loops that read some rows of a tensor and write others of it: vectors where no trip can meet another one's
elements, trips in order where one may."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated, numbers, roads

import tilec.language as T
from tilec.backends.cuda.codegen.images import source
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.targets import parse_target


def pages(words, loop, threads=32):
    n, pairs = T.dynamic("n, pairs")

    @T.prim_func
    def of_threads(cache: T.Tensor((n, words), "uint32"), moves: T.Tensor((pairs, 2), "int32")):
        with T.Kernel(pairs, threads=threads) as b:
            tx = T.get_thread_binding()
            src, dst = moves[b, 0], moves[b, 1]
            for i in T.serial(words // (threads * 4)):
                for v in loop(4):
                    cache[dst, (i * threads + tx) * 4 + v] = cache[src, (i * threads + tx) * 4 + v]

    @T.prim_func
    def of_blocks(cache: T.Tensor((n, words), "uint32"), moves: T.Tensor((pairs, 2), "int32")):
        with T.Kernel(pairs, threads=threads) as b:
            src, dst = moves[b, 0], moves[b, 1]
            for j in T.Parallel(words):
                cache[dst, j] = cache[src, j]

    return of_blocks if loop is None else of_threads


@pytest.mark.parametrize("loop", [T.vectorized, T.serial, None])
def test_rows_are_copied_within_a_tensor_as_vectors(loop):
    cache = np.arange(9 * 256, dtype=np.uint32).reshape(9, 256)
    moves = np.array([[0, 5], [3, 8], [2, 2]], np.int32)
    expected = cache.copy()
    expected[moves[:, 1]] = cache[moves[:, 0]]
    kernel = pages(256, loop)
    agree(kernel, cache, moves, expected=expected)
    assert "tilec_move_16" in _source(kernel, cache, moves)


def _source(kernel, *inputs, target="sm_80"):
    chip = parse_target(target)
    return source(lower_kernel(lower(elaborated(kernel, inputs, None, {}, {}), chip), chip), chip, "k")


def in_turn(ahead):
    @T.prim_func
    def main(X: T.Tensor((32, 16), "float32")):
        with T.Kernel(1, threads=32):
            t = T.get_thread_binding()
            for v in T.vectorized(8):
                X[t, v] = X[t, v] + 1.0
                X[t, v + ahead] = 5.0

    return main


@pytest.mark.parametrize("ahead", [1, 4, 8])
def test_trips_that_meet_elements_of_others_go_in_order(ahead):
    agree(in_turn(ahead), numbers(32, 16))


def both_halves(h=64):
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n, 2 * h), "float16")):
        with T.Kernel(n, threads=32) as b:
            for j in T.Parallel(h):
                low, high = X[b, j], X[b, j + h]
                X[b, j] = low - high
                X[b, j + h] = low + high

    return main


def test_halves_of_a_row_change_places_as_vectors():
    x = numbers(5, 128, dtype="float16")
    low, high = x[:, :64], x[:, 64:]
    agree(both_halves(), x, expected=np.concatenate([low - high, low + high], 1))
    assert not any(road.loss for road in roads(both_halves(), x))
