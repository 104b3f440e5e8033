"""Inputs for measuring and comparing kernels, and the comparison of their outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from tilec.errors import EnvironmentError_, SourceValueError
from tilec.families import host_family
from tilec.inprocess.params import KernelParam, extent_for
from tilec.portable.nearness import near


class TensorSupplyType(Enum):
    """What tensors are filled with. Auto: integers from a small range, floats uniform in (-1, 1)."""

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


def get_tensor_supply(
    supply_type: TensorSupplyType = TensorSupplyType.Auto, device: str = "cpu"
) -> Callable[[KernelParam], Any]:
    """A function from a parameter to a torch tensor on ``device``, or to a NumPy array on a CPU where there
    is no torch. It raises ValueError for a scalar, and for a tensor whose extents are runtime values;
    EnvironmentError_ for a GPU without torch."""

    def supply(param: KernelParam) -> Any:
        if param.is_scalar():
            raise SourceValueError(f"scalar {param.name} has no supply", remedy="give input_tensors")
        unknown = [extent for extent in param.shape if not isinstance(extent, int)]
        if unknown:
            raise SourceValueError(
                f"{param.name} has the runtime extent {unknown[0]}",
                remedy="give dynamic_symbolic_constraints, or input_tensors",
            )
        try:
            import torch
        except ModuleNotFoundError:
            return _array(param, supply_type, device)
        made = _filled(torch, param, supply_type, device)
        return made.to(param.torch_dtype()) if made.dtype != param.torch_dtype() else made

    return supply


def _filled(torch: Any, param: KernelParam, kind: TensorSupplyType, device: str) -> Any:
    """A tensor whose values the parameter's dtype holds."""
    shape = tuple(param.shape)
    if kind is TensorSupplyType.Zero:
        return torch.zeros(shape, device=device)
    if kind is TensorSupplyType.One:
        return torch.ones(shape, device=device)
    if param.is_boolean():
        return torch.randint(0, 2, shape, device=device)
    if param.is_unsigned():
        return torch.randint(0, 3, shape, device=device)
    if param.is_float4():
        return torch.randint(0, 16, shape, device=device, dtype=torch.uint8)
    if param.is_float8() and kind is TensorSupplyType.Auto:
        return torch.randint(-128, 128, shape, device=device, dtype=torch.int8).float()
    if not str(param.dtype).startswith(("float", "bfloat")) or kind is TensorSupplyType.Integer:
        return torch.randint(-2, 3, shape, device=device)
    if kind is TensorSupplyType.Normal:
        return torch.empty(shape, device=device).normal_(-1.0, 1.0)
    if kind is TensorSupplyType.Randn:
        return torch.randn(shape, device=device)
    return torch.empty(shape, device=device).uniform_(-1.0, 1.0)


def _array(param: KernelParam, kind: TensorSupplyType, device: str) -> Any:
    """As `_filled`, of NumPy."""
    import numpy

    from tilec.ir.interp.values import numpy_dtype

    if device != host_family().device:
        raise EnvironmentError_(
            f"no inputs for {param.name} on {device}: torch is not installed",
            remedy="pip install torch, or give inputs (set_autotune_inputs, supply_prog, input_tensors)",
        )
    shape, draw = tuple(map(int, param.shape)), numpy.random.default_rng()
    dtype = numpy.dtype("uint8") if param.is_float4() else numpy_dtype(str(param.dtype))
    if kind in (TensorSupplyType.Zero, TensorSupplyType.One):
        return numpy.full(shape, int(kind is TensorSupplyType.One)).astype(dtype)
    if param.is_boolean() or param.is_unsigned() or param.is_float4():
        most = 2 if param.is_boolean() else 16 if param.is_float4() else 3
        return draw.integers(0, most, shape).astype(dtype)
    if param.is_float8() and kind is TensorSupplyType.Auto:
        return draw.integers(-128, 128, shape).astype(numpy.float32).astype(dtype)
    if not str(param.dtype).startswith(("float", "bfloat")) or kind is TensorSupplyType.Integer:
        return draw.integers(-2, 3, shape).astype(dtype)
    if kind in (TensorSupplyType.Normal, TensorSupplyType.Randn):
        mean = -1.0 if kind is TensorSupplyType.Normal else 0.0
        return draw.normal(mean, 1.0, shape).astype(dtype)
    return draw.uniform(-1.0, 1.0, shape).astype(dtype)


