"""Iterations of T.Parallel that read what others of them store."""

from __future__ import annotations

import warnings

import pytest

import tilec.language as T
from tilec.language.frontend.elaborate import trace


def crossed(body):
    """The warnings about ``body(X, s, t)`` in a kernel."""

    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), ids: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=64) as bx:
            s, t = T.alloc_shared((64,), "float32"), T.alloc_fragment((64,), "float32")
            T.copy(X, s)
            T.clear(t)
            body(ids, s, t, bx)
            for i in T.Parallel(64):
                Y[i] = s[i] + t[i]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = trace(main, name="k", dims={}, args={}, config={}).remarks
    return [each for each in found if "others of them store" in each.what]


@T.macro
def shifted(ids, s, t, bx):
    for i in T.Parallel(64):
        s[i] = s[(i + 1) % 64]


@T.macro
def read_in_front_of_a_store(ids, s, t, bx):
    for i in T.Parallel(64):
        turned = s[63 - i]
        t[i] = turned
        s[i] = 1.0


@T.macro
def one_for_all(ids, s, t, bx):
    for i in T.Parallel(64):
        t[i] = t[i] - t[bx]


@T.macro
def sums_of_an_inner_loop(ids, s, t, bx):
    for i in T.Parallel(64):
        total = T.alloc_var("float32")
        for k in T.serial(4):
            total += s[(i + k) % 64]
        s[i] = total


@T.macro
def sums_of_many_trips(ids, s, t, bx):
    for i in T.Parallel(64):
        total = T.alloc_var("float32")
        for k in T.serial(500):
            total += s[k % 64]
        s[i] = total


@pytest.mark.parametrize(
    ("body", "buffer"),
    [
        (shifted, "s"),
        (read_in_front_of_a_store, "s"),
        (one_for_all, "t"),
        (sums_of_an_inner_loop, "s"),
        (sums_of_many_trips, "s"),
    ],
)
def test_reads_of_what_other_iterations_store_are_named(body, buffer):
    (remark,) = crossed(body)
    assert f"read elements of {buffer} that others of them store" in remark.what
    assert str(remark.place.file).endswith("test_language_crossed.py")
    assert remark.place.line is not None


@T.macro
def swapped(ids, s, t, bx):
    for i in T.Parallel(32):
        s[i], s[63 - i] = s[63 - i], s[i]


@T.macro
def sorted_pairs(ids, s, t, bx):
    for step in T.serial(6):
        for i in T.Parallel(64):
            other = i ^ (1 << step)
            if other > i:
                low = T.min(s[i], s[other])
                s[other] = T.max(s[i], s[other])
                s[i] = low


@T.macro
def other_half(ids, s, t, bx):
    for i in T.Parallel(64):
        if i < 32:
            s[i] = s[i + 32]


@T.macro
def other_half_by_a_choice(ids, s, t, bx):
    for i in T.Parallel(32):
        s[i] = T.if_then_else(i < 16, s[i], s[i + 32])


@T.macro
def by_places_from_memory(ids, s, t, bx):
    for i in T.Parallel(64):
        s[i] = s[ids[i]]


@T.macro
def added_up(ids, s, t, bx):
    for i in T.Parallel(64):
        s[0] += t[i]


@pytest.mark.parametrize(
    "body", [swapped, sorted_pairs, other_half, other_half_by_a_choice, by_places_from_memory, added_up]
)
def test_iterations_that_keep_apart_and_places_that_nobody_knows_are_none(body):
    assert crossed(body) == []
