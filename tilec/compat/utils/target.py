"""``tilec.utils.target``: what kernel files ask about the device that they are compiled for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.backends.cuda.driver import cuda_devices
from tilec.backends.hip.chips import chip_of
from tilec.inprocess.targets import resolve_target


def determine_target(target: Any = "auto", return_object: bool = False) -> Any:
    """The kind of a target, "cuda", "hip", "metal" or "llvm"; with ``return_object``, tilec's own description
    of it. Raises what `tilec.inprocess.targets.resolve_target` does."""
    found = resolve_target(target)
    if return_object:
        return found
    return "llvm" if found.gpu is None else found.family


def check_cuda_availability() -> bool:
    """Whether there is a CUDA device."""
    return cuda_devices() > 0


def check_hip_availability() -> bool:
    """False: tilec finds no AMD GPU of this machine by itself."""
    return False


def check_metal_availability() -> bool:
    """False: tilec finds no Apple GPU of this machine by itself."""
    return False


def target_is_cuda(target: Any) -> bool:
    """Whether the target is a GPU of NVIDIA's."""
    return resolve_target(target).family == "cuda"


def target_is_cpu(target: Any) -> bool:
    """Whether the target is a CPU."""
    return resolve_target(target).gpu is None


def target_is_hip(target: Any) -> bool:
    """Whether the target is a GPU of AMD's."""
    return resolve_target(target).family == "hip"


def target_is_cdna(target: Any) -> bool:
    """Whether the target is a GPU of AMD's with waves of 64 lanes."""
    return target_get_warp_size(target) == 64


def target_is_rdna(target: Any) -> bool:
    """Whether the target is a GPU of AMD's with waves of 32 lanes."""
    return target_is_hip(target) and not target_is_cdna(target)


def target_is_metal(target: Any) -> bool:
    """Whether the target is a GPU of Apple's."""
    return resolve_target(target).family == "metal"


def target_get_warp_size(target: Any) -> int:
    """Threads of a warp: 32, or 64."""
    found = resolve_target(target)
    return chip_of(found).lanes if found.family == "hip" else 32


def _between(name: str, first: int, last: int, what: str) -> Callable[[Any], bool]:
    """Whether the compute capability, times 10, of a target lies between two."""

    def asked(target: Any) -> bool:
        gpu = resolve_target(target).gpu
        return gpu is not None and first <= gpu.capability <= last

    asked.__name__, asked.__doc__ = name, f"Whether the target is a GPU {what}."
    return asked


_NEWEST = 999
target_is_volta = _between("target_is_volta", 70, 74, "of Volta's")
target_is_turing = _between("target_is_turing", 75, 79, "of Turing's")
target_is_ampere = _between("target_is_ampere", 80, 88, "of Ampere's")
target_is_ada = _between("target_is_ada", 89, 89, "of Ada's")
target_is_hopper = _between("target_is_hopper", 90, 99, "of Hopper's")
target_is_blackwell = _between("target_is_blackwell", 100, _NEWEST, "of Blackwell's")
target_is_sm120 = _between("target_is_sm120", 120, _NEWEST, "of compute capability 12.0 and up")
target_has_async_copy = _between("target_has_async_copy", 80, _NEWEST, "with cp.async")
target_has_ldmatrix = _between("target_has_ldmatrix", 75, _NEWEST, "with ldmatrix")
target_has_stmatrix = _between("target_has_stmatrix", 90, _NEWEST, "with stmatrix")
target_has_bulk_copy = _between("target_has_bulk_copy", 90, _NEWEST, "with copies by TMA")

__all__ = [
    "check_cuda_availability",
    "check_hip_availability",
    "check_metal_availability",
    "determine_target",
    "target_get_warp_size",
    "target_has_async_copy",
    "target_has_bulk_copy",
    "target_has_ldmatrix",
    "target_has_stmatrix",
    "target_is_ada",
    "target_is_ampere",
    "target_is_blackwell",
    "target_is_cdna",
    "target_is_cpu",
    "target_is_cuda",
    "target_is_hip",
    "target_is_hopper",
    "target_is_metal",
    "target_is_rdna",
    "target_is_sm120",
    "target_is_turing",
    "target_is_volta",
]
