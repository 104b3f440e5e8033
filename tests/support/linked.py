"""C of tests, linked with the settings of tilec's libraries.

zig compiles what it links with (compiler-rt, for Windows a C library) once for each host, and again for other
settings: unoptimised or with symbols kept that takes from 5 s to two minutes where its cache is empty."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import find_toolchain
from tilec.targets import Host

_SETTINGS = ("-O1", "-g0", "-s")


def link(*arguments: object, host: Host | None = None, folder: Path | None = None) -> None:
    """Runs the C compiler for ``host`` (default: this machine) in ``folder``. Fails with its words."""
    command = [*find_toolchain(host).driver, *_SETTINGS, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


def link_code(objects: Sequence[Path], library: Path, host: Host) -> None:
    """Links machine code that needs nothing but the C library of the process that loads it. zig's linker does
    so in 7 ms; its driver looks through the sources of what it might link first, for 60 ms."""
    toolchain = find_toolchain(host)
    if toolchain.kind != "zig":
        toolchain.link_shared(objects, SharedLibrary(library, library.name, "*"))
        return
    command = [toolchain.driver[0], "ld.lld", "-shared", "-o", library, *objects]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
