"""The device that kernels are for."""

from __future__ import annotations

from tilec.packages import find_aliases, names_of_others

from .devices import (
    CPU,
    CUDA,
    TileDevice,
    auto_infer_current_arch,
    get_arch,
    has_mma_support,
    is_ada_arch,
    is_ampere_arch,
    is_blackwell_arch,
    is_cdna_arch,
    is_cpu_arch,
    is_cuda_arch,
    is_hopper_arch,
    is_metal_arch,
    is_tensorcore_supported_precision,
    is_volta_arch,
)

__all__ = [
    "CPU",
    "CUDA",
    "TileDevice",
    "auto_infer_current_arch",
    "get_arch",
    "has_mma_support",
    "is_ada_arch",
    "is_ampere_arch",
    "is_blackwell_arch",
    "is_cdna_arch",
    "is_cpu_arch",
    "is_cuda_arch",
    "is_hopper_arch",
    "is_metal_arch",
    "is_tensorcore_supported_precision",
    "is_volta_arch",
]

find_aliases(__name__)
__getattr__ = names_of_others(__name__)
