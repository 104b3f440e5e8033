"""Kernels compiled for aarch64 and run by qemu's user mode: a program without a C library, so that nothing of
an aarch64 system has to be installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from told import told
from variant_code import compile_variant

from tilec.codegen.toolchain import find_toolchain
from tilec.ir.text.parser import parse_kernel
from tilec.sizes import evaluate_size
from tilec.targets import parse_host, parse_target

QEMU = shutil.which("qemu-aarch64")
_MAIN = Path(__file__).with_suffix(".c")


class EmulatedLibrary:
    """As `compiled.Library`, for kernels of one launch whose parameters are tensors."""

    def __init__(self, kernels: Mapping[str, str], target: str) -> None:
        self.target = parse_target(target)
        self.kernels = {name: parse_kernel(text) for name, text in kernels.items()}
        self.images = {
            name: compile_variant(kernel, self.target, f"k_{name}") for name, kernel in self.kernels.items()
        }
        with tempfile.TemporaryDirectory() as folder:
            self._program = self._linked(Path(folder)).read_bytes()

    def notes(self, name: str) -> tuple[str, ...]:
        """The notes of the launch, and the roads of its statements as lines."""
        return tuple(told(self.images[name].launches[0]))

    def run(self, name: str, args: Sequence[np.ndarray], dims: Mapping[str, int]) -> None:
        """Runs ``name``; the last array is its output."""
        (launch,) = self.images[name].launches
        values = {dim.name: dims.get(dim.name, dim.guard.eq) for dim in self.kernels[name].dims}
        blocks = int(np.prod([evaluate_size(text, values) for text in launch.grid]))
        head = [list(self.images).index(name), len(args), *(arg.nbytes for arg in args)]
        head += [len(values), *values.values(), blocks]
        data = np.array(head, np.int64).tobytes() + b"".join(arg.tobytes() for arg in args)
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            program.write_bytes(self._program)
            program.chmod(0o755)
            done = subprocess.run(
                [str(QEMU), "-cpu", "max", str(program)],
                input=data,
                capture_output=True,
                timeout=120,
                check=True,
            )
        args[-1][...] = np.frombuffer(done.stdout, args[-1].dtype).reshape(args[-1].shape)

    def _linked(self, folder: Path) -> Path:
        for name, image in self.images.items():
            (folder / f"{name}.o").write_bytes(image.code)
        symbols = [image.launches[0].symbol for image in self.images.values()]
        (folder / "table.h").write_text(
            "".join(f"void {symbol}(void);\n" for symbol in symbols)
            + f"static void (*const kernels[])(void) = {{{', '.join(symbols)}}};\n"
        )
        toolchain = find_toolchain(parse_host("aarch64-linux-gnu"))
        driver = [part.replace(toolchain.host.triple, "aarch64-linux-musl") for part in toolchain.driver]
        bare = ("-static", "-nostdlib", "-ffreestanding", "-fno-builtin", f"-I{folder}")
        objects = [f"{name}.o" for name in self.images]
        command = [*driver, "-O1", *bare, str(_MAIN), *objects, "-o", "program"]
        done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return folder / "program"
