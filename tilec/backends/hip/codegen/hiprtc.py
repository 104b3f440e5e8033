"""Code objects by hipRTC, the compiler that ROCm brings as a library (HIP documentation, "HIP RTC").

It runs in a process of its own (`hiprtc_process.py`): its LLVM and TVM's are not meant for one. It takes HIP
in place of C++ and puts HIP's header in front; a namespace keeps the names of both apart.
"""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from tilec.errors import CompileError, EnvironmentError_

#: As ziglang's clang is told and as that fuses products and sums: within an expression.
_OPTIONS = ("-O2", "-std=c++20", "-ffp-contract=on", "-w", "-mllvm", "-unroll-full-max-count=16")
_PROCESS = Path(__file__).with_name("hiprtc_process.py")
_ERROR_LINES = 12
_REMEDY = "name a libhiprtc.so of ROCm that loads, or unset TILEC_HIPRTC: ziglang's clang serves, too"


@lru_cache(maxsize=4)
def version(library: str) -> str:
    """Name and version: "hipRTC 6.2". EnvironmentError_ where ``library`` cannot be loaded."""
    done = _run(library)
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip() or f"it ended with {done.returncode}"
        raise EnvironmentError_(f'TILEC_HIPRTC is "{library}"', why=why, remedy=_REMEDY)
    return f"hipRTC {done.stdout.decode()}"


def code_object(text: str, mcpu: str, library: str) -> bytes:
    """The code object of C++ device source for a processor. CompileError with the compiler's words."""
    inside = f"namespace tilec_device {{\n{text}\n}}\n"
    done = _run(library, f"--offload-arch={mcpu}", *_OPTIONS, text=inside)
    if done.returncode != 0 or not done.stdout:
        lines = done.stderr.decode(errors="replace").strip().splitlines()[:_ERROR_LINES]
        why = "\n".join(lines) or f"it ended with {done.returncode}"
        raise CompileError(f"{version(library)} failed for {mcpu}", why=why)
    return done.stdout


def _run(library: str, *options: str, text: str = "") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", str(_PROCESS), library, *options]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=False)
