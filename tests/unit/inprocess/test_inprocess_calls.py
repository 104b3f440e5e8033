"""Calls in process: every form of a kernel, every kind of array, what is compiled once, what is refused."""

from __future__ import annotations

from typing import Any

import inprocess_kernels as kernels
import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.inprocess.calls import fast_calls

torch = pytest.importorskip("torch")


def test_a_factory_gives_one_kernel_per_arguments() -> None:
    kernel = kernels.axpy(100)
    assert kernels.axpy(n=100) is kernel
    assert kernels.axpy(100, 64, "float32") is kernel
    assert kernels.axpy.mode == "lazy"
    x = torch.randn(100)
    torch.testing.assert_close(kernel(x, 2.0), 2 * x)
    torch.testing.assert_close(kernel(X=x, a=2), 2 * x)
    with pytest.raises(TypeError, match=r"(?s)axpy: missing a required.*it takes n, block, dtype"):
        kernels.axpy()
    with pytest.raises(TypeError, match=r"(?s)axpy: .*unexpected keyword argument 'blok'.*n, block, dtype"):
        kernels.axpy(100, blok=3)


def test_tensors_without_memory_are_refused_by_name() -> None:
    kernel = kernels.axpy(100)
    for odd in (torch.ones(100, device="meta"), torch.ones(100).to_sparse()):
        with pytest.raises(TypeError, match="X has no elements in memory"):
            kernel(odd, 2.0)


def test_extents_are_not_negative() -> None:
    with pytest.raises(ValueError, match=r"(?s)an extent of -5.*no less than 0 elements"):
        kernels.axpy(-5)
    assert kernels.axpy(0)(torch.ones(0), 2.0).shape == (0,)


def test_extents_are_what_64_bits_hold() -> None:
    with pytest.raises(ValueError, match=r"(?s)an extent of 9223372036854775808.*which 64 bits hold"):
        kernels.axpy(1 << 63)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (3, "A is of type int, which has no shape"),
        ([[1.0]], "A is of type list, which has no shape"),
        (np.zeros(4, np.float32), r"A has shape \(4,\), and \w+ is its axis 1"),
    ],
)
def test_constants_need_tensors_of_the_annotated_shapes(wrong: object, why: str) -> None:
    with pytest.raises(TypeError, match=f"(?s)linear cannot read its constants.*{why}"):
        kernels.linear(wrong, np.zeros((4, 4), np.float32))


def test_arrays_are_no_compile_time_arguments() -> None:
    with pytest.raises(TypeError, match="a value of type ndarray cannot be a compile-time argument"):
        kernels.axpy(100, np.zeros(4))


def test_arrays_of_other_kinds() -> None:
    kernel, x = kernels.axpy(100), np.arange(100, dtype=np.float32)
    made = kernel(x, np.float32(3))
    assert isinstance(made, np.ndarray)
    np.testing.assert_array_equal(made, 3 * x)


class OnlyDLPack:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_every_way_of_a_call_gives_the_same() -> None:
    kernel, x = kernels.axpy.compile(100), np.arange(100, dtype=np.float32)
    read_only = x.copy()
    read_only.flags.writeable = False
    for given in (x, read_only, OnlyDLPack(x), torch.from_numpy(x), x):
        np.testing.assert_array_equal(np.asarray(kernel(given, 3)), 3 * x)
    assert len(kernel._calls) == 3
    made = kernel(x, 3.0)
    made += 1  # outputs may be written
    for wrong in (x[::-1], x[:99], x.astype(np.float64)):
        with pytest.raises(ValueError, match="X") as caught:
            kernel(wrong, 3.0)
        assert caught.value.__context__ is None, "no way that was tried before is told of"
    with pytest.raises(ValueError, match="expected 2 inputs"):
        kernel(x)


def test_without_tvm_ffi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_calls, "is_available", lambda: False)
    x = torch.arange(100, dtype=torch.float32)
    torch.testing.assert_close(kernels.axpy.compile(100)(x, 3.0), 3 * x)
    up, down = kernels.halves.compile()(x, 3.0)
    torch.testing.assert_close((up, down), (3 * x, x.int()))


def test_parameters_of_a_module_are_taken() -> None:
    weight = torch.nn.Parameter(torch.randn(100))
    torch.testing.assert_close(kernels.axpy(100)(weight, 2.0), 2 * weight.detach())


def test_an_eager_kernel_compiles_and_runs() -> None:
    a, b = torch.randn(40, 24), torch.randn(56, 24)
    torch.testing.assert_close(kernels.linear(a, b), a @ b.T)
    key = kernels.linear.parse_cache_key(a, b, bM=16)
    assert key == ("float32", 16, 32, 32, 40, 56, 24)
    assert kernels.linear.parse_cache_key(a, b, bM=16, M=40) == key
    assert kernels.linear.mode == "eager"
    count = len(kernels.linear._kernels)
    kernels.linear(a + 1, b)
    assert len(kernels.linear._kernels) == count


def test_constants_by_name_need_no_tensors() -> None:
    kernel = kernels.linear.compile(M=40, N=56, K=24)
    a, b = torch.randn(40, 24), torch.randn(56, 24)
    torch.testing.assert_close(kernel(a, b), a @ b.T)
    assert [list(param.shape) for param in kernel.params] == [[40, 24], [56, 24], [40, 56]]
    assert kernel.out_idx == [2]


def test_plain_python_in_an_eager_body_sees_numbers() -> None:
    with pytest.raises(AssertionError, match="K is a multiple of 8"):
        kernels.linear(torch.randn(8, 9), torch.randn(8, 9))


