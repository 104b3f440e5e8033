"""``tilec.autotuner``: tuning in process."""

from tilec.inprocess.autotuning import AutoTuneImpl, AutoTuner, autotune
from tilec.inprocess.tuning import (
    AutotuneResult,
    TimeoutException,
    get_autotune_inputs,
    set_autotune_inputs,
)

__all__ = [
    "AutoTuneImpl",
    "AutoTuner",
    "AutotuneResult",
    "TimeoutException",
    "autotune",
    "get_autotune_inputs",
    "set_autotune_inputs",
]
