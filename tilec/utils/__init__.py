"""``tilec.utils``: inputs for kernels and the comparison of outputs."""

from tilec.inprocess.supply import TensorSupplyType

__all__ = ["TensorSupplyType"]
