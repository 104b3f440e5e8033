"""Builds the engine and asks it for tokens, logits and times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = Path(*HERE.parts[:-3])
MANIFEST = HERE / "llama.toml"
LIBRARY = "llama_kernels"
PRECISIONS = ("float32", "bfloat16", "float16", "q4_0", "fp8")
#: Types of cached keys and values: that of activations, or float8_e4m3fn.
CACHE_TYPES = ("same", "fp8")


def best_target() -> str:
    """The last target of the manifest, which lists them from the least on, that this machine runs."""
    from tilec.manifest import load_manifest
    from tilec.targets import runs_here

    listed = dict.fromkeys(variant.target for variant in load_manifest(MANIFEST).variants)
    return [target.name for target in listed if runs_here(target)][-1]


def build_library(out: Path, manifest: Path = MANIFEST, targets: Sequence[str] = ()) -> None:
    """``tilec build`` of the manifest into ``out``, for ``targets`` or else all that it lists."""
    tilec = [sys.executable, "-m", "tilec.cli.main", "build", str(manifest), "-o", str(out)]
    subprocess.run([*tilec, *(f"--target={name}" for name in targets)], check=True)


def build_engine(prefix: Path, binary: Path, rpath: str = "", portable: bool = False) -> None:
    """Compiles the sources of this folder against the library installed in ``prefix``, which the binary finds
    there or in ``rpath``; ``portable``: for any Linux of this architecture."""
    sys.path.insert(0, str(HERE.parent))
    from native import build_binary

    build_binary(HERE, LIBRARY, prefix, binary, rpath, portable)


def prompt_of(length: int, vocabulary: int, seed: int = 0) -> list[int]:
    """Random token ids."""
    return np.random.default_rng(seed).integers(0, vocabulary, length).tolist()


class EngineError(RuntimeError):
    """The engine ended with an error; the message is its own."""


@dataclass(frozen=True)
class Engine:
    """The engine with a checkpoint; every call is a process of its own."""

    binary: Path
    folder: Path
    precision: str = "bfloat16"
    threads: int = 2
    device: str = "cpu"
    cache_type: str = "same"
    ranks: int = 1
    #: Where the program looks for libraries that it opens, NCCL's, before the system's own places.
    libraries: str = ""

    def _run(self, prompts: Sequence[Sequence[int]], **options: Any) -> subprocess.CompletedProcess[str]:
        command = [str(self.binary), str(self.folder), "--precision", self.precision]
        command += ["--threads", str(self.threads), "--device", self.device]
        command += ["--cache-type", self.cache_type]
        for name, value in {"ranks": self.ranks, **options}.items():
            command += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
        lines = "".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts)
        environment = {**os.environ, "LD_LIBRARY_PATH": self._library_path()} if self.libraries else None
        done = subprocess.run(
            command, input=lines, text=True, capture_output=True, check=False, env=environment
        )
        if done.returncode != 0:
            raise EngineError(done.stderr.strip() or f"the engine ended with {done.returncode}")
        return done

    def _library_path(self) -> str:
        return ":".join(filter(None, (self.libraries, os.environ.get("LD_LIBRARY_PATH"))))

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int, **options: Any) -> list[list[int]]:
        """New token ids of each prompt; ``options`` are those of the program, such as ``top_k=5``."""
        lines = self._run(prompts, tokens=tokens, **options).stdout.splitlines()
        return [[int(word) for word in line.split()] for line in lines]

    def stats(self, prompts: Sequence[Sequence[int]], tokens: int, **options: Any) -> dict[str, int]:
        """Tokens of prompts, those among them whose keys and values the cache had, and those of all steps."""
        return json.loads(self._run(prompts, tokens=tokens, stats=True, **options).stderr)

    def logits(self, prompt: Sequence[int], vocabulary: int, **options: Any) -> np.ndarray:
        """The logits of each token of a prompt, float32 (tokens, vocabulary)."""
        with tempfile.NamedTemporaryFile() as file:
            self._run([prompt], logits=file.name, **options)
            return np.fromfile(file.name, np.float32).reshape(-1, vocabulary)

    def times(self, prompts: Sequence[Sequence[int]], tokens: int, **options: Any) -> dict[str, Any]:
        """Of steps with prompts ("prefill") and without ("decode"): "tokens", "seconds", "rate" (tokens
        a second), "steps" (seconds of each) and "gaps" (those in front of each without a kernel)."""
        return json.loads(self._run(prompts, tokens=tokens, times=True, **options).stderr)
