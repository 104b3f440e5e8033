"""Imported once by the server that compile processes are forked from: what every compilation needs.

TVM imports torch where it finds it, to take torch's tensors. Compilation passes none, and torch takes longer
to import than all the rest: it looks absent while TVM is imported. A kernel's own import of it works as ever.
TVM's models (relax), and what they alone import, are a third of it: they are loaded when somebody asks.
What tilec itself is made of takes as long to import as a small kernel to compile.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from tilec.build.processes.safe_path import OWN_SAFE_PATH, SAFE_PATH

if os.environ.get(SAFE_PATH) == OWN_SAFE_PATH:
    del os.environ[SAFE_PATH]  # it was meant for this process, not for compilers that are Python programs


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


def _load() -> None:
    """Imports tilec's own way from a variant to its code, with the part of every family."""
    import tilec.backends.pipeline
    import tilec.backends.to_tir
    import tilec.build.records
    import tilec.build.reuse.images
    import tilec.ir.text.printer
    import tilec.language.frontend.elaborate  # noqa: F401
    from tilec.backends.base import backends

    for backend in backends():
        backend.load()


_load()
gc.freeze()  # nothing of this becomes garbage: collections need not walk it in every process
gc.set_threshold(50_000, 20, 20)  # compiling makes many objects and few cycles
