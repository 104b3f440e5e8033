"""All cases on which the emulator is compared with a GPU; `record.py` keeps what the GPU computed."""

from __future__ import annotations

from bulk_cases import image_cases, reduce_cases
from case_kernels import Case, inputs, launch, lowered
from memory_cases import access_cases, cluster_cases, copy_cases, matrix_cases
from product_cases import product_cases
from register_cases import function_cases, register_cases

CASES: tuple[Case, ...] = (
    *register_cases(),
    *function_cases(),
    *matrix_cases(),
    *access_cases(),
    *copy_cases(),
    *image_cases(),
    *reduce_cases(),
    *product_cases(),
    *cluster_cases(),
)

__all__ = ["CASES", "Case", "inputs", "launch", "lowered"]