def with_dims(params: Sequence[KernelParam], dims: Mapping[str, int]) -> list[KernelParam]:
    """The parameters with runtime extents replaced by the values of ``dims``, by name."""
    return [replace(param, shape=[extent_for(each, dims) for each in param.shape]) for param in params]


def torch_assert_close(
    tensor_a: Any,
    tensor_b: Any,
    rtol: float = 1e-2,
    atol: float = 1e-3,
    max_mismatched_ratio: float = 0.001,
    verbose: bool = False,
    equal_nan: bool = True,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    base_name: str = "LHS",
    ref_name: str = "RHS",
) -> bool:
    """True where at most a share of the elements differs by more than ``atol + rtol * |b|``; AssertionError
    otherwise, with the worst element."""
    _check_kind(
        tensor_a, tensor_b, check_device, check_dtype, check_layout, check_stride, base_name, ref_name
    )
    wrong, worst = mismatches(tensor_a, tensor_b, rtol, atol, equal_nan)
    if verbose:
        print(f"{wrong} of {tensor_a.numel()} elements differ")  # noqa: T201
    if wrong <= max_mismatched_ratio * tensor_a.numel():
        return True
    raise AssertionError(
        f"{base_name} and {ref_name} differ in {wrong} of {tensor_a.numel()} elements, at most "
        f"{max_mismatched_ratio:.2%} may; {worst}"
    )


def _check_kind(
    a: Any, b: Any, device: bool, dtype: bool, layout: bool, stride: bool, base_name: str, ref_name: str
) -> None:
    checks = (
        ("shape", True, a.shape, b.shape),
        ("device", device, a.device, b.device),
        ("dtype", dtype, a.dtype, b.dtype),
        ("layout", layout, a.layout, b.layout),
        ("strides", stride, a.stride(), b.stride()),
    )
    for what, wanted, one, other in checks:
        if wanted and one != other:
            raise AssertionError(f"{base_name} and {ref_name} have different {what}: {one} and {other}")


def mismatches(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool = True) -> tuple[int, str]:
    """How many elements differ, and the worst of them in words: of torch tensors, where one of the two is,
    else of arrays. 8-bit floats and booleans are compared as float32."""
    if not (_is_torch(a) or _is_torch(b)):
        return _array_mismatches(a, b, rtol, atol, equal_nan)
    import torch

    a, b = as_torch(a), as_torch(b)
    small = "float8" in str(a.dtype) or a.dtype == torch.bool
    a, b = (a.float(), b.float()) if small else (a, b.to(a.dtype))
    close = near(a, b, rtol, atol, equal_nan=equal_nan)
    wrong = int((~close).sum())
    if wrong == 0:
        return 0, ""
    error = torch.where(close, 0.0, (a.double() - b.double()).abs().nan_to_num(float("inf")))
    at = int(error.argmax())
    return wrong, f"worst at {at}: {a.flatten()[at].item()} and {b.flatten()[at].item()}"


def _array_mismatches(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> tuple[int, str]:
    import numpy

    a, b = (numpy.asarray(each).astype(numpy.float64) for each in (a, b))
    with numpy.errstate(invalid="ignore"):
        close = near(a, b, rtol, atol, equal_nan=equal_nan)
        wrong = int(numpy.count_nonzero(~close))
        if wrong == 0:
            return 0, ""
        error = numpy.where(close, 0.0, numpy.nan_to_num(numpy.abs(a - b), nan=numpy.inf))
    at = int(error.argmax())
    return wrong, f"worst at {at}: {a.flat[at]} and {b.flat[at]}"


def shape_of(value: Any) -> tuple[int, ...]:
    """Of what a kernel or a reference returns."""
    import numpy

    return tuple(value.shape if hasattr(value, "shape") else numpy.shape(value))


def same_bits(a: Any, b: Any) -> bool:
    """Whether two outputs of a kernel are one and the same."""
    return bool(a.equal(b)) if _is_torch(a) else a.tobytes() == b.tobytes()


def _is_torch(value: Any) -> bool:
    """Asked without importing torch."""
    return type(value).__module__.partition(".")[0] == "torch"


def as_torch(value: Any) -> Any:
    """A torch tensor of what a kernel or a reference returns: itself, or the numbers of an array."""
    import torch

    if isinstance(value, torch.Tensor):
        return value
    import numpy

    array = numpy.asarray(value)
    return torch.from_numpy(array if array.dtype.isbuiltin else array.astype(numpy.float32))
