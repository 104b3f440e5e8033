"""The rows of a run of the GPU bundle as tables in Markdown: `table.py RESULTS.json`, which run.py wrote."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HEAD = """| kernel | dims | us | TFLOP/s | GB/s | beside it in the same run, us | ratio | sustained |
|---|---|---|---|---|---|---|---|"""
MEANS_HEAD = """| products | type | shapes | tuned | no early start | untuned |
|---|---|---|---|---|---|"""
_LAYOUTS = {"nt": "B stored (N, K)", "nn": "B stored (K, N)"}
_TYPES = ("float16", "bfloat16")


def main() -> None:
    """Prints the rows of the file that run.py wrote, named on the command line, then means of products."""
    rows = json.loads(Path(sys.argv[1]).read_text())["bench"]
    print("\n".join([HEAD, *(line(row) for row in rows), "", MEANS_HEAD, *means(rows)]))


def line(row: dict[str, Any]) -> str:
    """One row. Its ratios are the best peer's time over tilec's: after pauses, and back to back."""
    peers = {name: timed["us"] for name, timed in row["times"].items() if name != "tilec"}
    library = f" of {row['library']}" if row["library"] else ""
    cells = [
        f"`{row['kernel']}`{library}",
        " ".join(f"{name}={value}" for name, value in row["dims"].items()),
        _time(row["us"]),
        f"{row['tflops']:.0f}" if row["tflops"] >= 10 else "",
        f"{row['gbps']:.0f}",
        ", ".join(f"{name.replace(',', '')} {_time(us)}" for name, us in peers.items()),
        f"{row['ratio']:.3f}" if peers else "",
        _sustained(row.get("sustained", {})),
    ]
    return f"| {' | '.join(cells)} |"


def means(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Geometric means of the ratios to cuBLAS over all shapes of a family: with the bundle's schedules, the
    same with no launch that starts early, and with the kernel's defaults; then of what users build."""
    ratios = {(row["library"], row["kernel"], tuple(row["dims"].values())): row["ratio"] for row in rows}

    def by_shape(kernel: str, library: str = "") -> dict[tuple[int, ...], float]:
        return {
            shape: ratio for (of, name, shape), ratio in ratios.items() if (of, name) == (library, kernel)
        }

    for layout, said in _LAYOUTS.items():
        for dtype in _TYPES:
            tuned = by_shape(f"matmul_{layout}_{dtype}")
            late = {**tuned, **by_shape(f"matmul_{layout}_late_{dtype}")}
            untuned = by_shape(f"matmul_{layout}_untuned_{dtype}")
            found = " | ".join(_mean(each.values()) for each in (tuned, late, untuned))
            yield f"| {said} | {dtype} | {len(tuned)} | {found} |"
    for dtype in _TYPES:
        shipped = by_shape(f"matmul_{dtype}", "shipped")
        found = f"{len(shipped)} | {_mean(shipped.values())} | | |"
        yield f"| `manifests/llm.toml`, held-out shapes | {dtype} | {found}"


def _mean(ratios: Iterable[float]) -> str:
    logs = [math.log(ratio) for ratio in ratios]
    return f"{math.exp(sum(logs) / len(logs)):.3f}" if logs else ""


def _sustained(times: dict[str, float]) -> str:
    peers = [us for name, us in times.items() if name != "tilec"]
    return f"{min(peers) / times['tilec']:.3f}" if peers else ""


def _time(us: float) -> str:
    return f"{us:.1f}" if us < 1000 else f"{us:.0f}"


if __name__ == "__main__":
    main()
