"""``tilec.tvm``: the TVM that tilec uses, for kernel files that take `DataType` or `tir` from it.

``tilec.tvm.tirx`` and ``tilec.tvm.tir`` are modules of tilec's: what they offer computes with the language's
expressions; so is ``tilec.tvm.testing``. Other modules have TVM's own names; what this TVM has not imports,
and says so where it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilec.packages import find_aliases

find_aliases(__name__)


def __getattr__(name: str) -> Any:
    if name in ("contrib", "testing", "tir", "tirx"):
        return import_module(f"tilec.tvm.{name}")
    import tvm

    return getattr(tvm, name)
