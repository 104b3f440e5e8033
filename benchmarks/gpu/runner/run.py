"""Checks and measures the library of this folder on the GPU of this machine.

    python3 run.py [--json FILE] [--only verify|robust|bench]

Exit code 1: something is wrong; it is said, and stands in the JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench
import robust
from cases import Case, read_cases
from loader import LaunchError, Library, load
from watch import Watch

HERE = Path(__file__).resolve().parent
PARTS = ("verify", "robust", "launch", "bench")
_NO_ARCH = "TILEC_ERR_NO_ARCH"


def main() -> int:
    """Runs the parts asked for and writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("gpu-results.json"))
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--without", action="append", default=[], metavar="KERNEL=REASON")
    options = parser.parse_args()
    watch = Watch(dict(each.split("=", 1) for each in options.without))
    name, cases = read_cases(torch.device("cuda:0"))
    cases = [case for case in cases if case.entry["kernel"] not in watch.excluded]
    library = load(HERE / name)
    report: dict[str, Any] = {"machine": _machine(), "library": library.metadata["build_id"]}
    report["problems"] = [f"{kernel}: {reason}" for kernel, reason in watch.excluded.items()]
    report["load"] = _load_times(library)
    parts = {"verify": _verify, "robust": _robust, "launch": _launch, "bench": _bench}
    for part in [options.only] if options.only else PARTS:
        start = time.perf_counter()
        report[part] = parts[part](library, cases, report["problems"], watch)
        print(f"-- {part}: {time.perf_counter() - start:.1f} s", flush=True)
    options.json.write_text(json.dumps(report, indent=1))
    for problem in report["problems"]:
        print(f"WRONG {problem}")
    print(f"{len(report['problems'])} problems; {options.json}")
    return bool(report["problems"])


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


def _verify(library: Library, cases: list[Case], problems: list[str], watch: Watch) -> list[dict[str, Any]]:
    """Every case of every variant; those of architectures that this GPU cannot run are counted as skipped."""
    results = []
    for case in cases:
        with watch.on(case.entry["kernel"]):
            results.append(_verify_one(library, case))
    for result in results:
        problems.extend(f"{result['case']}: {text}" for text in result["problems"])
    done = [result for result in results if not result["skipped"]]
    worst = max((result["error"] for result in done), default=0.0)
    print(f"{len(done)} cases run, {len(results) - len(done)} skipped, largest error {worst:.2e}", flush=True)
    return results


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


def _robust(library: Library, cases: list[Case], problems: list[str], _watch: Watch) -> dict[str, list[str]]:
    served = [case for case in cases if not _verify_one(library, case)["skipped"]]
    checks = {
        "capture": lambda: robust.capture(library, served),
        "streams": lambda: robust.streams(library, served),
        "errors": lambda: robust.errors(library, served),
        "cold capture": robust.cold_capture,
    }
    found = {name: check() for name, check in checks.items()}
    for name, texts in found.items():
        problems.extend(f"{name}: {text}" for text in texts)
        print(f"{name}: {'ok' if not texts else f'{len(texts)} problems'}", flush=True)
    return found


def _launch(_library: Library, _cases: list[Case], problems: list[str], _watch: Watch) -> dict[str, Any]:
    """Nanoseconds of warm calls; only in the bundle of tilec's own manifest."""
    program = HERE / "launch_cost"
    if not program.exists():
        return {}
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        problems.append(f"launch_cost: {done.stderr}")
        return {}
    print(f"warm calls, ns: {done.stdout.strip()}", flush=True)
    return dict(json.loads(done.stdout))


def _bench(library: Library, _cases: list[Case], problems: list[str], watch: Watch) -> list[dict[str, Any]]:
    found = []
    for row in bench.rows(set(library.kernels) - set(watch.excluded)):
        try:
            with watch.on(row.kernel):
                made = bench.measure(library, row)
        except LaunchError as error:
            problems.append(f"{row.kernel} {row.dims}: {error}")
            continue
        found.append(made)
        if not made["right"]:
            problems.append(f"{row.kernel} {row.dims}: error {made['error']:.2e} at full size")
        print(
            f"{row.kernel:20s} {row.dims!s:40s} {made['target']:10s} {made['us']:9.1f} us, "
            f"torch {made['peer_us']:9.1f}, ratio {made['ratio']:.3f}, {made['tflops']:6.1f} TFLOP/s, "
            f"{made['gbps']:6.0f} GB/s, error {made['error']:.1e}",
            flush=True,
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
