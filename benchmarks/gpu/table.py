"""The rows of a run of the GPU bundle as a table in Markdown: `table.py RESULTS.json`, which run.py wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEAD = """| kernel | dims | us | TFLOP/s | GB/s | beside it in the same run, us | ratio | sustained |
|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Prints the table of the file named on the command line, which run.py wrote."""
    rows = json.loads(Path(sys.argv[1]).read_text())["bench"]
    print("\n".join([HEAD, *(line(row) for row in rows)]))


def line(row: dict[str, Any]) -> str:
    """One row. Its ratios are the best peer's time over tilec's: after pauses, and back to back."""
    peers = {name: timed["us"] for name, timed in row["times"].items() if name != "tilec"}
    cells = [
        f"`{row['kernel']}`",
        " ".join(f"{name}={value}" for name, value in row["dims"].items()),
        _time(row["us"]),
        f"{row['tflops']:.0f}" if row["tflops"] >= 10 else "",
        f"{row['gbps']:.0f}",
        ", ".join(f"{name.replace(',', '')} {_time(us)}" for name, us in peers.items()),
        f"{row['ratio']:.3f}" if peers else "",
        _sustained(row.get("sustained", {})),
    ]
    return f"| {' | '.join(cells)} |"


def _sustained(times: dict[str, float]) -> str:
    peers = [us for name, us in times.items() if name != "tilec"]
    return f"{min(peers) / times['tilec']:.3f}" if peers else ""


def _time(us: float) -> str:
    return f"{us:.1f}" if us < 1000 else f"{us:.0f}"


if __name__ == "__main__":
    main()
