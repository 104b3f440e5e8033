"""What it costs to keep NaN in maxima and minima: the same kernels with ``nan_propagate`` and without it.

    python benchmarks/nan_extremes.py [--target x86-64-v4] [--rounds 15]
    python benchmarks/nan_extremes.py --build DIR        the library alone, with its CUDA code
    python benchmarks/nan_extremes.py --device cuda DIR  measures such a library on a GPU

Each row is the median of the ratios of neighbouring rounds (keeps NaN over drops it). On a CPU one thread
works on 64 rows, which stay in its cache, and CPU seconds count; on a GPU graphs of calls on 16384 rows are
replayed.
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

import tilec

HERE = Path(__file__).resolve().parent
ROUND_SECONDS = 0.02
ROWS = {"cpu": 64, "cuda": 16384}
COLUMNS = 1024
FORMS = ("larger", "clamped", "row_max", "column_max")

Call = Callable[[], object]


def main() -> None:
    """Builds or takes the library, checks each pair of kernels and prints one line for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", nargs="?", type=Path, help="a folder that --build made")
    parser.add_argument("--build", type=Path, metavar="DIR")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--target", help="a CPU target of the manifest; default: the best of this machine")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if options.build:
        _build(options.build, None)
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.device == "cpu" and options.library is None:
            options.target = options.target or _native()
            os.environ["TILEC_CPU"] = options.target
            _build(Path(folder), [options.target])
        report(tilec.load(options.library or folder), options)


def report(library: Any, options: argparse.Namespace) -> None:
    """The table of one device."""
    measure = on_gpu if options.device == "cuda" else on_cpu
    print(f"{options.target or options.device}: time with nan_propagate / time without")
    for dtype in ("float32", "float16"):
        for form in FORMS:
            ratio = measure(library, form, dtype, options.rounds)
            print(f"{form:12}{dtype:10}{ratio:6.2f}", flush=True)


def _native() -> str:
    from tilec.targets import native_target, parse_target

    return parse_target(native_target().level).name


def _build(folder: Path, targets: list[str] | None) -> None:
    from tilec.build import build

    build(HERE / "nan_extremes.toml", folder, targets=targets)


def _arrays(form: str, dtype: str, rows: int) -> list[np.ndarray]:
    """Inputs with a NaN and an output, as the kernels of a form take them."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((rows, COLUMNS)).astype(dtype) for _ in range(2))
    x[3, 5] = np.nan
    if form in ("larger", "clamped"):
        return [x, y, np.empty_like(x)]
    return [x, np.empty(rows if form == "row_max" else (rows // 16, COLUMNS), dtype)]


def _expected(form: str, arrays: list[np.ndarray], keeps: bool) -> np.ndarray:
    most, least = (np.maximum, np.minimum) if keeps else (np.fmax, np.fmin)
    x = arrays[0]
    if form == "larger":
        return most(x, arrays[1])
    if form == "clamped":
        wide = least(most(x, -1), 1).astype(np.float32) + arrays[1].astype(np.float32)
        return wide.astype(x.dtype)
    return most.reduce(x, 1) if form == "row_max" else most.reduce(x.reshape(-1, 16, COLUMNS), 1)


def on_cpu(library: Any, form: str, dtype: str, rounds: int) -> float:
    """Time that keeps NaN over time that drops it, on one thread."""
    arrays = _arrays(form, dtype, ROWS["cpu"])
    calls = []
    for keeps in (False, True):
        kernel = getattr(library, f"{form}_{dtype}_{keeps}".lower())
        kernel(*arrays)
        np.testing.assert_allclose(arrays[-1], _expected(form, arrays, keeps), rtol=2e-3)
        calls.append(lambda kernel=kernel: kernel(*arrays))
    return statistics.median(_seconds(calls[1]) / _seconds(calls[0]) for _ in range(rounds))


def _seconds(call: Call) -> float:
    """One call, over enough of them to fill a round."""
    start = time.thread_time()
    call()
    repeats = max(1, int(ROUND_SECONDS / max(time.thread_time() - start, 1e-6)))
    start = time.thread_time()
    for _ in range(repeats):
        call()
    return (time.thread_time() - start) / repeats


def on_gpu(library: Any, form: str, dtype: str, rounds: int) -> float:
    """The same on the first GPU, with torch's memory and the graphs of CUDA."""
    import torch

    host = _arrays(form, dtype, ROWS["cuda"])
    arrays = [torch.from_numpy(array).cuda() for array in host]
    graphs = []
    for keeps in (False, True):
        kernel = getattr(library, f"{form}_{dtype}_{keeps}".lower())
        kernel(*arrays)
        np.testing.assert_allclose(arrays[-1].cpu().numpy(), _expected(form, host, keeps), rtol=2e-3)
        graphs.append(_graph(kernel, arrays))
    return statistics.median(_replayed(graphs[1]) / _replayed(graphs[0]) for _ in range(rounds))


def _graph(kernel: Any, arrays: list[Any], calls: int = 50) -> Any:
    import torch

    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            kernel(*arrays)
    return graph


def _replayed(graph: Any) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


if __name__ == "__main__":
    main()
