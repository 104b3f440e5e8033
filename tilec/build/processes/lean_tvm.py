"""TVM without what compiling and checking kernels never asks of it; importing this imports it.

TVM imports torch where it finds it, to take torch's tensors. Nobody here passes any, and torch takes longer
to import than all the rest: it looks absent while TVM is imported. A kernel's own import of it works as ever.
TVM's models (relax), and what they alone import, are a third of it: they are loaded when somebody asks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

#: What TVM imports for its models alone, and these.
_PUT_OFF = ("contrib", "relax", "rpc", "s_tir", "topi")


@contextmanager
def _absent(name: str) -> Iterator[None]:
    """In the block, importing ``name`` fails, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # what Python's import takes for "not there"
    try:
        yield
    finally:
        del sys.modules[name]


@contextmanager
def _put_off(name: str) -> Iterator[None]:
    """In the block, importing ``name`` gives an empty module, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        del sys.modules[name]


def _loaded_when_asked(name: str) -> ModuleType:
    """The ``__getattr__`` of TVM for the modules that were put off."""
    if name not in _PUT_OFF:
        raise AttributeError(f"module 'tvm' has no attribute {name!r}")
    return import_module(f"tvm.{name}")


with _absent("torch"), _put_off("tvm.relax"):
    import tvm

if "tvm.relax" not in sys.modules:
    del tvm.relax
    tvm.__getattr__ = _loaded_when_asked
