"""``tilec.utils``: inputs for kernels and the comparison of outputs, and questions about targets."""

from tilec.inprocess.measuring.inputs import TensorSupplyType, get_tensor_supply, torch_assert_close
from tilec.packages import find_aliases

from .target import (
    check_cuda_availability,
    check_hip_availability,
    check_metal_availability,
    determine_target,
)
from .tensor import map_torch_type

find_aliases(__name__)

__all__ = [
    "TensorSupplyType",
    "check_cuda_availability",
    "check_hip_availability",
    "check_metal_availability",
    "determine_target",
    "get_tensor_supply",
    "map_torch_type",
    "torch_assert_close",
]
