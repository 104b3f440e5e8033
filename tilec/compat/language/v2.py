"""``tilec.language.v2``: the names of the second style of kernels, on the same frontend.

    import tilec.language.v2 as tl

    @tl.jit
    def scale(A: tl.Tensor[int, tl.dyn], factor: tl.dyn[float], block: int = 128):
        M, N = A.shape_params()
        ...

Everything of `tilec.language` is here too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import tilec.language as _language
from tilec.packages import find_aliases

#: Names of this style alone, and where they live; each module is loaded at the first use of its name.
_OWN = {
    "jit": ("tilec.inprocess.jitted", "jit"),
    "compile": ("tilec.inprocess.bound", "compile"),
    "place": ("tilec.inprocess.calls.placeholders", "place"),
    "empty_data_ptr": ("tilec.inprocess.calls.placeholders", "empty_data_ptr"),
    "tune": ("tilec.inprocess.search.searches", "tune"),
    "CallArgs": ("tilec.inprocess.search.searches", "CallArgs"),
    "AutoTuneResult": ("tilec.inprocess.search.searches", "AutoTuneResult"),
    "JITFunc": ("tilec.inprocess.functions", "JITFunc"),
}
#: Other spellings of names of `tilec.language`.
_SPELLED = {
    "set_pass_configs": "annotate_pass_configs",
    "add_compile_flags": "annotate_compile_flags",
    "get_tvm_dtype": "dtype",
}

find_aliases(__name__)


def __getattr__(name: str) -> Any:
    if name in _OWN:
        module, attribute = _OWN[name]
        return getattr(import_module(module), attribute)
    return getattr(_language, _SPELLED.get(name, name))


def __dir__() -> list[str]:
    return sorted({*dir(_language), *_OWN, *_SPELLED})
