"""T.macro, T.meta_class and what is built of them, T.loop_break."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec
import tilec.language as T
from tilec.errors import SourceRuntimeError, SourceTypeError, SourceValueError


@T.macro
def bump(place: T.Ref, by):
    """Writes through ``place``; its own ``by`` leaves the caller's alone."""
    place += by
    by = by * 2
    return by, place


@T.macro
def old_style(place: T.Var, at: T.Ref):
    at += 1
    place = 7  # noqa: F841  at the index that ``at`` had at entry


@T.macro
def power(x, count: int):
    return x if count == 1 else x * power(x, count - 1)


@T.macro
def apply_twice(f, x):
    y = f(x)
    return f(y)


@T.macro
def inc(x):
    return x + 1


class Scaler:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    @T.macro
    def scaled(self, x, *, plus=0):
        return x * self.factor + plus


@T.macro
def doubled(src: T.FragmentBuffer((32,), "int32"), dst: T.SharedBuffer((32,), "int32"), buf: T.LocalBuffer):
    for i in T.Parallel(32):
        dst[i] = src[i] * 2
    buf[0] = 1


@T.prim_func
def macros(A: T.Tensor((32,), "int32"), B: T.Tensor((32,), "int32"), C: T.Tensor((32,), "int32")):
    with T.Kernel(1, threads=32):
        v, i = T.alloc_var("int32", 3), T.alloc_var("int32", 4)
        by = A[1]
        twice, now = bump(v, by + 1)
        B[0], B[1], B[2], B[3] = v, twice, now, by
        old_style(B[i], i)
        mine = T.alloc_local((2,), "int32")
        mine[1] = 1
        bump(mine[i - 4], 4)
        B[5] = mine[1]
        B[6] = power(A[2], 3)
        B[7] = apply_twice(inc, A[3])
        B[8] = apply_twice(lambda x: x * 3, A[3])
        B[9] = Scaler(4).scaled(A[3], plus=v)
        for j in T.Parallel(22):
            B[10 + j] = inc(A[10 + j])
        f, s = T.alloc_fragment((32,), "int32"), T.alloc_shared((32,), "int32")
        one = T.alloc_local((1,), "int32")
        T.copy(A, f)
        doubled(f, s, one)
        T.copy(s, C)
        C[0] = one[0]


def test_macros_inline_where_they_are_called():
    a = np.arange(32, dtype=np.int32) * 10
    first = [14, 22, 14, 10, 7, 5, 20**3, 32, 270, 30 * 4 + 14]
    want = np.concatenate([first, a[10:] + 1]).astype(np.int32)
    agree(macros, a, expected=(want, np.where(np.arange(32) == 0, 1, a * 2)))


@T.macro
def output(shape):
    return T.empty(shape, "int32")


@T.macro
def add_everywhere(A, B, k):
    with T.Kernel(4, threads=32) as bx:
        for i in T.Parallel(8):
            B[bx * 8 + i] = A[bx * 8 + i] + k


@tilec.jit
def launches(A):
    A: T.Tensor[[32], T.int32]
    B = output((32,))
    add_everywhere(A, B, 1)
    for k in [10, 20]:
        add_everywhere(B, B, k)
    return B


def test_macros_hold_launches_and_outputs():
    a = np.arange(32, dtype=np.int32)
    assert len(elaborated(launches, (a,), None, {}, {}).launches) == 3
    agree(launches, a, expected=a + 31)


@T.meta_class
class Counter:
    def __init__(self, start, step):
        self.value = T.alloc_var("int32", start)
        self.step, self.calls = step, 0

    def advance(self, B):
        if self.value < 3:
            self.value[0] = self.value + self.step
        else:
            self.value += 10
        self.calls += 1
        B[self.calls] = self.value

    def is_odd(self):
        return self.value % 2 == 1


@T.prim_func
def counted(B: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32):
        c = Counter(1, 2)
        c.advance(B)
        c.advance(B)
        c.advance(B)
        B[0] = T.if_then_else(c.is_odd(), 1, 0)
        for i in range(4, 100):
            if i == 7:
                T.loop_break()
            B[i] = i
        B[7] = c.calls


def test_objects_that_hold_variables():
    agree(counted, expected=np.array([1, 3, 13, 23, 4, 5, 6, 3], np.int32))


@T.meta_class
class Total:
    """Methods that assign to attributes alone."""

    def __init__(self):
        self.sum = T.alloc_var("int32", 0)
        self.doubles = 0

    def add(self, value):
        self.sum = self.sum + value

    def double(self):
        self.sum *= 2
        self.doubles += 1


@T.prim_func
def totalled(A: T.Tensor((8,), "int32"), B: T.Tensor((2,), "int32")):
    with T.Kernel(1, threads=32):
        total = Total()
        for i in T.serial(8):
            total.add(A[i])
        total.double()
        B[0], B[1] = total.sum, total.doubles


