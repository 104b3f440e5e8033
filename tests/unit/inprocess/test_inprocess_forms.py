"""What the forms of kernels mean for calls in process: addresses, scalars, outputs, keys."""

from __future__ import annotations

import form_kernels as kernels
import pytest

import tilec
import tilec.language as T

torch = pytest.importorskip("torch")


# Addresses ------------------------------------------------------------------------------------------------


def test_addresses_are_integers_or_tensors() -> None:
    x, kernel = torch.randn(45), tilec.compile(kernels.plus_one)
    for given in (x, x.data_ptr(), x.numpy(), x.numpy().ctypes.data):
        y = torch.zeros(45)
        kernel(given, y.data_ptr() if isinstance(given, int) else y, 45)
        torch.testing.assert_close(y, x + 1)
    part = torch.zeros(45)
    kernel(x.reshape(5, 9), part, 20)  # a tensor's own shape does not count
    torch.testing.assert_close(part, torch.cat([x[:20] + 1, torch.zeros(25)]))


def test_an_address_that_is_several_tensors() -> None:
    x, y = torch.randn(32), torch.zeros(32)
    kernel = tilec.compile(kernels.absolute)
    kernel(x.data_ptr(), y)
    torch.testing.assert_close(y, x.abs())
    kernel(-x, y)
    torch.testing.assert_close(y, x.abs())
    assert "void* a" in _header(kernel)


def _header(kernel: tilec.JITKernel) -> str:
    return kernel.get_host_source()


def test_sizes_that_nothing_but_an_address_shows() -> None:
    x, y = torch.randn(5, 8), torch.zeros(5, 8)
    kernel = tilec.compile(kernels.rows_plus_one)
    kernel(x, y)
    torch.testing.assert_close(y, x + 1)
    with pytest.raises(TypeError, match="pass it by name"):
        kernel(x.data_ptr(), y.data_ptr())


def test_pointers_of_an_eager_kernel() -> None:
    x, y = torch.randn(45), torch.zeros(45)
    assert kernels.tripled(x.data_ptr(), y.data_ptr(), 45) == []
    torch.testing.assert_close(y, 3 * x)
    with pytest.raises(TypeError, match="p must be an"):
        kernels.tripled("x", y, 45)


# Dims -----------------------------------------------------------------------------------------------------


def test_a_dim_that_nothing_mentions_is_none() -> None:
    x = torch.randn(45)
    torch.testing.assert_close(kernels.with_a_dim_too_many(x), x + 1)


# Constants ------------------------------------------------------------------------------------------------


def test_branches_on_what_a_constant_is() -> None:
    """In either order: what an earlier call found must not be taken for one with other numbers."""
    for order in ([128, 16, 100, 16], [16, 128]):
        for n in order:
            x = torch.randn(n)
            y = torch.randn((5, n) if n > 64 else (n, 5))
            torch.testing.assert_close(kernels.by_size(x, y), (y if n > 64 else y.T) + x)
        kernels.by_size._constants._runs.clear()
    by_name = [kernels.by_size.compile(N=n, M=5).get_host_source() for n in (16, 128)]
    assert by_name[0] != by_name[1]


def test_equal_numbers_need_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = kernels.by_size._constants
    given = [{"X": torch.zeros(n), "Y": torch.zeros(n, n)} for n in (100, 16)]
    found = [constants.values({"block": 32}, {}, each) for each in given]
    monkeypatch.setattr(kernels.by_size, "discover", lambda *_: pytest.fail("the declarations ran again"))
    assert [constants.values({"block": 32}, {}, each) for each in given] == found
    assert found == [{"N": 100, "M": 100}, {"N": 16, "M": 16}]


def test_variables_of_constants_that_are_assigned_again() -> None:
    x = torch.randn(3, 40)
    torch.testing.assert_close(kernels.swapped(x), x.T)
    torch.testing.assert_close(kernels.swapped(x, swap=True), x.T)


def test_constants_are_found_where_the_body_declares_them() -> None:
    x = torch.randn(6, 8)
    for _ in range(2):
        torch.testing.assert_close(kernels.from_variables(x), 2 * x)
        torch.testing.assert_close(kernels.by_rank(x), 2 * x)
        torch.testing.assert_close(kernels.by_rank(x[0], is_matrix=False), 2 * x[:1])
    assert kernels.by_rank.parse_cache_key(x) == (True, 6, 8)
    assert kernels.by_rank.parse_cache_key(x[0], False) == (False, None, 8)
    assert len(kernels.by_rank._kernels) == 2
    torch.testing.assert_close(kernels.from_variables.compile(M=6, N=8)(x), 2 * x)
    with pytest.raises(AssertionError):
        kernels.by_rank(x[:1])


def test_python_ahead_of_annotations_sees_numbers() -> None:
    x, y = torch.randn(6, 8), torch.randn(3, 16)
    torch.testing.assert_close(kernels.numbers_first(x, y), x[::2] * 2 + y[:, ::2] + 2)
    with pytest.raises(AssertionError, match="M is even"):
        kernels.numbers_first(x[:5], y)


