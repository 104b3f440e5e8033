"""Elements that choices may leave unread: read under a predicate, where nothing changes them meanwhile."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated, halves, numbers

import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.cuda.codegen.wide_accesses import wide_tensors
from tilec.backends.cuda.launch import launches_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.targets import parse_target


def lowered(kernel, *inputs, target="sm_90a"):
    chip = parse_target(target)
    return to_tir(lower(elaborated(kernel, inputs, None, {}, {}), chip), chip)


def source(kernel, *inputs, target="sm_90a"):
    chip = parse_target(target)
    return backend_of(chip).text("source", lowered(kernel, *inputs, target=target), chip, "k")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3", "int8", "float32", "float64"])
def test_patches_of_an_image_have_zeros_around_it(dtype):
    @T.prim_func
    def kernel(X: T.Tensor((2, 9, 7, 3), dtype), Y: T.Tensor((96, 27), dtype)):
        with T.Kernel(3, threads=64) as b:
            patches = T.alloc_shared((32, 32), dtype)
            for i, j in T.Parallel(32, 32):
                m = b * 32 + i
                h = m % 48 // 6 + j // 9 - 1
                w = m % 6 + j // 3 % 3 - 1
                inside = (h >= 0) & (h < 9) & (w >= 0) & (w < 7) & (j < 27)
                patches[i, j] = T.if_then_else(inside, X[m // 48, h, w, j % 3], T.cast(0, dtype))
            for i, j in T.Parallel(32, 27):
                Y[b * 32 + i, j] = patches[i, j]

    image = numbers(2, 9, 7, 3, dtype="float32" if dtype in ("bfloat16", "float8_e4m3") else dtype)
    agree(kernel, image)
    assert "tilec_take_element_int32" in source(kernel, image)
    (launch,) = launches_of(lowered(kernel, image))
    assert 0 not in wide_tensors(launch)


def test_tables_are_asked_where_their_reader_is_taken():
    @T.prim_func
    def kernel(rows: T.Tensor((96,), "int32"), X: T.Tensor((40,), "float32"), Y: T.Tensor((96,), "float32")):
        with T.Kernel(3, threads=32) as b:
            t = T.get_thread_binding()
            row = rows[b * 32 + t]
            other = T.if_then_else(row < -4, X[rows[-1 - row]], -1.0)
            Y[b * 32 + t] = T.if_then_else(row >= 0, X[row] * 2.0, other)

    table = np.random.default_rng(1).integers(-90, 40, 96).astype(np.int32)
    table[:90] = np.abs(table[:90]) % 40 * np.where(table[:90] % 3, 1, -1)
    agree(kernel, table, numbers(40, dtype="float32"))
    assert "tilec_take_element_int32_4" in source(kernel, table, numbers(40, dtype="float32"))


@pytest.mark.parametrize("target", ["gfx942", "metal3"])
def test_other_gpus_test_in_plain_code(target):
    @T.prim_func
    def kernel(X: T.Tensor((40,), "float16"), Y: T.Tensor((64,), "float16")):
        with T.Kernel(2, threads=32) as b:
            for i in T.Parallel(32):
                at = (b * 32 + i) * 5 % 64
                Y[b * 32 + i] = T.if_then_else(at < 40, X[at], T.float16(0))

    assert "tilec_take_element_int32_2" in source(kernel, halves(40), target=target)


def test_what_the_launch_writes_is_read_in_its_turn():
    @T.prim_func
    def kernel(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                Y[i] = X[i] + 1.0
            T.sync_threads()
            for i in T.Parallel(64):
                Y[i] = Y[i] + T.if_then_else(i % 5 == 2, Y[i] * 3.0, 0.0)

    x = numbers(64, dtype="float32")
    agree(kernel, x)
    assert "tilec_take_element" not in source(kernel, x)


def test_choices_by_choices_are_made_once_each():
    def chosen(X, i):
        value = X[i, 0]
        for place in list(range(1, 12)):
            value = T.if_then_else(value > 0.0, X[i, place], 1.0 - place)
        return value

    @T.prim_func
    def kernel(X: T.Tensor((64, 12), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                Y[i] = chosen(X, i)

    inputs = (numbers(64, 12, dtype="float32"),)
    agree(kernel, *inputs)
    assert len(source(kernel, *inputs)) < 20000


def test_elements_of_shared_tiles_are_read_in_front_of_choices():
    """The inverse of a lower triangle, row by row."""

    @T.prim_func
    def kernel(A: T.Tensor((32, 32), "float32"), X: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=32):
            a, x = (T.alloc_shared((32, 32), "float32") for _ in range(2))
            row = T.alloc_fragment((32,), "float32")
            T.copy(A, a)
            for i, j in T.Parallel(32, 32):
                x[i, j] = T.if_then_else(i == j, 1.0, 0.0)
            for i in T.serial(1, 32):
                T.clear(row)
                for k in T.serial(i):
                    for j in T.Parallel(32):
                        row[j] -= T.if_then_else(j <= k, a[i, k] * x[k, j], 0.0)
                for j in T.Parallel(32):
                    if j < i:
                        x[i, j] = row[j]
            T.copy(x, X)

    a = (numbers(32, 32, dtype="float32") / 8).astype(np.float32)
    expected = np.linalg.inv(np.tril(a, -1).astype(float) + np.eye(32))
    agree(kernel, a, expected=expected, rtol=1e-4, atol=1e-4)
    assert "float element = " in source(kernel, a)


def test_elements_that_only_the_choice_says_exist_are_read_where_it_holds():
    @T.prim_func
    def kernel(A: T.Tensor((32,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((32,), "float32")
            T.copy(A, a)
            for i in T.Parallel(64):
                Y[i] = T.if_then_else(i < 32, a[i], -1.0)

    a = numbers(32, dtype="float32")
    agree(kernel, a, expected=np.concatenate([a, -np.ones(32, np.float32)]))
    assert "element" not in source(kernel, a)
