"""Iterations of T.Parallel that all store to one element, and extents below 0."""

from __future__ import annotations

import warnings

import pytest
from language_build import build

import tilec.language as T
from tilec.errors import SourceValueError
from tilec.language.frontend.elaborate import trace


def kernel(body):
    """A kernel whose only block runs ``body(X, Y, f)``."""

    @T.prim_func
    def main(X: T.Tensor((8, 64), "float32"), ids: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _:
            f = T.alloc_fragment((8,), "float32")
            T.clear(f)
            body(X, ids, Y, f)
            for i in T.Parallel(8):
                Y[i] = f[i]

    return main


@T.macro
def to_one_element(X, ids, Y, f):
    for i in T.Parallel(64):
        Y[0] = X[0, i]


@T.macro
def loses_one_axis(X, ids, Y, f):
    for i, j in T.Parallel(8, 64):
        f[i] = X[i, j]


@T.macro
def through_a_variable(X, ids, Y, f):
    for i in T.Parallel(64):
        twice = X[0, i] * 2
        if X[0, 0] > 0:
            Y[3] = twice


@T.macro
def in_an_inner_loop(X, ids, Y, f):
    for i in T.Parallel(64):
        for k in T.serial(8):
            Y[k] = X[k, i]


@pytest.mark.parametrize(
    ("body", "axis", "buffer"),
    [
        (to_one_element, "i", "Y"),
        (loses_one_axis, "j", "f"),
        (through_a_variable, "i", "Y"),
        (in_an_inner_loop, "i", "Y"),
    ],
)
def test_stores_of_all_iterations_to_one_element_are_named(body, axis, buffer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = trace(kernel(body), name="k", dims={}, args={}, config={}).remarks
    (remark,) = [each for each in found if "stores another value" in each.what]
    assert f"every {axis} stores another value to one element of {buffer}" in remark.what
    assert f"index it by {axis}" in remark.remedy
    assert str(remark.place.file).endswith("test_language_overwritten.py")
    assert remark.place.line is not None


@T.macro
def by_the_index(X, ids, Y, f):
    for i, j in T.Parallel(8, 8):
        Y[i * 8 + j] = X[i, j]


@T.macro
def by_a_loaded_index(X, ids, Y, f):
    for i in T.Parallel(64):
        Y[ids[i]] = X[0, i]


@T.macro
def by_a_variable(X, ids, Y, f):
    for i in T.Parallel(64):
        place = 63 - i
        Y[place] = X[0, i]


@T.macro
def accumulated(X, ids, Y, f):
    for i, j in T.Parallel(8, 64):
        f[i] = f[i] + X[i, j]


@T.macro
def largest(X, ids, Y, f):
    for i, j in T.Parallel(8, 64):
        f[i] = T.max(f[i], X[i, j])


@T.macro
def the_same_value(X, ids, Y, f):
    for _i in T.Parallel(64):
        Y[0] = X[0, 0]


@T.macro
def under_a_condition(X, ids, Y, f):
    for i in T.Parallel(64):
        if i == 5:
            Y[0] = X[0, i]


@T.macro
def one_iteration(X, ids, Y, f):
    for i in T.Parallel(1):
        Y[0] = X[0, i]


@T.macro
def of_each_thread(X, ids, Y, f):
    kept = T.alloc_local((1,), "float32")
    for i in T.Parallel(64):
        kept[0] = X[0, i]
        Y[i] = kept[0] * 2


@T.macro
def by_a_place_made_in_a_loop(X, ids, Y, f):
    for i in T.Parallel(64):
        place, bits = T.alloc_var("int32"), T.alloc_local((1,), "int32")
        place = 0
        bits[0] = i
        for _k in T.serial(6):
            place = place * 2 + bits[0] % 2
            bits[0] = bits[0] // 2
        Y[place] = X[0, i]


@pytest.mark.parametrize(
    "body",
    [by_the_index, by_a_loaded_index, by_a_variable, accumulated, largest, the_same_value, under_a_condition,
     one_iteration, of_each_thread, by_a_place_made_in_a_loop],
)  # fmt: skip
def test_other_stores_are_not(body):
    found = trace(kernel(body), name="k", dims={}, args={}, config={}).remarks
    assert not [each for each in found if "stores another value" in each.what]


# ---- extents below 0 ----


def _grid(extent):
    @T.prim_func
    def main(Y: T.Tensor((64,), "float32")):
        with T.Kernel(extent, threads=32) as bx:
            Y[bx] = 1.0

    return main


def _parallel(extent):
    @T.prim_func
    def main(Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(extent):
                Y[i] = 1.0

    return main


def _blocks(size):
    @T.prim_func
    def main(Y: T.Tensor((64,), "float32")):
        with T.Kernel(T.ceildiv(64, size), threads=32) as bx:
            Y[bx] = 1.0

    return main


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (_grid, "T.Kernel with a grid extent of -64"),
        (_parallel, "-64 is no extent"),
        (_blocks, "T.ceildiv by -64"),
    ],
)
def test_a_negative_block_size_is_refused_with_its_line(made, what):
    with pytest.raises(SourceValueError, match=what) as caught:
        build(made(-64))
    assert "correct the config" in caught.value.remedy
    assert caught.value.place is not None
    assert caught.value.place.line is not None


def test_ceildiv_of_numbers():
    assert T.ceildiv(65, 64) == 2
    for size in (-4, 0):
        with pytest.raises(SourceValueError, match=rf"T\.ceildiv by {size}"):
            T.ceildiv(65, size)


def test_more_blocks_than_an_index_counts_are_refused_with_their_line() -> None:
    with pytest.raises(SourceValueError, match="with a grid extent of 2147483648") as caught:
        build(_grid(2**31))
    assert caught.value.why is not None
    assert "0 to 2147483647 blocks" in caught.value.why
    assert "where from a dim, its value in the manifest" in (caught.value.remedy or "")
