"""``tilec.autotuner``: tuning in process."""

from tilec.inprocess.autotuning import AutoTuneImpl, AutoTuner, autotune
from tilec.inprocess.time_limits import TimeoutException
from tilec.inprocess.trial_inputs import get_autotune_inputs, set_autotune_inputs
from tilec.inprocess.tuned import AutotuneResult

__all__ = [
    "AutoTuneImpl",
    "AutoTuner",
    "AutotuneResult",
    "TimeoutException",
    "autotune",
    "get_autotune_inputs",
    "set_autotune_inputs",
]
