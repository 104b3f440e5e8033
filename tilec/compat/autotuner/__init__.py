"""``tilec.autotuner``: tuning in process."""

from tilec.inprocess.search.autotuning import AutoTuneImpl, AutoTuner, autotune
from tilec.inprocess.search.time_limits import TimeoutException
from tilec.inprocess.search.trial_inputs import get_autotune_inputs, set_autotune_inputs
from tilec.inprocess.search.tuned import AutotuneResult
from tilec.packages import find_aliases

find_aliases(__name__)

__all__ = [
    "AutoTuneImpl",
    "AutoTuner",
    "AutotuneResult",
    "TimeoutException",
    "autotune",
    "get_autotune_inputs",
    "set_autotune_inputs",
]
