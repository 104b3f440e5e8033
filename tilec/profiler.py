"""``tilec.profiler``: measuring kernels."""

from tilec.inprocess.bench import do_bench
from tilec.inprocess.profiler import Profiler
from tilec.inprocess.supply import TensorSupplyType

__all__ = ["Profiler", "TensorSupplyType", "do_bench"]
