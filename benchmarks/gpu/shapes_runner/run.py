"""Times the library of this folder at shapes that nobody chose, on the GPU of this machine, beside torch.

    python3 run.py [--seed N] [--family NAME=COUNT]... [--rows [--size N K]... [--most N]] [--kernel GLOB]...
                   [--json FILE]

Shapes of each family are drawn by the seed (draw.py); each is checked against torch and timed beside it,
kernels of rows beside a copy of as many bytes, too. Means, tenth percentiles and the worst of a family stand
at the end, and what the library does not serve, with the reason. ``--rows`` instead goes through 1 to 256
rows of each matrix kernel, or to ``--most``, and prints where more rows take less time. Exit code 1:
something is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from bench import measure, text, versions
from draw import COUNTS, Drawn, drawn
from summary import lines
from sweep import KERNELS, MOST_ROWS, SIZES, sweep
from work import row_of

from tilec.portable.loader import LaunchError, load

HERE = Path(__file__).resolve().parent
_ROUNDS = 3
_NOT_SERVED = ("TILEC_ERR_NO_VARIANT", "TILEC_ERR_LAYOUT")


def main() -> int:
    """Runs what is asked for and writes the JSON."""
    options = _options()
    report: dict[str, Any] = {"machine": torch.cuda.get_device_name(), **versions(), "seed": options.seed}
    listed = json.loads((HERE / "libraries.json").read_text())
    library, copier = (load(HERE / listed[name]) for name in ("library", "copier"))
    report["library"] = library.metadata["build_id"]
    found = report["sweeps" if options.rows else "shapes"] = []
    if options.rows:
        asked = options.size or SIZES
        for name, sizes in [(name, sizes) for name in KERNELS for sizes in asked if _asked(options, name)]:
            found.append(sweep(library, name, sizes, options.most))
            _say_sweep(found[-1])
            options.json.write_text(json.dumps(report, indent=1))
        return int(any(each["wrong"] for each in found))
    counts = {**COUNTS, **{name: int(count) for name, count in (each.split("=") for each in options.family)}}
    for each in drawn(options.seed, counts):
        if _asked(options, each.kernel):
            found.append(_measured(library, copier, each))
            options.json.write_text(json.dumps(report, indent=1))
    print("\n".join(lines(found)))
    return int(any("failed" in each or not each.get("right", True) for each in found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--family", action="append", default=[], metavar="NAME=COUNT", help="other than usual"
    )
    parser.add_argument("--rows", action="store_true", help="go through numbers of rows")
    parser.add_argument(
        "--size", type=int, nargs=2, action="append", metavar=("N", "K"), help="of the weights; repeatable"
    )
    parser.add_argument("--most", type=int, default=MOST_ROWS, metavar="N", help="rows, with --rows")
    parser.add_argument("--kernel", action="append", metavar="GLOB", help="these kernels alone; repeatable")
    parser.add_argument("--json", type=Path, default=Path("shapes.json"))
    return parser.parse_args()


def _asked(options: argparse.Namespace, kernel: str) -> bool:
    return any(fnmatch(kernel, glob) for glob in options.kernel or "*")


def _measured(library: Any, copier: Any, each: Drawn) -> dict[str, Any]:
    """Times and ratios to peers; ``missed``: why the library refuses the call, ``failed``: what broke."""
    row = row_of(each)
    told = {"family": each.family, "name": row.name}
    try:
        made = measure(library, row, _ROUNDS, copier)
    except Exception as problem:  # one shape must not cost the others
        if isinstance(problem, LaunchError) and problem.name in _NOT_SERVED:
            print(f"{row.name}: missed", flush=True)
            return {**told, "kernel": each.kernel, "dims": each.dims, "missed": str(problem)}
        print(f"FAILED {row.name}: {problem}", flush=True)
        return {**told, "failed": f"{type(problem).__name__}: {problem}"}
    print(text(row, made) + ("" if made["right"] else " WRONG"), flush=True)
    times = {name: timed["us"] for name, timed in made["times"].items()}
    ratios = {name: us / made["us"] for name, us in times.items() if name != "tilec"}
    return {**told, **made, "ratios": ratios}


def _say_sweep(found: dict[str, Any]) -> None:
    us = found["us"]
    some = ", ".join(f"{rows} {us[rows]:.1f}" for rows in (1, 16, 32, 64, 128, 192, max(us)))
    print(
        f"{found['kernel']} {'x'.join(map(str, found['sizes']))}: us by rows {some}; wrong {found['wrong']}"
    )
    for slow in found["slow"]:
        print(f"  {slow['text']}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
