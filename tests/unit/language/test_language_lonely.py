"""Barriers to which some threads alone come, and arrivals of more threads than a phase takes."""

from __future__ import annotations

import warnings

import pytest

import tilec.language as T
from tilec.language.frontend.elaborate import trace


def remarks(body, threads=256):
    """The warnings about ``body(X, s, tx)`` in a kernel."""

    @T.prim_func
    def main(X: T.Tensor((256,), "float32"), Y: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=threads):
            s = T.alloc_shared((256,), "float32")
            T.clear(s)
            body(X, s, T.get_thread_binding())
            T.copy(s, Y)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = trace(main, name="k", dims={}, args={}, config={}).remarks
    return [each.what for each in found if "waits for all" in each.what or "arrive at" in each.what]


@T.macro
def under_what_a_thread_reads(X, s, tx):
    if X[tx] > 0:
        s[tx] = X[tx]
        T.sync_threads()


@T.macro
def in_a_loop_of_a_thread(X, s, tx):
    for _ in T.serial(tx % 3):
        T.sync_threads()


@T.macro
def under_what_all_read(X, s, tx):
    for k in T.serial(4):
        if X[k] > 0:
            s[tx] = X[tx]
            T.sync_threads()


@T.macro
def among_a_group(X, s, tx):
    with T.ws(1):
        T.sync_threads()


@T.macro
def behind_threads_that_have_ended(X, s, tx):
    if X[0] < 0:
        T.thread_return()
    T.sync_threads()


@T.macro
def named(X, s, tx):
    if tx < 128:
        T.sync_threads(3, 128)


@pytest.mark.parametrize("body", [under_what_a_thread_reads, in_a_loop_of_a_thread])
def test_barriers_that_some_come_to(body):
    (what,) = remarks(body)
    assert what.startswith("T.sync_threads stands where only some threads of the block may come")


@pytest.mark.parametrize("body", [under_what_all_read, among_a_group, behind_threads_that_have_ended, named])
def test_barriers_that_all_come_to(body):
    assert not remarks(body)


def hand_over(arrivals, alone=False):
    """One group hands a tile over to another by a barrier of so many arrivals."""

    @T.macro
    def body(X, s, tx):
        full = T.alloc_barrier(arrivals)
        with T.ws(0):
            T.copy(X, s)
            if alone:
                if tx == 0:
                    T.barrier_arrive(full)
            else:
                T.barrier_arrive(full)
        with T.ws(1):
            T.barrier_wait(full, 0)

    return body


def test_arrivals_of_more_threads_than_a_phase_takes():
    assert remarks(hand_over(1)) == ["128 threads arrive at full, of which a phase takes 1"]
    assert remarks(hand_over([64, 32])) == ["128 threads arrive at full, of which a phase takes 64"]


def test_arrivals_that_a_phase_takes():
    assert not remarks(hand_over(128))
    assert not remarks(hand_over(1, alone=True))
