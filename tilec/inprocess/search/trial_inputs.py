"""What the kernels of a search are run on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tilec.inprocess.kernel import JITKernel
from tilec.inprocess.search.tuned import ProfileArgs

_INPUTS = threading.local()


@contextlib.contextmanager
def set_autotune_inputs(*inputs: Any) -> Iterator[None]:
    """In the block, tuning runs kernels on these inputs, given one by one or as one list."""
    before = get_autotune_inputs()
    _INPUTS.given = list(inputs[0] if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)) else inputs)
    try:
        yield
    finally:
        _INPUTS.given = before


def get_autotune_inputs() -> list[Any] | None:
    """What `set_autotune_inputs` set on this thread."""
    return getattr(_INPUTS, "given", None)


class TrialInputs:
    """The inputs of a search: those that were set, else what ``supply_prog`` makes, else ``arguments`` (an
    eager call's own), else supplied ones. All but the first are made for every config, unless they are to be
    kept."""

    def __init__(self, profile: ProfileArgs, arguments: Sequence[Any] | None) -> None:
        self._profile, self._arguments = profile, arguments
        self._given = get_autotune_inputs()  # a measurement may run in another thread
        self._kept: list[Any] | None = None

    def of(self, kernel: JITKernel) -> list[Any]:
        """For one kernel. Raises ValueError where something has no supply."""
        if self._given is not None:
            return self._given
        if self._kept is None or not self._profile.cache_input_tensors:
            self._kept = self._made(kernel)
        return self._kept

    def _made(self, kernel: JITKernel) -> list[Any]:
        if self._profile.supply_prog is not None:
            inputs = [param for index, param in enumerate(kernel.params) if index not in kernel.out_idx]
            return list(self._profile.supply_prog(inputs))
        if self._arguments is not None:
            return [_copied(each) for each in self._arguments]
        return kernel.get_profiler(self._profile.supply_type).inputs()


def _copied(value: Any) -> Any:
    copy = getattr(value, "clone", None) or getattr(value, "copy", None)
    return copy() if callable(copy) else value
