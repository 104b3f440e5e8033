"""``tilec.utils.tensor``: inputs for kernels and the comparison of outputs."""

from tilec.inprocess.supply import TensorSupplyType, get_tensor_supply, torch_assert_close

__all__ = ["TensorSupplyType", "get_tensor_supply", "torch_assert_close"]
