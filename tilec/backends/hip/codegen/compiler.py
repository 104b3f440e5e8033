"""Code objects from C++ by the clang and lld of the ziglang package, which need no ROCm, or by the hipRTC
that TILEC_HIPRTC names."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from tilec.backends.hip.codegen import hiprtc
from tilec.cache import installed_version
from tilec.errors import CompileError, EnvironmentError_, UnsupportedError
from tilec.settings import read_settings
from tilec.targets import Target

#: ROCm loads code objects of version 5 from 5.3 on. Loops that are to be unrolled say so; clang would unroll
#: a dot product of 64 trips, too, whose operands no registers hold.
_FLAGS = (
    *("-O2", "-nogpulib", "-ffreestanding", "-std=c++20", "-mcode-object-version=5", "-Wno-everything"),
    *("-mllvm", "-unroll-full-max-count=16"),
)
_ERROR_LINES = 12


def compiler_name() -> str:
    """What an image says of who made it."""
    if library := read_settings().hiprtc:
        return hiprtc.version(library)
    return f"ziglang {installed_version('ziglang')}"


def require_compiler() -> None:
    """Raises EnvironmentError_ where the compiler is missing."""
    if library := read_settings().hiprtc:
        hiprtc.version(library)
    elif importlib.util.find_spec("ziglang") is None:
        raise EnvironmentError_("code for AMD GPUs needs the clang of ziglang", remedy="pip install ziglang")


def code_object(text: str, target: Target) -> bytes:
    """The code object of C++ device source. CompileError with the compiler's words."""
    if library := read_settings().hiprtc:
        return hiprtc.code_object(text, target.mcpu, library)
    with tempfile.TemporaryDirectory(prefix="tilec-hip-") as name:
        folder = Path(name)
        _compile(text, target, folder, ("-c", "-o", "kernel.o"))
        _run(("ld.lld", "-shared", "--no-undefined", "kernel.o", "-o", "kernel.co"), folder)
        return (folder / "kernel.co").read_bytes()


def assembly_text(text: str, target: Target) -> str:
    """The assembly of C++ device source. CompileError with the compiler's words."""
    if read_settings().hiprtc:
        raise UnsupportedError("hipRTC gives no assembly", remedy="unset TILEC_HIPRTC: ziglang's clang does")
    with tempfile.TemporaryDirectory(prefix="tilec-hip-") as name:
        folder = Path(name)
        _compile(text, target, folder, ("-S", "-o", "kernel.s"))
        return (folder / "kernel.s").read_text()


def _compile(text: str, target: Target, folder: Path, wanted: tuple[str, ...]) -> None:
    (folder / "kernel.cpp").write_text(text)
    which = ("-target", target.triple, f"-mcpu={target.mcpu}")
    _run(("clang", *which, *_FLAGS, "-x", "c++", "kernel.cpp", *wanted), folder)


def _run(arguments: tuple[str, ...], folder: Path) -> None:
    require_compiler()
    command = [sys.executable, "-m", "ziglang", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    lines = done.stderr.strip().splitlines()[:_ERROR_LINES]
    raise CompileError(f"{arguments[0]} failed for an AMD GPU", why="\n".join(lines))
