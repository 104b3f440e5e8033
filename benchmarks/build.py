"""What a build costs: cold, with nothing changed, and with one guard changed.

python benchmarks/build.py [--manifest manifests/many.toml] [--jobs N]

Builds a copy of the manifest in a temporary folder with its own cache and prints a table for the README. The
manifest is by default `manifests/many.toml`: 20 kernels x 3 instruction-set levels x 4 variants. Wall time
depends on what else the machine does. CPU time is that of tilec, its compile processes and the linker; zig's
own cache is as it is. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tilec.package.library.inspect import LibraryInfo, read_library

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys; from tilec.cli.main import run; sys.exit(run(['build', *sys.argv[1:]]))"
#: prctl's request that orphans become children of this process, so that it can account for them.
_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Cost:
    """One build: ``wall`` and ``cpu`` seconds of the whole command line, start to end."""

    what: str
    wall: float
    cpu: float
    library: LibraryInfo


def main() -> None:
    """Builds three times and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manifest", type=Path, default=ROOT / "manifests" / "many.toml")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory() as folder:
        costs = measure(options.manifest, Path(folder), options.jobs)
    cores = len(os.sched_getaffinity(0))
    print(f"{date.today()}, {cores} cores of {processor()}, {options.jobs} compile processes, ", end="")
    print(f"load {os.getloadavg()[0]:.1f}; {variants(costs[0].library)} variants\n")
    print("| build | wall | CPU | variants/s | library | a variant |\n|---|---|---|---|---|---|")
    for cost in costs:
        print(row(cost))


def measure(manifest: Path, folder: Path, jobs: int) -> list[Cost]:
    """The costs of a cold build, the same again, and one with another guard, all inside ``folder``."""
    copy = folder / manifest.name
    text = absolute_sources(manifest)
    copy.write_text(text, encoding="utf-8")
    found = [
        build("nothing cached", copy, folder, jobs),
        build("nothing changed", copy, folder, jobs),
    ]
    changed = text.replace('"%4096"', '"%2048"', 1)
    if changed != text:
        copy.write_text(changed, encoding="utf-8")
        found.append(build("one guard changed", copy, folder, jobs))
    return found


def absolute_sources(manifest: Path) -> str:
    """The manifest's text with sources that do not depend on where it lies."""
    base = manifest.resolve().parent
    text = manifest.read_text(encoding="utf-8")
    return re.sub(r'"((?:\.\./)+[^":]+\.py)', lambda found: f'"{(base / found[1]).resolve()}', text)


def build(what: str, manifest: Path, folder: Path, jobs: int) -> Cost:
    """Runs `tilec build` and waits for every process of it."""
    out = folder / "dist"
    arguments = [str(manifest), "-o", str(out), "-j", str(jobs)]
    environment = {**os.environ, "TILEC_CACHE_DIR": str(folder / "cache")}
    wall, cpu = time.monotonic(), cpu_of_children()
    subprocess.run(
        [sys.executable, "-c", BUILD, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    wall = time.monotonic() - wall
    with contextlib.suppress(ChildProcessError):
        while os.wait():
            pass
    return Cost(what, wall, cpu_of_children() - cpu, read_library(out))


def cpu_of_children() -> float:
    """CPU seconds of the children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(cost: Cost) -> str:
    """A line of the table."""
    count = variants(cost.library)
    cells = [
        cost.what,
        f"{cost.wall:.1f} s",
        f"{cost.cpu:.1f} s",
        f"{count / cost.wall:.1f}",
        f"{cost.library.size / 1e6:.2f} MB",
        f"{cost.library.size / count / 1e3:.1f} kB",
    ]
    return f"| {' | '.join(cells)} |"


def variants(library: LibraryInfo) -> int:
    """How many variants a library holds."""
    return sum(len(kernel["variants"]) for kernel in library.metadata["kernels"])


def processor() -> str:
    """The processor's name."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