def test_one_kernel_serves_all_sizes_of_a_runtime_dimension() -> None:
    for size in (5, 64, 200):
        x = torch.arange(size, dtype=torch.float32)
        up, down = kernels.halves(x)
        torch.testing.assert_close(up, 2 * x)
        torch.testing.assert_close(down, x.int())
    assert len(kernels.halves._kernels) == 1
    assert isinstance(kernels.halves(x), list)
    torch.testing.assert_close(kernels.halves(x, 5.0)[0], 5 * x)
    up, _ = kernels.halves(x.numpy(), scale=3)
    np.testing.assert_array_equal(up, 3 * x.numpy())


def test_constants_may_be_strides() -> None:
    x = torch.randn(6, 10)[:, :7]
    torch.testing.assert_close(kernels.strided(x), x + kernels.SHIFT)
    assert kernels.strided.parse_cache_key(x) == (6, 7, 10)
    array = x.numpy()
    assert kernels.strided.parse_cache_key(array) == (6, 7, 10)
    np.testing.assert_allclose(kernels.strided(array), array + kernels.SHIFT, rtol=1e-6)


def test_a_constant_that_stands_alone_nowhere_is_refused() -> None:
    with pytest.raises(RuntimeError, match="constant N of unread cannot be read"):
        kernels.unread(torch.zeros(4, 4))


@pytest.mark.parametrize(
    ("out_idx", "given", "results"),
    [(None, 3, None), ([], 3, None), (-1, 2, "C"), ([2], 2, "C"), ([1, 2], 1, "BC"), ([-1, 1], 1, "CB")],
)
def test_out_idx(out_idx: Any, given: int, results: str | None) -> None:
    kernel = tilec.compile(kernels.two_results, out_idx=out_idx)
    a = torch.arange(8, dtype=torch.float32)
    expected = {"B": a + 1, "C": a - 1}
    arguments = [a, torch.zeros(8), torch.zeros(8)][:given]
    made = kernel(*arguments)
    if results is None:
        assert made == []
        made, results = arguments[1:], "BC"
    for got, name in zip([made] if len(results) == 1 else made, results, strict=True):
        torch.testing.assert_close(got, expected[name])
    with pytest.raises(ValueError, match=f"expected {given} inputs?, got {given + 1}"):
        kernel(*arguments, a)


def test_an_output_that_is_passed_where_it_is_made_is_named() -> None:
    kernel = tilec.compile(kernels.two_results, out_idx=[1, 2])
    with pytest.raises(ValueError, match="expected 1 input, got 2: A; a call makes and returns B, C"):
        kernel(torch.zeros(8), torch.zeros(8))


@pytest.mark.parametrize("out_idx", [[3], -4, [1, 1]])
def test_wrong_out_idx(out_idx: Any) -> None:
    with pytest.raises(ValueError, match="out_idx"):
        tilec.compile(kernels.two_results, out_idx=out_idx)


def test_the_list_of_the_caller_stays() -> None:
    indices = [-1]
    tilec.compile(kernels.two_results, out_idx=indices)
    assert indices == [-1]


def test_a_scalar_may_size_tensors() -> None:
    a = torch.zeros(70)
    kernel = tilec.compile(kernels.sized, out_idx=[2])
    torch.testing.assert_close(kernel(70, a), a + 70)
    assert [param.name for param in kernel.params] == ["n", "A", "B"]
    with pytest.raises(ValueError, match="n = 69"):
        kernel(69, a)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((torch.zeros(99), 2.0), ValueError, "X axis 0 has extent 99, expected 100"),
        ((torch.zeros(100).double(), 2.0), (TypeError, ValueError), "X is float64, expected float32"),
        ((torch.zeros(200)[::2], 2.0), ValueError, "X axis 0 has stride 2"),
        ((torch.zeros(100), "text"), TypeError, "a must be a"),
        ((torch.zeros(100),), ValueError, "expected 2 inputs, got 1"),
    ],
)
def test_what_a_launch_refuses(arguments: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        kernels.axpy(100)(*arguments)


def test_a_jitted_function_is_no_tile() -> None:
    @tilec.jit(target="cpu")
    def copies(X):  # type: ignore[no-untyped-def]
        N = T.const("N")
        X: T.Tensor[[N], T.float32]
        with T.Kernel(1):
            T.copy(kernels.axpy, X)

    with pytest.raises(TypeError, match=r"T\.copy takes buffers"):
        copies(np.zeros(4, "float32"))


def test_only_prim_funcs_are_compiled() -> None:
    with pytest.raises(AssertionError, match="takes a prim_func"):
        tilec.compile(kernels.axpy)


# ---- many at once ----


def test_par_compile_keeps_the_order() -> None:
    configs = [{"n": 10, "block": 32}, (11, 32), {"n": 10, "block": 32}]
    made = kernels.axpy.par_compile(configs, num_workers=2)
    assert [list(kernel.params[0].shape) for kernel in made] == [[10], [11], [10]]
    assert tilec.par_compile([]) == []
    with pytest.raises(ValueError, match="neither a dict nor a tuple"):
        kernels.axpy.par_compile([3])


def test_par_compile_may_go_on_after_errors() -> None:
    bad = [{"n": 12, "block": 32}, {"n": 12, "dtype": "float31"}]
    with pytest.warns(UserWarning, match="axpy was not compiled"):
        made = kernels.axpy.par_compile(bad, ignore_error=True)
    assert made[0] is not None
    assert made[1] is None
    with pytest.raises(ValueError, match="float31"):
        kernels.axpy.par_compile(bad)
