"""What groups of warps and barriers refuse, with the line and what to do."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.errors import SourceIndexError, SourceTypeError, SourceValueError, UnsupportedError
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import native_target, parse_target


def kernel_of(body, threads=256):
    """The tile IR of a kernel around ``body(tx, X, s, f)``."""
    part = T.macro(body)

    @T.prim_func
    def kernel(X: T.Tensor((64, 32), "float16")):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            s = T.alloc_shared((64, 32), "float16")
            f = T.alloc_fragment((64, 32), "float16")
            part(tx, X, s, f)

    return elaborate(kernel, name="kernel", dims={}, args={}, config={})


def group_beyond(tx, X, s, f):
    with T.ws(2):
        T.copy(X, s)


def no_group(tx, X, s, f):
    with T.ws():
        T.copy(X, s)


def groups_apart(tx, X, s, f):
    with T.ws(0, 2):
        T.copy(X, s)


def group_of_a_value(tx, X, s, f):
    with T.ws(tx):
        T.copy(X, s)


def no_arrivals(tx, X, s, f):
    T.alloc_barrier(0)


def run_time_arrivals(tx, X, s, f):
    T.alloc_barrier(tx)


def barrier_beyond(tx, X, s, f):
    mb = T.alloc_barrier([128, 128])
    T.mbarrier_arrive(mb[2])


def no_barrier(tx, X, s, f):
    T.tma_copy(X, s)


def not_a_barrier(tx, X, s, f):
    T.mbarrier_arrive(3)


def not_a_mask(tx, X, s, f):
    mb = T.alloc_barrier(128)
    T.tma_copy(X, s, barrier=mb, cluster_mask=0)


def not_warps(tx, X, s, f):
    mb = T.alloc_barrier(128)
    T.tma_copy(X, s, barrier=mb, leader_scope_threads=48)


def from_registers(tx, X, s, f):
    T.tma_copy(f, X)


def every_second_thread(tx, X, s, f):
    if tx % 2 == 0:
        T.copy(X, s)


def a_part_of_a_warp(tx, X, s, f):
    if tx < 48:
        T.copy(X, f)


def loops_of_threads(tx, X, s, f):
    for _i in T.serial(tx):
        T.copy(X, s)


def by_data(tx, X, s, f):
    if X[tx % 64, 0] > 0:
        T.copy(X, s)


def fragment_of_groups(tx, X, s, f):
    with T.ws(0):
        T.copy(X, f)
    with T.ws(1):
        T.clear(f)
    T.copy(f, s)


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (group_beyond, SourceValueError, "T.ws(2) of a block of 256 threads"),
        (no_group, SourceValueError, "T.ws needs at least one group"),
        (groups_apart, UnsupportedError, "T.ws of the groups 0, 2, which do not follow each other"),
        (group_of_a_value, SourceTypeError, "T.ws takes the numbers of groups"),
        (no_arrivals, SourceValueError, "a phase takes at least one arrival"),
        (run_time_arrivals, SourceTypeError, "T.alloc_barrier takes build-time integers"),
        (barrier_beyond, SourceIndexError, "mb[2] does not exist: it has 2 barriers"),
        (no_barrier, SourceValueError, "T.tma_copy into shared memory needs a barrier"),
        (not_a_barrier, SourceTypeError, "T.mbarrier_arrive takes a barrier, not int"),
        (not_a_mask, SourceValueError, "cluster_mask 0 is no positive integer"),
        (not_warps, SourceValueError, "leader_scope_threads 48 is no positive multiple of 32"),
        (from_registers, SourceValueError, "T.tma_copy from local.fragment to global memory"),
        (every_second_thread, UnsupportedError, "tile operations under a condition"),
        (a_part_of_a_warp, UnsupportedError, "tile operations under a condition"),
        (loops_of_threads, UnsupportedError, "tile operations under a condition"),
        (by_data, UnsupportedError, "tile operations under a condition"),
        (fragment_of_groups, UnsupportedError, "f belongs to groups of threads"),
    ],
)
def test_what_is_refused_names_the_line(body, kind, text):
    with pytest.raises(kind) as caught:
        kernel_of(body)
    assert text in str(caught.value)
    assert caught.value.place.file == __file__
    first = body.__code__.co_firstlineno
    assert first < caught.value.place.line <= first + 6


def waits_for_itself(tx, X, s, f):
    mb = T.alloc_barrier(256)
    T.barrier_wait(mb, 0)
    T.copy(X, s)
    T.barrier_arrive(mb)


def test_groups_without_an_order_have_no_form_on_a_cpu():
    with pytest.raises(UnsupportedError, match="have no sequential form") as caught:
        lower(kernel_of(waits_for_itself), native_target())
    assert caught.value.place.line == waits_for_itself.__code__.co_firstlineno + 2
    assert "256 arrivals at mb that it waits for come behind it" in str(caught.value)
    assert "T.ws(0)" in caught.value.remedy


def bulk(tx, X, s, f):
    mb = T.alloc_barrier(256)
    T.tma_copy(X, s, barrier=mb)


def test_bulk_copies_need_a_target_that_has_them():
    with pytest.raises(UnsupportedError, match=r"T\.tma_copy on sm_80") as caught:
        lower(kernel_of(bulk), parse_target("sm_80"))
    assert caught.value.place.line == bulk.__code__.co_firstlineno + 2
    assert "T.copy" in caught.value.remedy
