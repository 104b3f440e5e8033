"""What Python means in a kernel, on every road: branches, logic, loops, names."""

from __future__ import annotations

import numpy as np
from agree import agree

import tilec.language as T

N = 32
Ints = T.Tensor((N,), "int32")
Floats = T.Tensor((N,), "float32")


@T.prim_func
def conditions(A: Ints, F: Floats, n: T.int32, B: T.Tensor((6, N), "int32")):
    none, causal = None, True
    with T.Kernel(N, threads=32) as bx:
        B[0, bx] = 7 if 3 < A[bx] <= 20 < n or bx == 0 else -1
        if A[bx] and not F[bx]:
            B[1, bx] = 1
        elif n - 30 and F[bx] > 2.5:
            B[1, bx] = 2
        else:
            if causal and bx > 20:
                B[1, bx] = 3
            else:
                B[1, bx] = 4
        B[2, bx] = A[bx + 8] if bx + 8 < N and causal else 99
        B[3, bx] = T.if_then_else((A[bx] != 0) & (bx < 9), A[bx] // -3, A[bx] % -5)
        B[4, bx] = 0 if none is not None and none > 3 else bx
        taken = T.alloc_var("int32", 5)
        if bx % 2 == 0:
            taken = bx
        B[5, bx] = taken if F[bx] else -taken


def test_conditions():
    rng = np.random.default_rng(3)
    a = rng.integers(-30, 30, N).astype(np.int32)
    f = (rng.integers(0, 5, N)).astype(np.float32)
    n, i = 30, np.arange(N)
    want = np.empty((6, N), np.int32)
    want[0] = np.where(((a > 3) & (a <= 20) & (n > 20)) | (i == 0), 7, -1)
    want[1] = np.where((a != 0) & (f == 0), 1, np.where(i > 20, 3, 4))  # n - 30 is 0
    want[2] = np.where(i + 8 < N, np.roll(a, -8), 99)
    want[3] = np.where((a != 0) & (i < 9), a // -3, a % -5)
    want[4] = i
    want[5] = np.where(i % 2 == 0, i, 5) * np.where(f != 0, 1, -1)
    agree(conditions, a, f, n, expected=want)


@T.prim_func
def loops(A: Ints, n: T.int32, B: Ints):
    with T.Kernel(1, threads=32):
        total = T.alloc_var("int32")
        for i in range(n):
            if i == 3:
                continue
            if A[i] > 70:
                break
            total += A[i]
        B[0] = total
        total = 0
        for i in T.serial(20, 2, -3):
            total = total * 3 + i
        B[1] = total
        for i in T.unroll(2, 6):
            if i == 4:
                continue
            B[i] = i * n
        for i in T.vectorized(8):
            B[8 + i] = A[i] + 1
        for i in T.vectorized(8):
            if A[i] == 20:
                continue
            B[16 + i] = i
        count, steps = T.alloc_var("int32", 1), T.alloc_var("int32")
        while count < n * 10:
            count *= 2
            if count == 8:
                continue
            for j in range(4):
                if j > steps:
                    break
                steps += 1
            if count > 64:
                break
        B[24], B[25] = count, steps
        for _ in range(2):
            for item in [1, 2, 3]:
                if item == 3:
                    break
                steps += item
        B[26] = steps
        B[27], B[4] = B[26] + 1, n
        B[-1], B[28] = B[2], B[-3 + 30]


def test_loops():
    a = np.arange(N, dtype=np.int32) * 10
    n = 20
    want = np.full(N, -7, np.int32)
    want[0] = sum(10 * i for i in range(8) if i != 3)
    total = 0
    for i in range(20, 2, -3):
        total = total * 3 + i
    want[1] = total
    want[[2, 3, 5]] = [2 * n, 3 * n, 5 * n]
    want[8:16] = a[:8] + 1
    want[16:24] = [0, 1, -7, 3, 4, 5, 6, 7]
    count, steps = 1, 0
    while count < n * 10:
        count *= 2
        if count == 8:
            continue
        for j in range(4):
            if j > steps:
                break
            steps += 1
        if count > 64:
            break
    want[24], want[25], want[26] = count, steps, steps + 6
    want[27], want[4] = want[26] + 1, n
    want[-1], want[28] = want[2], want[27]
    agree(loops, a, n, np.full(N, -7, np.int32), expected=want)


@T.prim_func
def names(A: Ints, B: Ints):
    with T.Kernel(2, threads=32) as (half,):
        f = T.alloc_fragment((16,), "int32")
        T.copy(A[half * 16 : (half + 1) * 16], f)
        first = second = A[half] + 1
        p, q = T.alloc_var("int32", 1), T.alloc_var("int32", 2)
        p, q = q, p
        for i in T.Parallel(16):
            at = half * 16 + i
            old = f[i]
            f[i] = old * 2
            value = old + f[i]
            value = value + first - second
            B[at] = value if at < 20 else p * 10 + q


def test_names():
    a = np.arange(N, dtype=np.int32) * 3
    agree(names, a, expected=np.where(np.arange(N) < 20, a * 3, 21))


@T.prim_func
def together(A: Ints, B: Ints):
    """Sums and differences of neighbours, by every kind of memory that an assignment of several reads."""
    with T.Kernel(1, threads=32):
        s, f = T.alloc_shared((N,), "int32"), T.alloc_fragment((2,), "int32")
        p, q = T.alloc_var("int32", 5), T.alloc_var("int32", 3)
        T.copy(A, s)
        for i in T.Parallel(N // 2):
            s[2 * i], s[2 * i + 1] = s[2 * i] + s[2 * i + 1], s[2 * i] - s[2 * i + 1]
        T.copy(s, B)
        T.copy(A[0:2], f)
        f[0], f[1] = T.max(f[0], f[1]), T.min(f[0], f[1])
        f[0], f[1] = f[1], -f[0]
        p, q = p + q, p - q
        T.copy(f, B[0:2])
        B[2], B[3] = p, q


def test_values_of_several_targets_are_made_before_any_store():
    a = np.arange(N, dtype=np.int32) * 3 + 2
    even, odd = a[0::2], a[1::2]
    want = np.stack([even + odd, even - odd], 1).reshape(-1)
    want[:4] = [a[0], -a[1], 8, 2]
    agree(together, a, expected=want)


def test_names_of_what_is_cut_off_floats():
    """TVM takes the bounds of such a name for whole numbers, and fails, in each pass that asks for them."""

    @T.prim_func
    def kernel(L: T.Tensor((5,), "int32"), X: T.Tensor((17,), "float16"), Y: T.Tensor((5, 43), "int8")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((16,), "float16")
            t = T.alloc_fragment((16, 64), "uint32")
            T.copy(X[0:16], s)
            for i, j in T.Parallel(16, 64):
                product = T.cast(s[i + 1], "float32") * j
                kept = T.cast(T.Select(j <= L[i], product, T.float32(1)), "int32") % 5
                t[i, j] = kept
            T.copy(t, Y[0, 0])

    ends, x = np.array([0, 9, 30, 70, -1], np.int32), np.arange(17, dtype=np.float16) % 4
    column = np.arange(43)
    want = np.where(column <= ends[:, None], x[1:6, None] * column, 1).astype(np.int8) % 5
    agree(kernel, ends, x, expected=want)
