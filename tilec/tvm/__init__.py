"""``tilec.tvm``: the TVM that tilec uses, for kernel files that take `DataType` or `tir` from it.

``tilec.tvm.tirx`` and ``tilec.tvm.tir`` are modules of tilec's: what they offer computes with the language's
expressions; so is ``tilec.tvm.testing``. Other modules have TVM's own names; what this TVM has not imports,
and says so where it is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tilec.unoffered import EXPLAIN, names_of

_OWN = ("contrib", "testing", "tir", "tirx")
#: Names of expressions, which are the language's wherever TVM has them.
_VALUES = ("Expr", "PrimExpr", "IntImm", "FloatImm")
_PREFIX = "tilec.tvm."


class _Finder:
    """Modules below this one that no file has: their names are those of TVM's at the same place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A module that asks another one."""
        if not fullname.startswith(_PREFIX):
            return None
        return ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary one."""

    def exec_module(self, module: ModuleType) -> None:
        """Its names are looked up when they are needed."""
        vars(module)["__getattr__"] = _names_of(module.__name__)


def _names_of(module: str) -> Callable[[str], Any]:
    missing = names_of(module, EXPLAIN)

    def find(name: str) -> Any:
        if name in _VALUES:
            return getattr(import_module(f"{_PREFIX}tirx"), name)
        if name.startswith("__") and name != "__all__":  # asked of every module by who looks for frames
            return missing(name)
        try:
            home = import_module(_home(module))
        except ModuleNotFoundError:
            return missing(name)
        if name == "__all__":
            return [public for public in dir(home) if not public.startswith("_")]
        return getattr(home, name) if hasattr(home, name) else missing(name)

    return find


def _home(name: str) -> str:
    """Where the names of a module live: those of contrib here, those of tir in TVM's tirx."""
    rest = name.removeprefix(_PREFIX)
    if rest.partition(".")[0] == "contrib":
        return f"tilec.{rest}"
    return f"tvm.tirx{rest[3:]}" if rest.startswith("tir.") else f"tvm.{rest}"


def __getattr__(name: str) -> Any:
    if name in _OWN:
        return import_module(f"{_PREFIX}{name}")
    import tvm

    return getattr(tvm, name)


if not any(isinstance(each, _Finder) for each in sys.meta_path):
    sys.meta_path.append(_Finder())
