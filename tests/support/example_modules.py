"""Modules that are in no package: those of an example, and scripts."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest


@contextmanager
def importable(folder: Path, modules: Sequence[str]) -> Iterator[None]:
    """Modules of ``folder`` by their own names, which other examples have, too; forgotten behind that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for name in modules:
            sys.modules.pop(name, None)
        yield
        for name in modules:
            sys.modules.pop(name, None)


def module_of(file: Path, name: str) -> ModuleType:
    """The module of a file, made anew with a ``name`` that nobody imports it by."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
