"""``tilec.tvm``: the TVM that tilec uses, for kernel files that take `DataType` or `tir` from it."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import tvm

    return tvm.tirx if name == "tir" else getattr(tvm, name)
