"""C of tests, linked with the settings of tilec's libraries.

zig compiles what it links with (compiler-rt, for Windows a C library) once for each host, and again for other
settings: unoptimised or with symbols kept that takes from 5 s to two minutes where its cache is empty."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tilec.codegen.toolchain import find_toolchain
from tilec.targets import Host

_SETTINGS = ("-O1", "-g0", "-s")


def link(*arguments: object, host: Host | None = None, folder: Path | None = None) -> None:
    """Runs the C compiler for ``host`` (default: this machine) in ``folder``. Fails with its words."""
    command = [*find_toolchain(host).driver, *_SETTINGS, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
