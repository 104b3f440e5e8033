"""What a warm call costs from torch and from JAX, beside what these have themselves for the same work.

    python benchmarks/frameworks.py [--rounds 30]

``a * x + y`` over few and many float32 elements on the CPU, one thread but for XLA: kernel `scale_add` of
manifests/quickstart.toml through the loader, as an operator of torch and as a function of JAX, beside
`torch.add(y, x, alpha=a)` and `jax.jit` of the expression. All ways take turns; medians over rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TILEC_NUM_THREADS"] = "1"

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tilec.build import build
from tilec.portable import jax_ops, torch_ops
from tilec.portable.loader import Library, load

MANIFEST = Path(__file__).resolve().parents[1] / "manifests" / "quickstart.toml"
SIZES = (64, 1 << 20)
_SECONDS = 0.005  # of one way in one round


def main() -> None:
    """A table of microseconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        library = load(build(MANIFEST, folder, kernels=["scale_add"]).report.library)
        print("| elements | way | us | beside the framework's own |\n|---|---|---|---|")
        for size in SIZES:
            show(size, measured(ways(library, size), rounds))


def ways(library: Library, size: int) -> dict[str, Callable[[], Any]]:
    """Every way to the same work; the framework's own ones first."""
    x, y, z = (torch.ones(size) for _ in range(3))
    numpy_x, numpy_y = (np.ones(size, np.float32) for _ in range(2))
    jax_x, jax_y = jnp.ones(size), jnp.ones(size)
    torch_ops.register(library, "frameworks")
    kernel, operator = library.kernels["scale_add"], torch.ops.frameworks.scale_add
    function = jax_ops.functions(library)["scale_add"]
    compiled = jax.jit(lambda x, y: function(x, y, 2.0))
    own = jax.jit(lambda x, y: 2.0 * x + y)
    return {
        "torch.add": lambda: torch.add(y, x, alpha=2.0),
        "operator of torch": lambda: operator(x, y, 2.0),
        "loader, output made": lambda: kernel(x, y, 2.0),
        "loader, output given": lambda: kernel(x, y, 2.0, z),
        "loader, NumPy": lambda: kernel(numpy_x, numpy_y, 2.0),
        "jax.jit": lambda: own(jax_x, jax_y).block_until_ready(),
        "function of JAX": lambda: compiled(jax_x, jax_y).block_until_ready(),
    }


def measured(found: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Microseconds of each, in turns."""
    for call in found.values():
        timed(call, 10)  # compiles, and finds its variant
    counts = {name: max(1, int(_SECONDS / timed(call, 10))) for name, call in found.items()}
    times = [{name: timed(call, counts[name]) for name, call in found.items()} for _ in range(rounds)]
    return {name: 1e6 * statistics.median(each[name] for each in times) for name in found}


def timed(call: Callable[[], Any], count: int) -> float:
    """Seconds of one call, over ``count``."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def show(size: int, found: dict[str, float]) -> None:
    """The rows of a size."""
    for name, us in found.items():
        peer = "jax.jit" if "JAX" in name or "jax" in name else "torch.add"
        print(f"| {size} | {name} | {us:.2f} | {us / found[peer]:.2f} |")


if __name__ == "__main__":
    main()
