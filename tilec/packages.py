"""Packages that have other packages' names (`tilec/compat`): found through the ``__path__`` of each, so that
no other import asks here, and nothing is loaded before such a name is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any


class _Folders(list[str]):
    """A ``__path__``: folders, and behind them the entry that stands for the aliases."""

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        yield import_module("tilec.aliases").ENTRY


class _Package(ModuleType):
    """A package whose functions an import does not hide: ``T.copy`` stays one after ``import
    tilec.language.copy``, as modules without a file do not become attributes."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(value, ModuleType) or hasattr(value, "__file__"):
            super().__setattr__(name, value)


def find_aliases(package: str) -> None:
    """Modules that ``package`` has no file for are looked for in its folder below tilec/compat, then among
    the aliases."""
    module, folders = sys.modules[package], _folders(package)
    other = os.path.join(os.path.dirname(__file__), "compat", *package.split(".")[1:])
    module.__class__ = _Package
    module.__path__ = _Folders(dict.fromkeys([*folders, other]))


def names_of_others(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose name another package's module has, too: names that it lacks are
    looked up among the aliases."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        fullname = f"{module}.{name}"
        if PathFinder.find_spec(fullname, _folders(module)) is not None:
            return import_module(fullname)
        return import_module("tilec.aliases").look_up(module, name)

    return find


#: Module -> the one whose names it has beside its own.
_LENDERS: dict[str, str] = {}


def lend(lender: str, module: str) -> None:
    """From now on ``module``, which asks `lent`, has the names of ``lender`` too. The package's root says so,
    which knows where everything is."""
    _LENDERS[module] = lender


def lent(module: str, name: str) -> Any:
    """A name of ``module`` that its lender has. Raises AttributeError."""
    if name.startswith("__") or module not in _LENDERS:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return getattr(import_module(_LENDERS[module]), name)


def _folders(module: str) -> list[str]:
    """The folders of a package; none of a module that is one file."""
    path: list[str] = getattr(sys.modules[module], "__path__", [])
    return path[:]
