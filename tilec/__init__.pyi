"""What `tilec.__getattr__` gives, for type checkers and editors: names are imported at their first use."""

from typing import Any

from tilec.cache import clear_cache as clear_cache
from tilec.compat.env import set_log_level as set_log_level
from tilec.inprocess.compilation.store import disable_cache as disable_cache
from tilec.inprocess.compilation.store import enable_cache as enable_cache
from tilec.inprocess.compilation.store import is_cache_enabled as is_cache_enabled
from tilec.inprocess.functions import JITFunc as JITFunc
from tilec.inprocess.jitted import JITImpl as JITImpl
from tilec.inprocess.jitted import compile as compile
from tilec.inprocess.jitted import jit as jit
from tilec.inprocess.jitted import par_compile as par_compile
from tilec.inprocess.kernel import JITKernel as JITKernel
from tilec.inprocess.measuring.bench import do_bench as do_bench
from tilec.inprocess.measuring.inputs import TensorSupplyType as TensorSupplyType
from tilec.inprocess.measuring.profiler import Profiler as Profiler
from tilec.inprocess.search.autotuning import AutoTuner as AutoTuner
from tilec.inprocess.search.autotuning import autotune as autotune
from tilec.language.frontend.pass_configs import PassConfigKey as PassConfigKey
from tilec.language.tiles.layout_builders import SwizzleMode as SwizzleMode
from tilec.language.values.functions.integers import ceildiv as _ceildiv
from tilec.language.values.functions.integers import next_power_of_2 as next_power_of_2
from tilec.language.values.layouts.layout import Fragment as Fragment
from tilec.language.values.layouts.layout import Layout as Layout
from tilec.language.values.scalars import dtype as _dtype
from tilec.portable.loader import LaunchError as LaunchError
from tilec.portable.loader import LibraryError as LibraryError
from tilec.portable.loader import load as load

__version__: str
cdiv = _ceildiv
lazy_jit = jit
DataType = _dtype

def __getattr__(name: str) -> Any: ...  # aliases, of which `tilec.compat.aliases` has a list
