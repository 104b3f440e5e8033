"""The modules of an example, which are no package."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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
