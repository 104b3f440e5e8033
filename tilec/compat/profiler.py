"""``tilec.profiler``: measuring kernels."""

from tilec.inprocess.measuring.bench import do_bench
from tilec.inprocess.measuring.inputs import TensorSupplyType
from tilec.inprocess.measuring.profiler import Profiler
from tilec.packages import find_aliases

find_aliases(__name__)

__all__ = ["Profiler", "TensorSupplyType", "do_bench"]
