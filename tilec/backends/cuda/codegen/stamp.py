"""What settings say about the CUDA compiler: known without loading one."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from tilec.settings import read_settings


def compiler_stamp() -> list[str]:
    """The nvcc that is named, with the time and size of its program; or the version of NVRTC that is."""
    settings = read_settings()
    if settings.nvcc:
        return [_command_stamp(settings.nvcc)]
    return [f"nvrtc {settings.nvrtc}"] if settings.nvrtc else []


def _command_stamp(command: str) -> str:
    program = Path(shutil.which(shlex.split(command)[0]) or "").resolve()
    try:
        state = program.stat()
    except OSError:
        return f"{command} {(0, 0)}"
    return f"{command} {(state.st_mtime_ns, state.st_size)}"
