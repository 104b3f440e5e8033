"""Imported once by the server that compile processes are forked from: what every compilation needs.

What tilec itself is made of takes as long to import as a small kernel to compile.
"""

from __future__ import annotations

import gc
import os

import tilec.build.processes.lean_tvm  # noqa: F401
from tilec.build.processes.safe_path import OWN_SAFE_PATH, SAFE_PATH

if os.environ.get(SAFE_PATH) == OWN_SAFE_PATH:
    del os.environ[SAFE_PATH]  # it was meant for this process, not for compilers that are Python programs


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
