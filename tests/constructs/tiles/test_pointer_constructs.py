"""T.ptr and T.handle: tensors at addresses, tables of addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import agree

import tilec
import tilec.language as T
from tilec.errors import SourceError
from tilec.ir.guards import Guard
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def text(kernel: Any, **dims: Guard) -> str:
    """The tile IR, which parses back."""
    made = format_kernel(elaborate(kernel, name="k", dims=dims, args={}, config={}))
    assert format_kernel(parse_kernel(made)) == made
    return made


def addresses(*arrays: np.ndarray) -> np.ndarray:
    return np.asarray([each.ctypes.data for each in arrays], np.int64)


# One tensor of a pointer ----------------------------------------------------------------------------------


@T.prim_func
def matched(a: T.ptr, b: T.handle, n: T.int32):
    A = T.match_buffer(a, (n, 4), "float32")
    B = T.make_tensor(b, (n, 4), T.float32)
    with T.Kernel(T.ceildiv(n, 16), threads=32) as bx:
        for i, j in T.Parallel(16, 4):
            B[bx * 16 + i, j] = A[bx * 16 + i, j] + 1


def test_a_pointer_with_one_tensor_is_that_tensor():
    a = array(21, 4)
    agree(matched, a, dims={"n": Guard()}, expected=a + 1)
    assert 'A = tensor(float32, (n, 4), ("n", "4"), access="in", pointer=True, name="a")' in text(
        matched, n=Guard()
    )


@T.prim_func
def transposed(a: T.ptr, Y: T.Tensor((5, 3), "float32")):
    with T.Kernel(1, threads=32):
        A = T.make_tensor(a, (5, 3), "float32", strides=(1, 5))
        for i, j in T.Parallel(5, 3):
            Y[i, j] = A[i, j] * 2


def test_strides_and_a_tensor_made_inside_the_kernel():
    a = array(3, 5)
    agree(transposed, a.T, expected=2 * a.T)


@tilec.jit
def scaled(p, q, n: T.int32, block: int = 32):
    p: T.ptr
    q: T.ptr
    A, B = T.make_tensor(p, (n,), T.float32), T.make_tensor(q, (n,), T.float32)
    with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * 3


def test_pointers_of_an_eager_kernel():
    a = array(45)
    agree(scaled, a, dims={"n": Guard()}, expected=3 * a)


# Several tensors of a pointer -----------------------------------------------------------------------------


@T.prim_func
def twice(a: T.ptr, Y: T.Tensor((48,), "float32")):
    A = T.make_tensor(a, (48,), "float32")
    bits = T.make_tensor(a, (6, 8), "int32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(48):
            Y[i] = T.if_then_else(bits[i // 8, i % 8] < 0, -A[i], A[i])


def test_two_tensors_of_one_pointer_lie_at_one_address():
    a = array(48)
    agree(twice, a.ctypes.data, expected=np.abs(a))
    assert "a = scalar(int64, pointer=True)" in text(twice)


@T.prim_func
def grouped(tab: T.Tensor((3,), T.ptr), sizes: T.Tensor((3,), "int32"), Y: T.Tensor((3, 32), "float32")):
    with T.Kernel(3, threads=32) as bx:
        A = T.make_tensor(tab[bx], (sizes[bx], 2), "float32")
        for i in T.Parallel(32):
            Y[bx, i] = A[i, 0] + A[i, 1]


def test_a_table_of_addresses_with_sizes_known_at_run_time():
    rows = [array(5, 2), array(32, 2), array(0, 2)]
    wanted = np.zeros((3, 32), np.float32)
    for row, found in zip(rows, wanted, strict=True):
        found[: len(row)] = row.sum(1)
    agree(grouped, addresses(*rows), np.asarray([5, 32, 0], np.int32), expected=wanted)
    assert "tab = tensor(int64" in text(grouped)


@T.prim_func
def products(
    tab: T.Tensor((2,), T.ptr), B: T.Tensor((32, 32), "float16"), Y: T.Tensor((2, 32, 32), "float32")
):
    with T.Kernel(2, threads=128) as bx:
        A = T.make_tensor(tab[bx], (32, 32), "float16")
        a, b = T.alloc_shared((32, 32), "float16"), T.alloc_shared((32, 32), "float16")
        acc = T.alloc_fragment((32, 32), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.gemm(a, b, acc, clear_accum=True)
        T.copy(acc, Y[bx, 0, 0])


def test_tiles_are_copied_from_addresses():
    parts = [array(32, 32).astype(np.float16), -array(32, 32).astype(np.float16)]
    b = array(32, 32).astype(np.float16)
    wanted = np.stack([part.astype(np.float32) @ b.astype(np.float32) for part in parts])
    agree(products, addresses(*parts), b, expected=wanted)


@T.prim_func
def first_of_table(tab: T.Tensor((2,), T.ptr), Y: T.Tensor((8,), "float32")):
    A = T.make_tensor(tab[1], (8,), "float32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            Y[i] = A[i]


def test_a_table_read_on_host_level_is_read_by_the_launch():
    parts = [array(8), array(8) + 1]
    agree(first_of_table, addresses(*parts), expected=parts[1])


# Errors ---------------------------------------------------------------------------------------------------


def error(kernel: Any) -> SourceError:
    with pytest.raises(SourceError) as caught:
        elaborate(kernel, name="k", dims={}, args={}, config={})
    assert caught.value.place
    assert caught.value.place.file == __file__
    return caught.value


def test_what_is_no_address():
    @T.prim_func
    def tensor(X: T.Tensor((8,), "float32")):
        T.make_tensor(X, (8,))
        with T.Kernel(1):
            X[0] = 1.0

    @T.prim_func
    def scalar(n: T.int32, X: T.Tensor((8,), "float32")):
        T.make_tensor(n, (8,))
        with T.Kernel(1):
            X[0] = 1.0

    assert "X is a tensor, not an address" in str(error(tensor))
    assert "is no address" in str(error(scalar))
    assert isinstance(error(scalar), TypeError)


def test_a_tensor_is_made_outside_of_parallel_loops():
    @T.prim_func
    def inside(tab: T.Tensor((8,), T.ptr), X: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(8):
                X[i] = T.make_tensor(tab[i], (1,), "float32")[0]

    assert "T.make_tensor inside T.Parallel" in str(error(inside))


def test_arguments_of_match_buffer_beyond_strides():
    @T.prim_func
    def aligned(a: T.ptr):
        A = T.match_buffer(a, (8,), "float32", align=64)
        with T.Kernel(1):
            A[0] = 1.0

    assert "match_buffer(align=64)" in str(error(aligned))
