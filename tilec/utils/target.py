"""``tilec.utils.target``: what kernel files ask about the device that they are compiled for."""

from __future__ import annotations

from typing import Any

from tilec.inprocess.targets import cuda_devices, resolve_target


def determine_target(target: Any = "auto", return_object: bool = False) -> Any:
    """The kind of a target, "cuda" or "llvm"; with ``return_object``, tilec's own description of it. Raises
    what `tilec.inprocess.targets.resolve_target` does."""
    found = resolve_target(target)
    if return_object:
        return found
    return "llvm" if found.is_cpu else "cuda"


def check_cuda_availability() -> bool:
    """Whether there is a CUDA device."""
    return cuda_devices() > 0


def check_hip_availability() -> bool:
    """False: tilec makes no code for AMD GPUs."""
    return False


def check_metal_availability() -> bool:
    """False: tilec makes no code for Metal."""
    return False


__all__ = [
    "check_cuda_availability",
    "check_hip_availability",
    "check_metal_availability",
    "determine_target",
]