def test_constants_that_no_tensor_shows() -> None:
    x = torch.randn(6, 2)
    with pytest.raises(RuntimeError, match="constant K of unused") as caught:
        kernels.unused(x)
    assert "A: shape (M, 2), strides (s, 1)" in str(caught.value)
    assert "no shape and no stride, or only inside an expression" in str(caught.value)
    with pytest.raises(RuntimeError, match="constant M of indirect"):
        kernels.indirect(x.ravel())
    torch.testing.assert_close(kernels.unused(x, K=3), x[:, 0])
    torch.testing.assert_close(kernels.indirect(x.ravel(), M=6), x[:, 0])


def test_keys_and_arguments_of_eager_kernels() -> None:
    x = torch.randn(8)
    assert kernels.summed.parse_cache_key(x, x) == (8,)
    assert kernels.with_signature.parse_cache_key(x, 3.0) == ()
    torch.testing.assert_close(kernels.summed(x, x, N=8), 2 * x)
    with pytest.raises(ValueError, match="Y axis 0 has extent 7, expected N = 8"):
        kernels.summed(x, x[:7])
    with pytest.raises(ValueError, match="X is float16, expected float32"):
        kernels.summed(x.half(), x)
    with pytest.raises(TypeError, match="unexpected keyword argument 'Z'"):
        kernels.summed(x, x, Z=3)
    with pytest.raises(TypeError, match="missing a required argument: 'Y'"):
        kernels.summed(x)
    options = {"factor": 3.0, "others": [1, {2}]}
    torch.testing.assert_close(kernels.with_options(x, options), 3 * x + 2)
    key = kernels.with_options.parse_cache_key(x, options, [1, 2])
    assert key == ((("factor", 3.0), ("others", (1, frozenset({2})))), (1, 2), "float32", 8)
    with pytest.raises(TypeError, match="a value of type bytearray cannot be a compile-time argument"):
        kernels.with_options.parse_cache_key(x, {"factor": bytearray()})
    with pytest.raises(RuntimeError, match="only inside an eager kernel"):
        T.const("M")


def test_constants_that_declarations_need_first() -> None:
    x = torch.zeros(8)
    with pytest.raises(RuntimeError, match="constants of needs_a_number are not known") as caught:
        kernels.needs_a_number(x)
    assert "annotate the tensors first" in str(caught.value)
    assert kernels.needs_a_number(x, N=8) == []
    assert torch.equal(x, torch.ones(8))
    assert kernels.packed(x.to(torch.uint8)) == []


def test_compile_time_parameters_of_every_kind() -> None:
    x = torch.randn(8)
    made = kernels.kinds(x, 1, 2, 3.0, True, "x", torch.float32, T.float16)
    torch.testing.assert_close(made, (x + 2).half())
    key = kernels.kinds.parse_cache_key(x, 1, 2, 3.0, True, "x", torch.float32, T.float16)
    assert key == (1, 2, 3.0, True, "x", torch.float32, "float16", 2, 8)


# Parameters and outputs -----------------------------------------------------------------------------------


def test_parameters_that_size_tensors() -> None:
    x = torch.randn(40)
    torch.testing.assert_close(kernels.sized_by_argument(x[:8], 8), 2 * x[:8])
    with pytest.raises(ValueError, match="A axis 0 has extent 8, expected 7"):
        kernels.sized_by_argument(x[:8], 7)
    for size in (8, 40):
        torch.testing.assert_close(kernels.sized_by_scalar(x[:size], size), 2 * x[:size])
    assert len(kernels.sized_by_scalar._kernels) == 1
    with pytest.raises(ValueError, match="A axis 0 has extent 40, expected N = 39"):
        kernels.sized_by_scalar(x, 39)


def test_scalars_with_defaults() -> None:
    x = torch.randn(40)
    torch.testing.assert_close(kernels.with_signature(x), 2 * x + 3)
    torch.testing.assert_close(kernels.with_signature(x, 1.0, k=0), x)
    torch.testing.assert_close(kernels.with_signature(x[:7], on=False), torch.zeros(7))
    assert len(kernels.with_signature._kernels) == 1


def test_outputs_in_the_order_of_the_return() -> None:
    x = torch.arange(8, dtype=torch.float32)
    a, b, c, d = kernels.outputs(x)
    assert [tuple(each.shape) for each in (a, b, c, d)] == [(8, 2), (8, 2), (8,), (8,)]
    assert [each.dtype for each in (a, b, c, d)] == [torch.float32, torch.float16, torch.int32, torch.float32]
    for made, wanted in zip(kernels.outputs(x, False), (d, c, b, a), strict=True):
        assert torch.equal(made, wanted)
    before = x.clone()
    assert kernels.in_place(x) == []
    assert kernels.helped(x) == []
    assert torch.equal(x, before)


def test_tensors_are_declared() -> None:
    for x in (torch.zeros(8), torch.zeros(8).numpy()):
        with pytest.raises(TypeError, match="B of undeclared is a tensor that the kernel does not declare"):
            kernels.undeclared(x, x)


def test_a_kernel_in_a_class_is_a_method() -> None:
    x = torch.zeros(32)
    for offset in (3, 5):
        kernels_of = kernels.Offsets(offset)
        assert kernels_of.lazy(32)(x)[0] == offset
        assert kernels_of.eager(x)[0] == offset
    assert isinstance(kernels.Offsets.lazy, type(kernels.tripled))
