"""Kernels of a library on this CPU beside the best of torch, oneDNN, NumPy and onnxruntime (where installed).

Each thread count has a process of its own, in which the sides take turns; of each the least time of several
rounds counts: CPU seconds of the thread where there is one, else seconds on the clock, after a pause in which
threads of the side before stop waiting for work. A ratio is the time of the best peer over that of the
library. NumPy's OpenBLAS is made to use the widest vectors that the CPU has, whatever the environment asks
of it, and its threads to sleep some 2 ms after a call: else they spin for 150, and sides whose threads all
meet at a barrier wait for processors.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from options import parser

HERE = Path(__file__).resolve().parent
_COUNTS = ("TILEC_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    """Prints a line for each row, then what they come to; with ``--json`` writes all of it."""
    options = parser(__doc__).parse_args()
    found = []
    for threads in options.threads or sorted({1, len(os.sched_getaffinity(0))}):
        print(f"\n{threads} thread{'s' * (threads > 1)}; microseconds", flush=True)
        own = list(_measured(options, threads))
        found += own
        _print_summary(own)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def _measured(options: argparse.Namespace, threads: int) -> Iterator[dict[str, Any]]:
    """What the process of one thread count finds, line by line."""
    command = [sys.executable, str(HERE / "measure.py"), "--rounds", str(options.rounds)]
    command += ["--threads", str(threads), "--random", str(options.random), "--seed", str(options.seed)]
    command += ["--large"] * options.large + [part for name in options.only for part in ("--only", name)]
    counts = dict.fromkeys(_COUNTS, str(threads))
    openblas = {"OPENBLAS_CORETYPE": _openblas_core(), "OPENBLAS_THREAD_TIMEOUT": "22"}
    others = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    environment = {**others, **openblas, **counts}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = json.loads(line)
            _print_row(row)
            yield row
    if process.returncode:
        sys.exit(f"measuring with {threads} threads ended with {process.returncode}")


def _openblas_core() -> str:
    flags = Path("/proc/cpuinfo").read_text()
    return "SKYLAKEX" if "avx512vl" in flags else "HASWELL" if "avx2" in flags else ""


def _print_row(row: dict[str, Any]) -> None:
    shape = "x".join(map(str, row["shape"])).replace(", ", "+")
    peers = "  ".join(f"{name} {us:.1f}" for name, us in row["peers"].items())
    print(f"{row['kernel']:34}{shape:24}{row['us']:11.1f}{row['ratio']:8.3f}   {peers}", flush=True)


def _print_summary(found: list[dict[str, Any]]) -> None:
    """Of each group the geometric mean of the ratios, their tenth percentile and the worst."""
    for group in dict.fromkeys(row["group"] for row in found):
        ratios = sorted(row["ratio"] for row in found if row["group"] == group)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        tenth = ratios[len(ratios) // 10]
        print(f"{group}: {len(ratios)} rows, mean {mean:.3f}, p10 {tenth:.3f}, worst {ratios[0]:.3f}")


if __name__ == "__main__":
    main()
