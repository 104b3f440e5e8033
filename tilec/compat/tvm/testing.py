"""``tilec.tvm.testing``: what test files of kernels take from TVM's, without TVM."""

from __future__ import annotations

from typing import Any

from tilec.packages import names_of_others

from ..testing import main, requires_cuda, requires_llvm, requires_metal, requires_package, requires_rocm


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raises AssertionError unless shapes are equal and ``|actual - desired| <= atol + rtol * |desired|``;
    a NaN equals a NaN. Takes arrays and tensors of any device."""
    import numpy as np

    left, right = (_array(value) for value in (actual, desired))
    np.testing.assert_allclose(left.shape, right.shape)
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, verbose=True)


def _array(value: Any) -> Any:
    """As NumPy has it; tensors of torch come from their device."""
    import numpy as np

    return np.asarray(value.detach().cpu().float().numpy() if hasattr(value, "detach") else value)


requires_gpu = requires_cuda

__all__ = [
    "assert_allclose",
    "main",
    "requires_cuda",
    "requires_gpu",
    "requires_llvm",
    "requires_metal",
    "requires_package",
    "requires_rocm",
]

__getattr__ = names_of_others(__name__)
