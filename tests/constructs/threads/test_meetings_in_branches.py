"""Threads that touch each other's elements of shared memory in branches which only some of them take."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated, numbers

import tilec.language as T
from tilec.backends.cuda.nodes import Sync
from tilec.backends.pipeline import lower
from tilec.errors import UnsupportedError
from tilec.ir.nodes import For, If, While, walk
from tilec.targets import parse_target

X = np.random.default_rng(0).integers(-5, 6, 128).astype(np.int32)
AT = np.arange(128)


def kernel_of(step, count=128):
    @T.prim_func
    def main(X: T.Tensor((count,), "int32"), Y: T.Tensor((count, 2), "int32")):
        with T.Kernel(1, threads=count):
            tx = T.get_thread_binding()
            a = T.alloc_local((1,), "int32")
            a[0] = 0
            S = T.alloc_shared((count,), "int32")
            S[tx] = X[tx]
            step(X, S, a, tx)
            Y[tx, 0] = S[tx]
            Y[tx, 1] = a[0]

    return main


@T.macro
def condition(X, S, a, tx):
    if S[tx] > a[0]:
        S[127 - tx] = tx + 1000
        a[0] = 1


@T.macro
def other_side(X, S, a, tx):
    if tx % 3 == 0:
        S[127 - tx] = tx + 1000
    else:
        S[(tx + 5) % 128] = tx


@T.macro
def one_side(X, S, a, tx):
    if X[tx] > 0:
        x = S[127 - tx]
        S[tx] = 5
        a[0] = x


@T.macro
def loop_of_those_inside(X, S, a, tx):
    if X[tx] > 0:
        for k in T.serial(5):
            a[0] += S[(tx + k) % 128]
            if k == X[3]:
                continue
            if k == 3:
                break
            S[(tx + 7) % 128] = a[0] % 100


@T.macro
def deeper(X, S, a, tx):
    if X[tx] > 0:
        if S[127 - tx] > 0:
            S[tx] = -1
        elif S[(tx + 1) % 128] > 1:
            S[(tx + 1) % 128] = 7


@pytest.mark.parametrize("step", [condition, other_side, one_side, loop_of_those_inside, deeper])
def test_threads_wait_in_branches_of_some(step):
    agree(kernel_of(step), X)


def test_the_condition_is_that_of_all_before_one_writes():
    S = X.copy()
    S[127 - AT[X > 0]] = AT[X > 0] + 1000
    agree(kernel_of(condition), X, expected=np.stack([S, X > 0], 1).astype(np.int32), targets=("sm_80",))


@T.macro
def of_its_own(X, S, a, tx):
    if S[tx] > a[0]:
        S[tx] = S[tx] + 1
        a[0] = S[tx]


@T.macro
def slots(X, S, a, tx):
    count = T.alloc_shared((2,), "int32")
    T.fill(count, 0)
    if X[tx] > 0:
        place = T.atomic_add(count[0], 1, return_prev=True)
        S[place] = tx
    else:
        place = T.atomic_add(count[1], 1, return_prev=True)
        S[127 - place] = tx


@pytest.mark.parametrize("step", [of_its_own, slots])
def test_branches_in_which_nobody_waits_stay_whole(step):
    made = elaborated(kernel_of(step), (X,), None, {}, {})
    branches = [stmt for stmt in walk(lower(made, parse_target("sm_80")).body) if isinstance(stmt, If)]
    assert len(branches) == 1


@T.macro
def trips_of_some(X, S, a, tx):
    for k in T.serial(X[tx] % 4):
        S[(tx + 1) % 128] = a[0] + k
        a[0] = a[0] + S[tx]


@T.macro
def while_of_some(X, S, a, tx):
    while S[tx] > a[0]:
        S[127 - tx] = a[0]
        a[0] = a[0] + 1


@pytest.mark.parametrize("step", [trips_of_some, while_of_some])
@pytest.mark.parametrize("target", ["x86-64-v3", "sm_80", "gfx942", "metal3"])
def test_loops_of_some_in_which_threads_meet_are_refused(step, target):
    made = elaborated(kernel_of(step), (X,), None, {}, {})
    with pytest.raises(UnsupportedError, match="threads meet in a loop that they do not all run") as error:
        lower(made, parse_target(target))
    assert error.value.place.line
    assert "bounds that are the same" in error.value.remedy


@T.macro
def same_place_later(X, S, a, tx):
    for k in T.serial(4):
        if tx + k < 128:
            a[0] = S[tx + k] * 2
            S[tx + k] = (a[0] + tx) % 1000


@T.macro
def two_kinds(X, S, a, tx):
    T.atomic_add(S[tx // 2], 1)
    T.atomic_max(S[(127 - tx) // 2], tx)


@T.macro
def place_in_a_variable(X, S, a, tx):
    a[0] = X[tx] + 5
    S[(tx + a[0]) % 128] = 3
    a[0] = (a[0] * 7 + tx) % 2
    a[0] = S[tx + a[0] - a[0] % 2]


@pytest.mark.parametrize("step", [same_place_later, two_kinds, place_in_a_variable])
def test_trips_and_updates_come_in_their_order(step):
    agree(kernel_of(step), X)


def test_global_elements_of_others():
    @T.prim_func
    def main(X: T.Tensor((128,), "int32"), Y: T.Tensor((128, 2), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            Y[tx, 0] = X[tx] + 1
            Y[tx, 1] = Y[127 - tx, 0]

    agree(main, X, np.zeros((128, 2), np.int32), expected=np.stack([X + 1, X[::-1] + 1], 1))


def test_threads_that_fill_a_warp_up_leave_loops_too():
    """Behind the way out threads meet, and all of them have to come there."""

    @T.macro
    def step(X, S, a, tx):
        for k in T.serial(4):
            a[0] += S[(tx + 1) % 40]
            if X[0] == k - 3:
                break
            S[tx] = a[0] % 50

    values = X[:40].copy()
    values[0] = -2
    agree(kernel_of(step, 40), values)


@pytest.mark.parametrize(("placed", "added"), [(True, 0), (False, 3)])
def test_authors_with_barriers_are_trusted_where_elements_are_not_known(placed, added):
    """Steps of a bitonic sort: each pair is one thread's, which distances of the run time do not tell."""

    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            s[tx] = X[tx]
            size, step = T.alloc_var("int32", init=2), T.alloc_var("int32", init=1)
            while size <= 64:
                step = size // 2
                while step > 0:
                    if placed:
                        T.sync_threads()
                    other = tx ^ step
                    if other > tx and (s[tx] > s[other]) == ((tx & size) == 0):
                        s[tx], s[other] = s[other], s[tx]
                    step = step // 2
                size = size * 2
            Y[tx] = s[63 - tx]

    x = np.random.default_rng(0).integers(-99, 100, 64).astype(np.int32)
    agree(main, x, expected=np.sort(x)[::-1])
    made = lower(elaborated(main, (x,), None, {}, {}), parse_target("sm_80"))
    loops = [stmt for stmt in walk(made.launches[0].body) if isinstance(stmt, While)]
    assert sum(isinstance(stmt, Sync) for stmt in walk(loops[-1].body)) == added


