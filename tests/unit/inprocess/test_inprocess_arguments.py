"""What a call may pass: equal arguments of other types, None, elements under another name of their dtype."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import inprocess_kernels as kernels
import numpy as np
import pytest

import tilec
import tilec.language as T

torch = pytest.importorskip("torch")


@tilec.jit(out_idx=[-1])
def shifted(n, by):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(n):
                B[i] = A[i] / by if isinstance(by, float) else A[i] + (by if isinstance(by, int) else by[0])

    return main


@tilec.jit
def passed_on(A, dt: T.dtype = T.float32, factors: tuple = (1,)):
    N = T.const("N")
    A: T.Tensor[[N], dt]
    B = T.empty((N,), dt)
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(N):
            B[i] = A[i]
    return B


M = T.dynamic("M")


@T.prim_func
def with_unused(
    A: T.Tensor((8,), "float32"),
    U: T.Tensor((8, M), "float16"),
    V: T.Tensor((M,), "float32"),
    B: T.Tensor((8,), "float32"),
):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(8):
            B[i] = A[i] + V[0]


@T.prim_func
def longer(A: T.Tensor((M,), "float32"), B: T.Tensor((M * 2 + 1,), "float32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.serial(M * 2 + 1):
            B[i] = A[i // 2]


# ---- which kernel ----


def test_equal_arguments_of_other_types_are_other_kernels() -> None:
    x = torch.arange(8.0)
    torch.testing.assert_close(shifted(8, 2)(x), x + 2)
    torch.testing.assert_close(shifted(8, 2.0)(x), x / 2)
    torch.testing.assert_close(shifted(8, True)(x), x + 1)
    assert len({id(shifted(8, by)) for by in (1, True, 2, 2.0)}) == 4
    assert shifted(8, 2) is shifted(by=2, n=8)


def test_parts_of_containers_count_by_their_types_too() -> None:
    integers, floats = shifted(8, (2,)), shifted(8, (2.0,))
    assert integers is not floats
    assert shifted(8, (2,)) is integers
    assert shifted(8, [2]) is integers
    assert shifted.parse_cache_key(8, [2, {"a": {3}}]) == (8, (2, (("a", frozenset({3})),)))


def test_a_dtype_is_its_name() -> None:
    assert kernels.axpy(100, 64, T.float32) is kernels.axpy(100)
    assert kernels.axpy(n=100, dtype="float32") is kernels.axpy(100)


def test_arguments_without_a_hash_are_refused() -> None:
    with pytest.raises(TypeError, match="a value of type bytearray cannot be a compile-time argument"):
        shifted.parse_cache_key(8, bytearray(b"x"))


def test_a_name_that_is_no_input_is_told() -> None:
    kernel = tilec.compile(with_unused, out_idx=-1)
    with pytest.raises(TypeError, match="'w' is no input; inputs: A, "):
        kernel(A=torch.zeros(8), U=None, w=torch.zeros(3))


# ---- copies ----


def test_kernels_and_jitted_functions_are_copied_and_pickled() -> None:
    kernel, x = shifted(8, 2), np.ones(8, "float32")
    kernel.update_tuner_result(1.5, {"by": 2})
    for made in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
        np.testing.assert_array_equal(made(x), x + 2)
        assert made.get_tuner_result() == kernel.get_tuner_result()
    assert pickle.loads(pickle.dumps(kernels.axpy)) is kernels.axpy is copy.deepcopy(kernels.axpy)


# ---- integers of NumPy ----


def test_integers_of_numpy_are_sizes() -> None:
    eight = np.prod((2, 4))

    @T.prim_func
    def main(A: T.Tensor((eight,), "float32"), B: T.Tensor((eight,), "float32")):
        with T.Kernel(eight // 8, threads=eight * 4):
            tile = T.alloc_shared((eight,), "float32")
            for at in T.Pipelined(eight // 8, num_stages=eight // 4):
                T.copy(A[at * eight], tile)
                T.copy(tile, B[at * eight])

    x = np.arange(8, dtype="float32")
    np.testing.assert_array_equal(tilec.compile(main, out_idx=-1, target="cpu")(x), x)


# ---- views that torch has yet to negate ----


def test_a_view_that_torch_has_yet_to_negate_is_refused_for_any_strides() -> None:
    @T.prim_func
    def doubled(A: T.StridedTensor((8,), (2,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[i] = A[i] * 2

    kernel, z = tilec.compile(doubled, out_idx=-1, target="cpu"), torch.randn(8, dtype=torch.complex64)
    torch.testing.assert_close(kernel(z.imag), z.imag * 2)
    with pytest.raises(ValueError, match=r"pass A\.resolve_neg\(\)"):
        kernel(z.conj().imag)


# ---- None ----


def test_none_for_a_tensor_that_the_kernel_never_touches() -> None:
    kernel, x = tilec.compile(with_unused, out_idx=-1), torch.arange(8.0)
    v = torch.full((3,), 5.0)
    torch.testing.assert_close(kernel(x, None, v), x + 5)
    np.testing.assert_array_equal(kernel(x.numpy(), None, v.numpy()), x.numpy() + 5)
    with pytest.raises(TypeError, match="A is None, and the kernel reads or writes it"):
        kernel(None, None, v)


def test_none_for_an_address_that_the_kernel_reads() -> None:
    @T.prim_func
    def biased(A: T.Tensor((8,), "float32"), p: T.ptr, B: T.Tensor((8,), "float32")):
        bias = T.match_buffer(p, (8,), "float32")
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[i] = A[i] + bias[i]

    with pytest.raises(TypeError, match="p is None, and the kernel reads or writes it"):
        tilec.compile(biased, out_idx=-1)(torch.zeros(8), None)


def test_none_leaves_no_extent_unknown() -> None:
    kernel = tilec.compile(_only_unused, out_idx=-1)
    with pytest.raises(TypeError, match="U is None, and no other argument says what M is"):
        kernel(torch.zeros(8), None)


@T.prim_func
def _only_unused(A: T.Tensor((8,), "float32"), U: T.Tensor((M,), "float32"), B: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(8):
            B[i] = A[i]


# ---- what is in a tensor ----


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ("bool", "int8"),
        ("bool", "uint8"),
        ("int8", "bool"),
        ("uint8", "bool"),
    ],
)
def test_dtypes_of_the_same_bytes(wanted: str, given: str) -> None:
    values = torch.tensor([0, 1, 1, 0], dtype=torch.uint8)
    tensor = values.bool() if given == "bool" else values.view(getattr(torch, given))
    made = passed_on(tensor, dt=wanted)
    assert made.dtype == getattr(torch, wanted)
    assert made.view(torch.uint8).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ("int8", "uint8"),
        ("float32", "int32"),
        ("float16", "bfloat16"),
        ("float8_e4m3fn", "float8_e4m3fnuz"),
        ("float8_e5m2", "float8_e5m2fnuz"),
    ],
)
def test_other_dtypes_are_refused(wanted: str, given: str) -> None:
    with pytest.raises(ValueError, match=f"A is {given}, expected {wanted}"):
        passed_on(torch.zeros(4, dtype=getattr(torch, given)), dt=wanted)


def test_zero_sizes_return_without_a_launch() -> None:
    assert passed_on(torch.zeros(0)).shape == (0,)
    kernel = tilec.compile(longer, out_idx=[1])
    assert kernel(torch.zeros(3)).shape == (7,)
    assert kernel(np.zeros(5, np.float32)).shape == (11,)


def test_strides_of_axes_with_one_element_do_not_count() -> None:
    wide = torch.zeros(1, 24)[:, :24].as_strided((1, 24), (977, 1))
    made = kernels.linear(wide, torch.ones(8, 24))
    assert made.shape == (1, 8)


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((40, 24), (56, 25)), "linear: B axis 1 has extent 25, expected K = 24"),
        (((40, 24, 1), (56, 24)), "linear: A has 3 axes|linear: A has rank 3"),
    ],
)
def test_kernel_parameter_and_axis_are_named(shapes: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        kernels.linear(*(torch.zeros(shape) for shape in shapes))
