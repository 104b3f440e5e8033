"""Checks and times rows with one number of threads; prints a line of JSON for each."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from cases import Case, case_of
from library import Library
from table import GROUPS, Row, rows
from timing import least_seconds

HERE = Path(__file__).resolve().parent


def main() -> None:
    """All rows asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=(*GROUPS, "random"), default=[])
    parser.add_argument("--large", action="store_true")
    for name, default in (("threads", 1), ("random", 0), ("seed", 0), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    library = Library(HERE / "kernels.so", HERE / "metadata.json")
    with torch.inference_mode():
        for row in rows(options.only, options.large, options.random, options.seed):
            print(json.dumps(_measured(library, row, options)), flush=True)


def _measured(library: Library, row: Row, options: argparse.Namespace) -> dict[str, Any]:
    case = case_of(row)
    run = library.call(row.kernel, case.args, case.dims)
    run()
    _check(row, case)
    sides = {"tilec": run, **case.peers}
    seconds = least_seconds(sides, options.rounds, alone=options.threads == 1)
    us = {name: 1e6 * value for name, value in seconds.items()}
    own = us.pop("tilec")
    return {
        **row._asdict(),
        "threads": options.threads,
        "us": own,
        "peers": us,
        "ratio": min(us.values()) / own,
    }


def _check(row: Row, case: Case) -> None:
    if case.expected is None:
        return
    wrong = (case.args[case.out].float() - case.expected().float()).abs().max().item()
    if not wrong <= case.tolerance:
        sys.exit(f"{row}: an element is off by {wrong}")


if __name__ == "__main__":
    main()
