"""``tilec.profiler``: measuring kernels."""

from tilec.inprocess.bench import do_bench
from tilec.inprocess.inputs import TensorSupplyType
from tilec.inprocess.profiler import Profiler
from tilec.packages import find_aliases

find_aliases(__name__)

__all__ = ["Profiler", "TensorSupplyType", "do_bench"]
