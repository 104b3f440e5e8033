"""Where the CPU time of a variant goes: milliseconds of each step, one variant after the other in a process.

    python benchmarks/build_steps.py MANIFEST... [--target sm_90a]...

Means per target, then medians by the first word of a kernel's name. The cache is not asked.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tilec.backends.cpu.codegen.objects
import tilec.backends.cuda.codegen.images
import tilec.backends.pipeline
from tilec.backends.cuda.codegen.compilers import Nvcc, Nvrtc
from tilec.build import records
from tilec.manifest import load_manifest

#: Step: the functions whose time it is. A step's time holds that of the steps that it calls.
STEPS: dict[str, tuple[tuple[Any, str], ...]] = {
    "elaboration": ((records, "elaborate_variant"),),
    "verification": ((tilec.backends.pipeline, "verify"),),
    "CUDA source, TVM's passes": ((tilec.backends.cuda.codegen.images, "source"),),
    "NVRTC": ((Nvrtc, "compile"), (Nvcc, "compile")),
}
WARM = 3  # variants that pay for imports, per target


class Clock:
    """CPU seconds of each step of one variant at a time."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        for step, functions in STEPS.items():
            for owner, name in functions:
                setattr(owner, name, self._timed(step, getattr(owner, name)))

    def _timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **named)
            finally:
                self.spent[step] += time.process_time() - start

        return call

    def measure(self, variant: Any) -> dict[str, float]:
        """Milliseconds of a variant's steps; what is left is "passes and emission"."""
        self.spent.clear()
        start = time.process_time()
        records.compile_one(variant)
        total = time.process_time() - start
        rest = total - sum(self.spent.values())
        return {
            name: 1e3 * each
            for name, each in {**self.spent, "passes and emission": rest, "in all": total}.items()
        }


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("manifests", nargs="+", type=Path)
    parser.add_argument("--target", action="append", help="variants of these targets alone; repeatable")
    options = parser.parse_args()
    clock = Clock()
    variants = [each for path in options.manifests for each in load_manifest(path).variants]
    for target in options.target or dict.fromkeys(each.target.name for each in variants):
        chosen = [each for each in variants if each.target.name == target]
        found = [(each.kernel.partition("_")[0], clock.measure(each)) for each in chosen][WARM:]
        print(f"\n{target}: CPU ms of a variant, means of {len(found)}")
        show(times for _, times in found)
        for kind in dict.fromkeys(name for name, _ in found):
            print(f"  {kind}, medians:", end=" ")
            show((times for name, times in found if name == kind), statistics.median)


def show(times: Iterable[dict[str, float]], middle: Callable[..., float] = statistics.mean) -> None:
    """The steps of several variants in one line."""
    rows = list(times)
    names = dict.fromkeys(name for row in rows for name in row)
    print(", ".join(f"{name} {middle([row.get(name, 0.0) for row in rows]):.0f}" for name in names))


if __name__ == "__main__":
    main()