def test_methods_that_assign_to_attributes_store_to_variables():
    a = np.arange(8, dtype=np.int32)
    agree(totalled, a, expected=np.array([a.sum() * 2, 1], np.int32))


def scheduled(m: int, n: int, workers: int, swizzle: int, column_major: bool, cluster: int):
    tiles = -(-m // cluster) * n

    @T.prim_func
    def main(B: T.Tensor((tiles, 4), "int32")):
        with T.Kernel(workers, threads=32) as bx:
            s = T.PersistentTileScheduler(m, n, workers, swizzle, column_major, cluster)
            free = T.PersistentTileScheduler(m, n, 1, swizzle, column_major, cluster, stateful=False)
            s.init(bx)
            while s.valid():
                row, column = free.coord(s.linear_idx)
                B[s.linear_idx, 0] = s.m_idx
                B[s.linear_idx, 1] = s.n_idx
                B[s.linear_idx, 2] = s.current_iter * 100 + row * 10
                B[s.linear_idx, 3] = column
                s.next_tile()

    return main


@pytest.mark.parametrize(
    ("m", "n", "workers", "swizzle", "column_major", "cluster"),
    [(4, 3, 5, 2, True, 1), (3, 5, 4, 3, False, 1), (5, 2, 3, 1, True, 2)],
)
def test_the_tiles_of_a_persistent_grid(m, n, workers, swizzle, column_major, cluster):
    groups = -(-m // cluster)
    fast, slow = (groups, n) if column_major else (n, groups)
    want = []
    for tile in range(groups * n):
        base = tile // (fast * swizzle) * swizzle
        width = max(1, min(swizzle, slow - base))
        rest = tile - base * fast
        place = (rest // width, base + rest % width)
        row, column = place if column_major else place[::-1]
        want.append([row, column, tile // workers * 100 + row * 10, column])
    assert len({(row, column) for row, column, *_ in want}) == groups * n
    kernel = scheduled(m, n, workers, swizzle, column_major, cluster)
    agree(kernel, expected=np.array(want, np.int32), targets=("cpu", "sm_80"))


# Refusals -------------------------------------------------------------------------------------------------


@T.macro
def stores(B, x):
    B[x] = 1
    return x > 2


@T.macro
def returns_early(x):
    if x > 3:
        return 1
    return 2


Out = T.Tensor((8,), "int32")


@T.prim_func
def in_and(B: Out):
    with T.Kernel(8) as bx:
        if bx > 1 and stores(B, bx):
            B[bx] = 2


@T.prim_func
def in_ternary(B: Out):
    with T.Kernel(8) as bx:
        B[bx] = stores(B, bx) if bx > 3 else 0


@T.prim_func
def no_place(B: Out):
    with T.Kernel(8) as bx:
        bump(bx + 1, 2)


@T.prim_func
def early(B: Out):
    with T.Kernel(8) as bx:
        B[bx] = returns_early(bx)


@T.prim_func
def no_state(B: Out):
    with T.Kernel(8) as bx:
        T.PersistentTileScheduler(4, 3, 5, stateful=False).init(bx)


@T.prim_func
def python_loop(B: Out):
    with T.Kernel(8):
        for i in [1, 2]:
            B[i] = 1
            T.loop_break()


@T.prim_func
def no_loop(B: Out):
    with T.Kernel(8):
        T.loop_break()


@pytest.mark.parametrize(
    ("kernel", "kind", "text"),
    [
        (in_and, SourceRuntimeError, "an operand of and adds statements"),
        (in_ternary, SourceRuntimeError, "adds statements"),
        (no_place, SourceValueError, "takes a variable or an element"),
        (early, NotImplementedError, "return inside a runtime region"),
        (no_state, SourceRuntimeError, "no tile at hand"),
        (python_loop, NotImplementedError, "loop over a Python iterable"),
        (no_loop, SourceRuntimeError, "break outside a loop"),
    ],
)
def test_refused_in_kernels(kernel, kind, text):
    with pytest.raises(kind, match=text) as caught:
        elaborated(kernel, (), None, {}, {})
    assert caught.value.place.file == __file__
    assert "^" in caught.value.place.excerpt()[1]
    assert caught.value.remedy


def test_refused_outside_of_kernels():
    with pytest.raises(SourceRuntimeError, match="macro bump is used outside a kernel"):
        bump(1, 2)
    with pytest.raises(SourceTypeError, match="no function written with def"):
        T.macro(lambda x: x)
    with pytest.raises(SourceTypeError, match="decorates a class"):
        T.meta_class(3)
    assert T.inline(Scaler) is Scaler
    assert isinstance(T.inline(inc.captured.function), type(inc))
