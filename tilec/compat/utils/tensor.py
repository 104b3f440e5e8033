"""``tilec.utils.tensor``: inputs for kernels and the comparison of outputs."""

from __future__ import annotations

from typing import Any

from tilec.inprocess.measuring.inputs import TensorSupplyType, get_tensor_supply, torch_assert_close
from tilec.language.values.scalars import dtype


def map_torch_type(intype: Any) -> Any:
    """The torch dtype of a dtype of the language, or of its name."""
    return dtype(intype).as_torch()


__all__ = ["TensorSupplyType", "get_tensor_supply", "map_torch_type", "torch_assert_close"]
