"""How the engines of this folder are compiled."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: What engines share: the files of checkpoints.
SHARED = HERE / "checkpoint"


def compiler() -> list[str]:
    """The system's C++ compiler, else the one of the ziglang package (with its libc++, linked statically)."""
    system = shutil.which("g++") or shutil.which("clang++")
    return [system] if system else [sys.executable, "-m", "ziglang", "c++"]


def portable_compiler() -> list[str]:
    """The compiler of the ziglang package, for any Linux with a glibc of 2.17 or later; its libc++ is linked
    statically."""
    return [sys.executable, "-m", "ziglang", "c++", "-target", "x86_64-linux-gnu.2.17", "-s"]


def build_binary(
    folder: Path, library: str, prefix: Path, binary: Path, rpath: str = "", portable: bool = False
) -> None:
    """Compiles the sources of ``folder`` and of `SHARED` against the library installed in ``prefix``, which
    the binary finds there, or in ``rpath``. ``portable``: by `portable_compiler`."""
    binary.parent.mkdir(parents=True, exist_ok=True)
    sources = [str(source) for part in (SHARED, folder) for source in sorted(part.glob("*.cpp"))]
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-pthread", f"-I{HERE}", f"-I{prefix / 'include'}"]
    link = [f"-L{prefix / 'lib'}", f"-l{library}", f"-Wl,-rpath,{rpath or prefix / 'lib'}", "-ldl"]
    chosen = portable_compiler() if portable else compiler()
    subprocess.run([*chosen, *flags, *sources, *link, "-o", str(binary)], check=True)
