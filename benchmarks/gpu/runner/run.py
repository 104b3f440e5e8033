"""Checks and measures the library of this folder on the GPU of this machine.

    python3 run.py [--json FILE] [--only PART]... [--rows FAMILY]... [--kernel GLOB]...

Parts: verify, robust, launch, bench. Families of rows are the files of rows/; rows/__init__.py says how to
add rows. The JSON is written after every part and every row. Exit code 1: something is wrong; it is said,
and stands in the JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench
import robust
from cases import Case, read_cases
from loader import LaunchError, Library, load
from rows import FAMILIES, Row
from watch import Watch

HERE = Path(__file__).resolve().parent
PARTS = ("verify", "robust", "launch", "bench")
_NO_ARCH = "TILEC_ERR_NO_ARCH"


def main() -> int:
    """Runs the parts asked for and writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("gpu-results.json"))
    parser.add_argument("--only", action="append", choices=PARTS, help="these parts alone; repeatable")
    parser.add_argument(
        "--rows", action="append", choices=FAMILIES, help="bench these families alone; repeatable"
    )
    parser.add_argument("--kernel", action="append", metavar="GLOB", help="these kernels alone; repeatable")
    parser.add_argument("--without", action="append", default=[], metavar="KERNEL=REASON")
    options = parser.parse_args()
    watch = Watch(dict(each.split("=", 1) for each in options.without))
    name, cases = read_cases(torch.device("cuda:0"))
    session = Session(options, load(HERE / name), cases, watch)
    session.report["load"] = _load_times(session.library)
    parts = {"verify": _verify, "robust": _robust, "launch": _launch, "bench": _bench}
    for part in options.only or PARTS:
        start = time.perf_counter()
        parts[part](session)
        session.save()
        print(f"-- {part}: {time.perf_counter() - start:.1f} s", flush=True)
    for problem in session.problems:
        print(f"WRONG {problem}")
    print(f"{len(session.problems)} problems; {options.json}")
    return bool(session.problems)


class Session:
    """What the parts work on, and the report that they fill."""

    def __init__(
        self, options: argparse.Namespace, library: Library, cases: list[Case], watch: Watch
    ) -> None:
        self.options, self.library, self.watch = options, library, watch
        self.cases = [case for case in cases if self.is_chosen(case.entry["kernel"])]
        self.problems = [f"{kernel}: {reason}" for kernel, reason in watch.excluded.items()]
        self.report: dict[str, Any] = {
            "machine": _machine(),
            "library": library.metadata["build_id"],
            "problems": self.problems,
        }

    def is_chosen(self, kernel: str) -> bool:
        """Whether the kernel was asked for and has not been left out."""
        wanted = any(fnmatch(kernel, glob) for glob in self.options.kernel or ["*"])
        return wanted and kernel not in self.watch.excluded

    def save(self) -> None:
        """Writes the report as it stands."""
        self.options.json.write_text(json.dumps(self.report, indent=1))


def _machine() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    made = {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
    }
    print(made, flush=True)
    return made


def _load_times(library: Library) -> dict[str, float]:
    """Milliseconds of the first kernel's preload, then of all."""
    torch.zeros(1, device="cuda")  # the context is not ours to pay for
    times = {}
    for what, call in (
        ("first kernel", next(iter(library.kernels.values())).preload),
        ("all", library.preload),
    ):
        start = time.perf_counter()
        call("cuda:0")
        times[what] = (time.perf_counter() - start) * 1e3
    print("preload, ms:", times, flush=True)
    return times


def _verify(session: Session) -> None:
    """Every case of every variant; those of architectures that this GPU cannot run are counted as skipped."""
    results = session.report["verify"] = []
    for case in session.cases:
        with session.watch.on(case.entry["kernel"]):
            results.append(_verify_one(session.library, case))
        session.problems.extend(f"{case.name}: {text}" for text in results[-1]["problems"])
    done = [result for result in results if not result["skipped"]]
    worst = max((result["error"] for result in done), default=0.0)
    print(f"{len(done)} cases run, {len(results) - len(done)} skipped, largest error {worst:.2e}", flush=True)


def _verify_one(library: Library, case: Case) -> dict[str, Any]:
    result: dict[str, Any] = {"case": case.name, "skipped": "", "error": 0.0, "problems": []}
    arguments = case.arguments()
    try:
        case.call(library.kernels[case.entry["kernel"]], arguments)
        torch.cuda.synchronize()
    except LaunchError as error:
        if error.name == _NO_ARCH:
            return {**result, "skipped": str(error)}
        return {**result, "problems": [str(error)]}
    result["error"], result["problems"] = case.problems(arguments)
    return result


def _robust(session: Session) -> None:
    library = session.library
    served = [case for case in session.cases if not _verify_one(library, case)["skipped"]]
    checks = {
        "capture": lambda: robust.capture(library, served),
        "streams": lambda: robust.streams(library, served),
        "errors": lambda: robust.errors(library, served),
        "cold capture": robust.cold_capture,
    }
    found = session.report["robust"] = {}
    for name, check in checks.items():
        found[name] = check()
        session.problems.extend(f"{name}: {text}" for text in found[name])
        print(f"{name}: {'ok' if not found[name] else f'{len(found[name])} problems'}", flush=True)


def _launch(session: Session) -> None:
    """Nanoseconds of warm calls; only in the bundle of tilec's own manifest."""
    program = HERE / "launch_cost"
    if not program.exists():
        return
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        session.problems.append(f"launch_cost: {done.stderr}")
        return
    print(f"warm calls, ns: {done.stdout.strip()}", flush=True)
    session.report["launch"] = json.loads(done.stdout)


def _bench(session: Session) -> None:
    """The rows of the families asked for, of kernels that the library has."""
    found = session.report["bench"] = []
    rows = [row for family in session.options.rows or FAMILIES for row in FAMILIES[family]()]
    for row in rows:
        if row.kernel not in session.library.kernels or not session.is_chosen(row.kernel):
            continue
        try:
            with session.watch.on(row.kernel):
                found.append(bench.measure(session.library, row))
        except LaunchError as error:
            session.problems.append(f"{row.name}: {error}")
            continue
        if not found[-1]["right"]:
            session.problems.append(f"{row.name}: error {found[-1]['error']:.2e} at full size")
        _print_row(row, found[-1])
        session.save()


def _print_row(row: Row, made: dict[str, Any]) -> None:
    peers = ", ".join(f"{name} {time['us']:.1f}" for name, time in made["times"].items() if name != "tilec")
    later = ", ".join(f"{name} {time:.1f}" for name, time in made.get("sustained", {}).items())
    print(
        f"{row.name:60s} {made['target']:10s} {made['us']:9.1f} us, {peers}, ratio {made['ratio']:.3f}, "
        f"{made['tflops']:6.1f} TFLOP/s, {made['gbps']:6.0f} GB/s, error {made['error']:.1e}"
        + (f"; sustained {later}" if later else ""),
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
