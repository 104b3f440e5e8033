"""Checks and measures the library of this folder on the GPU of this machine.

    python3 run.py [--only PART]... [--sanitize] [--rows FAMILY]... [--kernel GLOB]... [--json FILE]

Parts: verify (every case of every variant), robust (what engines rely on beside right numbers), load and
launch (what a library costs), inprocess (tilec itself compiles, tunes and runs here; needs TVM and torch),
bench (the table beside the peers; needs torch), sanitize (the cases under compute-sanitizer; runs only when
it is asked for). Families of rows are the files of rows/; rows/__init__.py says how to add rows. The JSON
is written after every part and every row. Exit code 1: something is wrong; it is said, and stands in the
JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import driver
import robust
import toolchain
from cases import MARGIN, Call, Case, other_libraries, read_cases
from sanitize import sanitize
from watch import PATIENCE, PATIENCE_WITH_COMPILERS, Watch

from tilec.portable.loader import LaunchError, Library, load

HERE = Path(__file__).resolve().parent
PARTS = ("verify", "robust", "load", "launch", "inprocess", "bench")
_SANITIZED_CASES = 2  # of a variant


def main() -> int:
    """Runs the parts asked for and writes the JSON."""
    options = _options()
    excluded = dict(each.split("=", 1) for each in options.without)
    watch = Watch(excluded, options.patience, not options.once)
    driver.start()
    path, cases = read_cases()
    session = Session(options, load(path), cases, watch)
    parts = {"verify": _verify, "robust": _robust, "load": _load, "launch": _launch}
    parts |= {"inprocess": _inprocess, "bench": _bench}
    asked = options.only or ([] if options.sanitize else PARTS)
    for part in [*asked, *(["sanitize"] if options.sanitize else [])]:
        start = time.perf_counter()
        {**parts, "sanitize": _sanitize}[part](session)
        session.save()
        print(f"-- {part}: {time.perf_counter() - start:.1f} s", flush=True)
    for problem in session.problems:
        print(f"WRONG {problem}")
    print(f"{len(session.problems)} problems; {options.json}")
    return bool(session.problems)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("gpu-results.json"))
    parser.add_argument("--only", action="append", choices=PARTS, help="these parts alone; repeatable")
    parser.add_argument("--sanitize", action="store_true", help="run the cases under compute-sanitizer")
    parser.add_argument(
        "--rows", action="append", metavar="FAMILY", help="bench these families alone; repeatable"
    )
    parser.add_argument("--kernel", action="append", metavar="GLOB", help="these kernels alone; repeatable")
    parser.add_argument("--cases", type=int, default=1000, help="verify at most so many cases of a variant")
    parser.add_argument("--margin", type=int, default=MARGIN, help="bytes of poison around tensors")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds after which a kernel counts as hanging"
    )
    parser.add_argument("--once", action="store_true", help="end at a kernel that hangs or breaks the GPU")
    parser.add_argument("--without", action="append", default=[], metavar="KERNEL=REASON")
    return parser.parse_args()


class Session:
    """What the parts work on, and the report that they fill."""

    def __init__(
        self, options: argparse.Namespace, library: Library, cases: list[Case], watch: Watch
    ) -> None:
        self.options, self.library, self.watch = options, library, watch
        chosen = [case for case in cases if self.is_chosen(case.kernel)]
        self.cases = [case for case in chosen if robust.runs_here(library, case)]
        #: Of variants for other devices.
        self.foreign = [case for case in chosen if case not in self.cases]
        self.problems = [f"{kernel}: {reason}" for kernel, reason in watch.excluded.items()]
        self.report: dict[str, Any] = {
            "machine": driver.describe(),
            "library": library.metadata["build_id"],
            "problems": self.problems,
        }
        print(self.report["machine"], flush=True)

    def is_chosen(self, kernel: str) -> bool:
        """Whether the kernel was asked for and has not been left out."""
        wanted = any(fnmatch(kernel, glob) for glob in self.options.kernel or ["*"])
        return wanted and kernel not in self.watch.excluded

    def save(self) -> None:
        """Writes the report as it stands."""
        self.options.json.write_text(json.dumps(self.report, indent=1))


def _verify(session: Session) -> None:
    """The cases of the variants that this device runs."""
    results = session.report["verify"] = []
    seen: Counter[tuple[str, int]] = Counter()
    for case in session.cases:
        variant = (case.kernel, case.entry["variant"])
        seen[variant] += 1
        if seen[variant] > session.options.cases:
            continue
        with session.watch.on(case.kernel):
            results.append(_verify_one(session, case))
        session.problems.extend(f"{case.name}: {text}" for text in results[-1]["problems"])
    worst = max((result["error"] for result in results), default=0.0)
    others = len(session.foreign)
    print(
        f"{len(results)} cases run, {others} of other architectures left out, largest error {worst:.2e}",
        flush=True,
    )


def _verify_one(session: Session, case: Case) -> dict[str, Any]:
    call = Call(case, margin=session.options.margin)
    try:
        call.run(session.library)
    except LaunchError as error:
        return {"case": case.name, "error": 0.0, "problems": [str(error)]}
    call.fetch()
    error, problems = call.problems()
    return {"case": case.name, "error": error, "problems": problems}


def _robust(session: Session) -> None:
    checks = robust.in_process(session.library, session.cases, session.foreign)
    found = session.report["robust"] = {}
    for name in [*checks, *robust.APART]:
        found[name] = checks[name]() if name in checks else robust.apart(name)
        session.problems.extend(f"{name}: {text}" for text in found[name])
        print(f"{name}: {'ok' if not found[name] else f'{len(found[name])} problems'}", flush=True)


def _sanitize(session: Session) -> None:
    found = session.report["sanitize"] = sanitize(
        list(filter(session.is_chosen, session.library.kernels)), _SANITIZED_CASES
    )
    for tool, said in found.items():
        print(
            f"{tool}: {said['errors']} errors in {said.get('cases', 0)} cases {said.get('kernels', '')}",
            flush=True,
        )
        if said["errors"] != 0:
            session.problems.append(f"{tool}: {said['errors']} errors\n{said['text']}")


def _load(session: Session) -> None:
    """Milliseconds until a library can be called, and its size."""
    _program(session, "load", [sys.executable, str(HERE / "load_cost.py")])


def _launch(session: Session) -> None:
    """Nanoseconds of warm calls; only in the bundle of tilec's own manifest."""
    if (HERE / "launch_cost").exists():
        _program(session, "launch", [str(HERE / "launch_cost")])


