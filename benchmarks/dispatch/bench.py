"""What a warm call costs and that it keeps its contract, by number of variants and class of shape.

    python benchmarks/dispatch/bench.py [--variants 10 200 2000] [--json FILE]

Builds libraries whose kernels have so many variants and an empty body, calls them with random shapes from C
and prints p50 and p99 of `select` and of the typed door (one thread, TILEC_EXEC_SERIAL) in nanoseconds: warm,
and after the caches were filled with other things. Fails if a warm call allocates, locks, touches a file or
enters the system's kernel. The classes are those of `library.Workload`.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
from datetime import date
from itertools import chain
from pathlib import Path

from library import CLASSES, workload

from tilec.codegen.toolchain import find_toolchain
from tilec.package.write import BuildReport, write_package

HERE = Path(__file__).resolve().parent
SHAPES = 4096
WHAT = ("allocations", "locks", "files", "system calls")


def main() -> int:
    """Measures every size and prints one table; 1 if a warm call breaks its contract."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", type=int, nargs="+", default=[10, 200, 2000])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows, broken = [], []
    for count in options.variants:
        with tempfile.TemporaryDirectory() as name:
            package = build(count, Path(name))
            broken += [f"{count} variants: {each}" for each in breaches(package)]
            rows += measure(count, package)
    print(f"{date.today()}, load {os.getloadavg()[0]:.1f}; ns, p50 and p99\n")
    print(table(rows))
    print("\n".join(broken) or "\nWarm calls: no allocation, no lock, no file, no system call.")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if broken else 0


def build(variants: int, folder: Path) -> BuildReport:
    """The library, and beside it the file of shapes."""
    work = workload(variants, SHAPES)
    numbers = list(chain.from_iterable(chain.from_iterable(work.shapes[name]) for name in CLASSES))
    (folder / "shapes.bin").write_bytes(struct.pack(f"{len(numbers)}q", *numbers))
    return write_package(work.spec, folder)


def run(package: BuildReport, source: str) -> str:
    """What a program of this folder prints about the library."""
    program = package.out_dir / Path(source).stem
    command = [
        *(*find_toolchain().driver, "-O2", "-g0", "-Wall", "-Wextra", "-Werror"),
        *("-I", str(package.out_dir / "include"), str(HERE / source), "-o", str(program)),
        *(str(package.library), f"-Wl,-rpath,{package.library.parent}", "-lpthread", "-ldl"),
    ]
    subprocess.run(command, check=True)
    shapes = str(package.out_dir / "shapes.bin")
    return subprocess.run([program, shapes], check=True, capture_output=True, text=True).stdout


def breaches(package: BuildReport) -> list[str]:
    """What warm calls did that they must not do."""
    counts = run(package, "warm.c").split()
    if counts[-1] == "-":
        print("system calls were not traced: this kernel offers no seccomp filters", file=sys.stderr)
    return [f"{n} {what}" for n, what in zip(counts, WHAT, strict=True) if n not in ("0", "-")]


def measure(variants: int, package: BuildReport) -> list[dict[str, object]]:
    """One row per class and way."""
    rows = []
    for line in run(package, "time.c").splitlines():
        kind, way, *numbers = line.split()
        warm, cold = [float(number) for number in numbers[:2]], [float(number) for number in numbers[2:]]
        rows.append({"variants": variants, "class": kind, "way": way, "warm": warm, "cold": cold})
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """Markdown: a line per number of variants and class."""
    lines = ["| variants | class | select, warm | door, warm | select, cold | door, cold |", "|" + "---|" * 6]
    for select, door in zip(rows[::2], rows[1::2], strict=True):
        cells = [_pair(each[state]) for state in ("warm", "cold") for each in (select, door)]
        lines.append(f"| {select['variants']} | {select['class']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _pair(times: object) -> str:
    assert isinstance(times, list)
    return " / ".join(f"{time:.0f}" for time in times)


if __name__ == "__main__":
    sys.exit(main())
