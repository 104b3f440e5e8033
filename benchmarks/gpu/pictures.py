"""Draws what `random_shapes.py`'s folder measured, as PNG files.

    python benchmarks/gpu/pictures.py [SHAPES.json...] [--rows ROWS.json] [-o DIR]

shapes.png: how many times faster than its peer each shape is, by the peer's time, a colour for each family.
rows.png: microseconds by the number of rows, a line for each kernel and size of the weights.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilec.tune.outcome.pictures import canvas, png, require_matplotlib

#: What each family is held to, the first that a shape was timed beside; Okabe and Ito's colours.
_PEERS = {
    "products": (("cuBLAS",), "#0072b2"),
    "attention": (("cuDNN",), "#d55e00"),
    "rows": (("copy",), "#009e73"),
    "quantised": (("cuBLAS, 16-bit weights", "_scaled_mm", "torch _scaled_mm", "torch _int_mm"), "#cc79a7"),
}
_WIDE = (7.6, 3.6)


def main() -> None:
    """Draws what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", type=Path, nargs="*")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path())
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    require_matplotlib()
    shapes = [row for path in options.shapes for row in json.loads(path.read_text())["shapes"]]
    if shapes:
        (options.out / "shapes.png").write_bytes(ratios(shapes))
    if options.rows is not None:
        (options.out / "rows.png").write_bytes(sweeps(json.loads(options.rows.read_text())["sweeps"]))


def ratios(shapes: Sequence[dict[str, Any]]) -> bytes:
    """The peer's time over the library's of each shape, by the peer's time."""
    figure, axes = canvas(_WIDE)
    for family, (peers, colour) in _PEERS.items():
        beside = [
            (row["us"] * ratio, ratio)
            for row in shapes
            if row["family"] == family and (ratio := _ratio(row, peers)) is not None
        ]
        if beside:
            label = f"{family}, beside {peers[0]}" if len(peers) == 1 else f"{family}, beside torch"
            axes.scatter(*zip(*beside, strict=True), s=9, color=colour, alpha=0.75, label=label, linewidths=0)
    axes.axhline(1.0, color="#999999", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("us of the peer")
    axes.set_ylabel("times as fast as the peer")
    axes.legend(fontsize=7, loc="upper right")
    return png(figure)


def _ratio(row: dict[str, Any], peers: Sequence[str]) -> float | None:
    """To the first of the peers that the shape was timed beside."""
    known = row.get("ratios", {})
    return next((known[name] for peer in peers for name in known if name.startswith(peer)), None)


def sweeps(found: Sequence[dict[str, Any]]) -> bytes:
    """Microseconds by the number of rows: a line for each kernel and size of the weights."""
    figure, axes = canvas(_WIDE)
    for each in found:
        us = {int(rows): time for rows, time in each["us"].items()}
        numbers = sorted(us)
        label = f"{each['kernel']} {' x '.join(map(str, each['sizes']))}"
        axes.plot(numbers, [us[rows] for rows in numbers], linewidth=1, label=label)
    axes.set_xlabel("rows")
    axes.set_ylabel("us")
    axes.set_yscale("log")
    figure.legend(fontsize=5, loc="outside right upper")
    return png(figure)


if __name__ == "__main__":
    main()
