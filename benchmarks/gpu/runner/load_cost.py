"""What it costs to get a library ready, in a fresh process: ``python3 load_cost.py`` prints JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import driver
from cases import read_cases

from tilec.portable.loader import load


def main() -> None:
    """Milliseconds of each step and bytes. The context is made before: it is not the library's to pay for."""
    path, _ = read_cases()
    driver.start()
    times: dict[str, float] = {}
    library = _timed(times, "load the file", lambda: load(path))
    kernels = list(library.kernels.values())
    _timed(times, "preload one kernel", lambda: kernels[0].preload("cuda:0"))
    _timed(times, "preload another", lambda: kernels[-1].preload("cuda:0"))
    _timed(times, "preload all", lambda: library.preload("cuda:0"))
    targets = [variant["target"] for kernel in library.metadata["kernels"] for variant in kernel["variants"]]
    cuda = [target for target in targets if target.startswith(("sm_", "compute_"))]
    size = path.stat().st_size
    counts = {"kernels": len(kernels), "variants": len(targets), "CUDA variants": len(cuda)}
    print(json.dumps({"ms": times, "bytes": size, **counts, "bytes of a variant": size // len(targets)}))


def _timed(times: dict[str, float], what: str, work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    made = work()
    times[what] = round((time.perf_counter() - start) * 1e3, 3)
    return made


if __name__ == "__main__":
    main()
