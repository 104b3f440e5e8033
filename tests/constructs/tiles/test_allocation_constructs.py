"""Allocations: every call by its memory, forms of variables, lifetimes in loops, limits, errors."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, build

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.errors import InputError, SourceTypeError, SourceValueError, TilecError, UnsupportedError
from tilec.targets import parse_target


def through(allocate, dtype="float32"):
    """A kernel that copies through a tile."""

    @T.prim_func
    def main(A: T.Tensor((16,), dtype), B: T.Tensor((16,), dtype)):
        with T.Kernel(1, threads=32):
            tile = allocate((16,), dtype)
            T.copy(A, tile)
            T.copy(tile, B)

    return main


@pytest.mark.parametrize(
    "allocate",
    [
        T.alloc_shared,
        lambda shape, dtype: T.alloc_shared(shape, dtype, scope="shared"),
        T.alloc_fragment,
        lambda shape, dtype: T.alloc_fragment(16, dtype, scope="local"),
        T.alloc_local,
        T.alloc_global,
        lambda shape, dtype: T.alloc_buffer(shape, dtype, scope="shared"),
        lambda shape, dtype: T.alloc_buffer(shape, dtype, scope="local.fragment"),
        lambda shape, dtype: T.decl_buffer(shape, dtype, scope="local"),
        lambda shape, dtype: T.allocate(list(shape), dtype, "shared.dyn"),
    ],
)
def test_memory_by_every_call(allocate):
    a = np.arange(16, dtype=np.float32)
    agree(through(allocate), a, expected=a)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float64"])
def test_elements_of_other_widths(dtype):
    a = (np.arange(16) % 2).astype(dtype)
    agree(through(T.alloc_shared, dtype), a, expected=a)


def test_forms_of_variables():
    @T.prim_func
    def main(B: T.Tensor((8,), "float32"), C: T.Tensor((2,), "int64")):
        with T.Kernel(1, threads=32):
            a = T.alloc_var("float32")
            b = T.alloc_var("float32", 1.5)
            c = T.alloc_var("float32", "local.var")
            d = T.alloc_var("float32", 2, "local.var")
            e = T.alloc_var("float32", init=a + 3, scope="local.var")
            f = T.alloc_var(T.int32, init=2.7)
            g = T.alloc_var(T.bool, True)
            address = T.alloc_var(T.ptr)
            B[0] = a
            B[1] = b
            c = 4
            B[2] = c
            d += 0.5
            B[3] = d
            B[4] = e
            B[5] = f
            B[6] = T.if_then_else(g, 1, 0)
            C[0] = address
            address = T.cast(1, "int64") << 40
            C[1] = address
            B[7] = 7

    agree(main, expected=[[0, 1.5, 4, 2.5, 3, 2, 1, 7], [0, 1 << 40]])


def test_an_allocation_in_a_loop_is_new_in_each_trip():
    @T.prim_func
    def main(A: T.Tensor((4, 16), "float32"), B: T.Tensor((4, 16), "float32"), C: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            for k in T.serial(4):
                s, f = T.alloc_shared((16,), "float32"), T.alloc_fragment((16,), "float32")
                count = T.alloc_var("int32")
                T.copy(A[k, :], s)
                T.copy(s, f)
                for i in T.Parallel(16):
                    f[i] = f[i] + s[15 - i]
                count += k
                T.copy(f, B[k, :])
                C[k] = count

    a = np.arange(64, dtype=np.float32).reshape(4, 16)
    agree(main, a, expected=[a + a[:, ::-1], np.arange(4)])


def test_proxies_describe_parameters_of_macros():
    @T.macro
    def move(src: T.SharedBuffer((16,), "float32"), dst: T.FragmentBuffer((16,), "float32")):
        T.copy(src, dst)

    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            s, f = T.alloc_shared((16,), "float32"), T.alloc_fragment((16,), "float32")
            T.copy(A, s)
            move(s, f)
            T.copy(f, B)

    a = np.arange(16, dtype=np.float32)
    agree(main, a, expected=a)


def test_more_shared_memory_than_a_block_has():
    @T.prim_func
    def main(A: T.Tensor((512, 256), "float32"), B: T.Tensor((512, 256), "float32")):
        with T.Kernel(1, threads=128):
            large, small = T.alloc_shared((512, 256), "float32"), T.alloc_shared((16,), "float32")
            T.copy(A, large)
            T.copy(A[0, 0:16], small)
            for i in T.Parallel(16):
                large[0, i] += small[i]
            T.copy(large, B)

    a = np.ones((512, 256), np.float32)
    wanted = a.copy()
    wanted[0, :16] += 1
    agree(main, a, expected=wanted, targets=("cpu",))
    with pytest.raises(TilecError) as caught:
        lower(build(main), parse_target("sm_80"))
    assert "524" in str(caught.value)
    assert "large" in str(caught.value)


def using(use):
    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            use(n)

    return main


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (
            lambda n: T.alloc_shared((n, 4), "float32"),
            SourceValueError,
            "extent n is not known while building",
        ),
        (lambda n: T.alloc_fragment((0,), "float32"), SourceValueError, "extent 0 is not positive"),
        (lambda n: T.alloc_local((1.5,), "float32"), SourceTypeError, "is no integer"),
        (
            lambda n: T.alloc_shared((4,), "float32", scope="local"),
            SourceValueError,
            "'local' is no shared memory",
        ),
        (lambda n: T.alloc_fragment((4,), "float32", "shared"), SourceValueError, "'shared' is no fragment"),
        (
            lambda n: T.alloc_buffer((4,), "float32", scope="texture"),
            SourceValueError,
            "'texture' is no memory",
        ),
        (lambda n: T.alloc_buffer((4,), "float32", scope="shared", align=64), UnsupportedError, "align"),
        (lambda n: T.alloc_var("float32", 1, init=2), SourceTypeError, "init twice"),
        (
            lambda n: T.alloc_var("float32", 1, "local.var", 3),
            SourceTypeError,
            "a dtype, an init and a scope",
        ),
        (lambda n: T.alloc_var("float32", scope=3), SourceTypeError, "is no string"),
        (lambda n: T.alloc_tmem((4,), "float32"), UnsupportedError, "alloc_tmem"),
        (lambda n: T.alloc_shared((4,), "float99"), (TypeError, ValueError), "float99"),
    ],
)
def test_wrong_allocations_name_the_line(use, kind, match):
    with pytest.raises(kind, match=match) as caught:
        build(using(use))
    assert isinstance(caught.value, InputError)
    assert caught.value.place.file == __file__
