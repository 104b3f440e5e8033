"""``tilec.tvm``: the TVM that tilec uses, for kernel files that take `DataType` or `tir` from it.

``tilec.tvm.tir`` is a module of tilec's: what it offers computes with the language's expressions."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import tvm

    return getattr(tvm, name)
