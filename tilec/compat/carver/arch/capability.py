"""The compute capability of a GPU."""

from __future__ import annotations

from typing import Any

from tilec.backends.cuda import driver
from tilec.errors import InputError
from tilec.inprocess.targets import AUTO, resolve_target, spelling_of
from tilec.targets import Target


def device_capability(target: Any = None, device: int = 0) -> tuple[int, int]:
    """(major, minor) of the GPU that ``target`` names; of "cuda", "auto" or None, of the device at hand.
    Raises EnvironmentError_ where there is none, InputError for a target that is no GPU."""
    if _is_device(target):
        driver.require_device()
        return driver.capability(device)
    gpu = resolve_target(target).gpu
    if gpu is None or not gpu.capability:
        raise InputError(f"target {target} is no GPU of NVIDIA's", remedy='name one: "cuda" or "sm_90a"')
    return divmod(gpu.capability, 10)


def _is_device(target: Any) -> bool:
    """Whether ``target`` stands for the device at hand."""
    if target is None or isinstance(target, Target):
        return target is None
    spelling = spelling_of(target)
    return spelling.kind in (AUTO, *driver.KINDS) and not spelling.arch
