"""What the forms of kernels mean for calls in process: addresses, scalars, outputs, keys."""

from __future__ import annotations

import form_kernels as kernels
import pytest

import tilec

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
