"""Compilers that crash are ended alone. In a process of its own, as one with threads does all itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal
from tilec.codegen.apart import Died, apart
from tilec.errors import CompileError

def refuse():
    raise CompileError("refused", why="so")

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

print(apart(os.getpid) != os.getpid(), apart(lambda: b"code" * 100000) == b"code" * 100000)
for work in (refuse, crash):
    try:
        apart(work)
    except (CompileError, Died) as problem:
        print(type(problem).__name__, problem.what if isinstance(problem, CompileError) else problem)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="children are Linux's")
def test_what_a_child_returns_raises_and_dies_of() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["True True", "CompileError refused", "Died SIGSEGV"], done.stderr
