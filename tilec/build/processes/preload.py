"""Imported once by the server that compile processes are forked from: what every compilation needs.

TVM imports torch where it finds it, to take torch's tensors. Compilation passes none, and torch takes longer
to import than all the rest: it looks absent while TVM is imported. A kernel's own import of it works as ever.
What tilec itself is made of takes as long to import as a small kernel to compile.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tilec.build.processes.safe_path import OWN_SAFE_PATH, SAFE_PATH

if os.environ.get(SAFE_PATH) == OWN_SAFE_PATH:
    del os.environ[SAFE_PATH]  # it was meant for this process, not for compilers that are Python programs


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


with _absent("torch"):
    import tvm  # noqa: F401


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
