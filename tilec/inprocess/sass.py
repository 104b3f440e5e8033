"""The machine code of a CUDA image as text, through NVIDIA's disassemblers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilec.errors import CompileError, EnvironmentError_

#: Programs that read a cubin, with what makes them print its code.
_TOOLS = {"nvdisasm": ("--print-code",), "cuobjdump": ("--dump-sass",)}
#: Installed packages that carry them.
_PACKAGES = ("nvidia", "triton")


def sass_of(image: bytes) -> str:
    """The machine code of a cubin. Raises EnvironmentError_ where no disassembler is installed, CompileError
    for an image that it cannot read (PTX has no machine code)."""
    tool = disassembler()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(image)
        done = subprocess.run(
            [str(tool), *_TOOLS[tool.name], str(path)], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise CompileError(
            f"{tool.name} cannot read the image",
            why=(done.stderr or done.stdout).strip(),
            remedy="it may be older than what compiled the kernel: use show_ptx()",
        )
    return done.stdout


def disassembler() -> Path:
    """The program that reads cubins. Raises EnvironmentError_ where none is installed."""
    tool = next(_tools(), None)
    if tool is None:
        raise EnvironmentError_(
            "SASS needs nvdisasm or cuobjdump, and neither is installed",
            remedy="install the CUDA toolkit and put its bin folder on PATH, or use show_ptx()",
        )
    return tool


def _tools() -> Iterator[Path]:
    """On PATH, in CUDA_HOME, in packages that carry them."""
    for name in _TOOLS:
        found = shutil.which(name)
        if found:
            yield Path(found)
    folders = [Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda", "bin")]
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        roots = spec.submodule_search_locations if spec is not None else None
        folders += [Path(root) for root in roots or ()]
    for folder in folders:
        depth = "" if folder.name == "bin" else "**/bin/"
        for name in _TOOLS:
            yield from (path for path in folder.glob(f"{depth}{name}") if os.access(path, os.X_OK))