def _inprocess(session: Session) -> None:
    """Kernels that tilec makes here; left out, and said so, where TVM is missing."""
    reason = toolchain.missing()
    if reason:
        session.report["inprocess"] = {"left out": reason}
        print(f"inprocess: left out, {reason}", flush=True)
        return
    found = session.report["inprocess"] = toolchain.check()
    for name, seen in found.items():
        print(f"inprocess {name}: {'ok' if seen['ok'] else seen['problem']}", flush=True)
    session.problems.extend(f"inprocess {name}" for name, seen in found.items() if not seen["ok"])


def _program(session: Session, part: str, command: list[str]) -> None:
    """A program that prints JSON."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        session.problems.append(f"{part}: {done.stderr}")
        return
    print(done.stdout.strip(), flush=True)
    session.report[part] = json.loads(done.stdout)


def _bench(session: Session) -> None:
    """The rows of the families asked for, of kernels that the library has."""
    import bench
    from rows import FAMILIES

    session.report["machine"] |= bench.versions()
    found = session.report["bench"] = []
    rows = [row for family in session.options.rows or FAMILIES for row in FAMILIES[family]()]
    libraries = {"": session.library, **{name: load(path) for name, path in other_libraries().items()}}
    for row in rows:
        library = libraries.get(row.library)
        if library is None or row.kernel not in library.kernels or not session.is_chosen(row.kernel):
            continue
        try:
            with session.watch.on(row.kernel, PATIENCE_WITH_COMPILERS):
                found.append(bench.measure(library, row))
        except Exception as error:  # a row that cannot be measured must not cost the others
            session.problems.append(f"{row.name}: {type(error).__name__}: {error}")
            continue
        if not found[-1]["right"]:
            session.problems.append(f"{row.name}: error {found[-1]['error']:.2e} at full size")
        print(bench.text(row, found[-1]), flush=True)
        session.save()


if __name__ == "__main__":
    sys.exit(main())
