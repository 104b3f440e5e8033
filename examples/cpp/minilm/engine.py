"""Builds the engine and talks to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from batches import Batch

HERE = Path(__file__).resolve().parent
ROOT = Path(*HERE.parts[:-3])
LIBRARY = "minilm_kernels"
HIDDEN = 384
PRECISIONS = ("float32", "bfloat16")


def build_library(out: Path) -> None:
    """``tilec build manifests/minilm.toml`` into ``out``."""
    tilec = [sys.executable, "-m", "tilec.cli.main"]
    subprocess.run([*tilec, "build", str(ROOT / "manifests" / "minilm.toml"), "-o", str(out)], check=True)


def build_engine(prefix: Path, binary: Path, rpath: str = "") -> None:
    """Compiles the sources of this folder against the library installed in ``prefix``, which the engine finds
    there, or in ``rpath``."""
    sys.path.insert(0, str(HERE.parent))
    from native import build_binary

    build_binary(HERE, LIBRARY, prefix, binary, rpath)


class EngineError(RuntimeError):
    """The engine ended instead of answering; its message is on stderr."""


class Engine:
    """A running engine, a context manager. ``precision``, one of PRECISIONS, is that of the products; on a
    GPU (``device`` "cuda") it is "float16" for everything."""

    def __init__(
        self, binary: Path, weights: Path, threads: int, precision: str = "float32", device: str = "cpu"
    ) -> None:
        command = [str(binary), str(weights), "--threads", str(threads), "--precision", precision]
        command += ["--device", device]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def encode(self, batch: Batch) -> tuple[float, np.ndarray]:
        """Seconds that the engine spent on the batch, and the vectors (sentences, HIDDEN)."""
        self._process.stdin.write(batch.record())
        self._process.stdin.flush()
        size = 8 + 4 * HIDDEN * len(batch.lengths)
        answer = self._process.stdout.read(size)
        if len(answer) != size:
            raise EngineError(f"the engine stopped with exit code {self._process.wait(timeout=60)}")
        vectors = np.frombuffer(answer, np.float32, offset=8).reshape(-1, HIDDEN)
        return float(np.frombuffer(answer, np.float64, 1)[0]), vectors
