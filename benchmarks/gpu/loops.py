"""Times kernels whose blocks go over their data by serial loops, beside a copy of the bytes that they move.

    python benchmarks/gpu/loops.py [--json FILE]   # on a machine with a GPU and torch

The kernels are those of loops_kernels.py, compiled in process and compared with torch. Times are the least of
five means of ten calls (of one by torch), microseconds; "of the floor" is the time of the copy, which
reads half of the bytes and writes as many, over that of the kernel.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from loops_kernels import CASES, Case

_CALLS, _ROUNDS = 10, 5


def main() -> None:
    """Compares and times all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    found = {}
    for make in CASES:
        found[make.__name__] = row = measured(make())
        print(make.__name__.ljust(16), "  ".join(f"{name} {value:.3g}" for name, value in row.items()))
    if options.json:
        options.json.write_text(json.dumps({"machine": torch.cuda.get_device_name(), "rows": found}))


def measured(case: Case) -> dict[str, float]:
    """How far off a kernel is, how long it takes, and how long a copy of its bytes."""
    pairs = zip(listed(case.run()), listed(case.reference()), strict=True)
    off = max(_distance(made.float(), wanted.float()) for made, wanted in pairs)
    words = math.ceil(sum(each.numel() * each.element_size() for each in case.moved) / 8)
    source = torch.empty(words, device="cuda")
    to = torch.empty_like(source)
    kernel, copy = microseconds(case.run), microseconds(lambda: to.copy_(source))
    peer = microseconds(case.reference, 1)
    return {"off by": off, "us": kernel, "torch us": peer, "copy us": copy, "of the floor": copy / kernel}


def microseconds(call: Callable[[], Any], calls: int = _CALLS) -> float:
    """The least of several means."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    for _ in range(_ROUNDS + 1):  # the first one warms up
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1e3 / calls)
    return min(found[1:])


def listed(found: Any) -> list[torch.Tensor]:
    """Results as a list, one alone, too."""
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _distance(made: torch.Tensor, wanted: torch.Tensor) -> float:
    return float(((made - wanted).abs() / (wanted.abs() + 1)).max())


if __name__ == "__main__":
    main()