@T.macro
def columns_behind(S, tx, k):
    for j in T.serial(k + 1, 16):
        if tx > k and j <= tx:
            S[tx, j] -= S[tx, k] * S[j, k]


@T.macro
def columns_behind_of_some(S, tx, k):
    if tx > k:
        for j in T.serial(k + 1, 16):
            if j <= tx:
                S[tx, j] -= S[tx, k] * S[j, k]


@T.macro
def column_of_all(S, tx, k):
    for j in T.serial(k, 16):
        if tx > k and j <= tx:
            S[tx, j] -= S[tx, k] * S[j, k]


@pytest.mark.parametrize(
    ("step", "inside"), [(columns_behind, 0), (columns_behind_of_some, 0), (column_of_all, 1)]
)
def test_trips_over_columns_behind_the_one_that_they_read_need_no_barrier(step, inside):
    """A step of Cholesky's: who reads column k waits in front of the loop that writes those from k + 1 on."""

    @T.prim_func
    def main(A: T.Tensor((64, 16), "float32"), L: T.Tensor((64, 16), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            S = T.alloc_shared((64, 17), "float32")
            for j in T.serial(16):
                S[tx, j] = A[tx, j]
            for k in T.serial(4):
                if tx > k:
                    S[tx, k] = S[tx, k] * 0.5
                step(S, tx, k)
            for j in T.serial(16):
                L[tx, j] = S[tx, j]

    made = lower(elaborated(main, (numbers(64, 16),), None, {}, {}), parse_target("sm_80"))
    loops = [stmt for stmt in walk(made.launches[0].body) if isinstance(stmt, For)]
    (innermost,) = [loop for loop in loops if str(loop.var.name).startswith("j") and "k" in str(loop.start)]
    assert sum(isinstance(stmt, Sync) for stmt in walk(innermost.body)) == inside
    if not inside:
        agree(main, numbers(64, 16), targets=("sm_80",))


def test_places_that_a_counter_hands_out_need_no_barrier_from_trip_to_trip():
    @T.prim_func
    def main(X: T.Tensor((500,), "int32"), H: T.Tensor((16,), "int32"), Y: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            found, count = T.alloc_shared((500,), "int32"), T.alloc_shared((1,), "int32")
            counts = T.alloc_shared((16,), "int32")
            total = T.alloc_var("int32")
            if tx < 16:
                counts[tx] = 0
            if tx == 0:
                count[0] = 0
            for i in T.serial(4):
                if i * 128 + tx < 500:
                    T.atomic_add(counts[X[i * 128 + tx] % 16], 1)
                    if X[i * 128 + tx] > 20:
                        place = T.atomic_add(count[0], 1, return_prev=True)
                        found[place] = X[i * 128 + tx]
            for i in T.serial(4):
                if i * 128 + tx < count[0]:
                    total += found[i * 128 + tx]
            if tx < 16:
                H[tx] = counts[tx]
            T.atomic_add(Y[0], total)
            if tx == 0:
                Y[1] = count[0]

    x = np.random.default_rng(0).integers(0, 40, 500).astype(np.int32)
    kept = x[x > 20]
    expected = [np.bincount(x % 16, minlength=16), np.array([kept.sum(), len(kept)])]
    agree(main, x, np.zeros(2, np.int32), expected=expected, targets=("cpu", "sm_80"))
    made = lower(elaborated(main, (x, np.zeros(2, np.int32)), None, {}, {}), parse_target("sm_80"))
    loops = [stmt for stmt in walk(made.launches[0].body) if isinstance(stmt, For)]
    assert not any(isinstance(stmt, Sync) for loop in loops for stmt in walk(loop.body))


def test_one_thread_after_another_leaves_what_does_not_depend_on_it():
    """The value is the same for all threads, the trip in which one of them stores it is not."""

    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            S = T.alloc_shared((1,), "int32")
            for k in T.serial(64):
                if tx == 63 - k:
                    S[0] = k + X[0]
            Y[tx] = S[0]

    agree(main, X[:64], expected=np.full(64, 63 + X[0]), targets=("cpu", "sm_80"))
