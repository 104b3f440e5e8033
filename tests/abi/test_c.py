"""Programs in C11 and C++17 against a built library, shared and static."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
@pytest.mark.parametrize("flags", [("-std=c11",), ("-std=c++17", "-x", "c++")], ids=["c11", "c++17"])
def test_typed_door(program: Callable[..., Path], flags: tuple[str, ...], static: bool) -> None:
    made = program("typed.c", *flags, static=static)
    done = subprocess.run([made], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("ok\n", 0)
