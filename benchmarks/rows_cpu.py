"""Softmax and norms on one core beside torch in the same run.

python benchmarks/rows_cpu.py [--target x86-64-v4] [--rounds 15]

Times are medians over rounds in which this library and torch follow each other, in CPU seconds of the one
thread that works; both sides include the call from Python.
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

os.environ["TILEC_NUM_THREADS"] = "1"  # a library reads it once, at its first call

import numpy as np
import torch

import tilec
from tilec.build import build
from tilec.targets import native_target, parse_target

HERE = Path(__file__).resolve().parent
ROUND_SECONDS = 0.02

#: (kernel, rows, columns)
CASES = (
    ("softmax", 256, 1024),
    ("softmax", 4096, 1024),
    ("softmax", 256, 1000),
    ("rmsnorm", 256, 4096),
    ("rmsnorm", 512, 384),
    ("layernorm", 256, 4096),
    ("layernorm", 512, 384),
)


def main() -> None:
    """Builds the kernels, checks every case against torch and prints one line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", help="a CPU target of the manifest; default: the best of this machine")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    target = parse_target(options.target) if options.target else parse_target(native_target().level)
    os.environ["TILEC_CPU"] = target.name
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        build(HERE / "rows_cpu.toml", Path(folder), targets=[target.name])
        library = tilec.load(folder)
        print(f"{target.name}, one thread, fp32; microseconds")
        print(f"{'kernel':12}{'rows':>6}{'columns':>9}{'tilec':>9}{'torch':>9}{'ratio':>7}")
        for name, rows, columns in CASES:
            ours, peer = measure(library, name, rows, columns, options.rounds)
            print(f"{name:12}{rows:6}{columns:9}{ours:9.1f}{peer:9.1f}{peer / ours:7.2f}", flush=True)


def measure(library: Any, name: str, rows: int, columns: int, rounds: int) -> tuple[float, float]:
    """Microseconds of this library and of torch, after their results were compared."""
    rng = np.random.default_rng(0)
    x, gain, bias = (rng.standard_normal(size, np.float32) for size in ((rows, columns), columns, columns))
    out = np.empty_like(x)
    extra = {"softmax": [], "rmsnorm": [gain], "layernorm": [gain, bias]}[name]
    kernel, args = getattr(library, name), [x, *extra, out]

    def ours() -> object:
        return kernel(*args)

    peer = _torch_call(name, x, gain, bias)
    ours()
    np.testing.assert_allclose(out, peer().numpy(), rtol=2e-4, atol=2e-5)
    times = [(_microseconds(ours), _microseconds(peer)) for _ in range(rounds)]
    mine, theirs = zip(*times, strict=True)
    return statistics.median(mine), statistics.median(theirs)


def _torch_call(name: str, x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> Callable[[], torch.Tensor]:
    values, weight, shift = map(torch.from_numpy, (x, gain, bias))
    shape = (x.shape[1],)
    if name == "softmax":
        return lambda: torch.softmax(values, 1)
    if name == "rmsnorm":
        return lambda: torch.nn.functional.rms_norm(values, shape, weight, 1e-6)
    return lambda: torch.nn.functional.layer_norm(values, shape, weight, shift, 1e-5)


def _microseconds(call: Callable[[], object]) -> float:
    """One call, over enough of them to fill a round."""
    start = time.thread_time()
    call()
    repeats = max(1, int(ROUND_SECONDS / max(time.thread_time() - start, 1e-6)))
    start = time.thread_time()
    for _ in range(repeats):
        call()
    return (time.thread_time() - start) / repeats * 1e6


if __name__ == "__main__":
    main()
