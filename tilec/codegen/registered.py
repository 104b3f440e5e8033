"""Passes of TVM by the names under which they are registered."""

from __future__ import annotations

from typing import Any


def schedule_pass(name: str) -> Any:
    """The pass of that name in `tvm.s_tir.transform`, whose own import loads all that TVM searches schedules
    and runs models with: as much again as TVM without it."""
    import tvm_ffi

    return tvm_ffi.get_global_func(f"s_tir.transform.{name}")()
