"""What a run of `run.py`'s folder says, as tables of Markdown and a picture.

    python benchmarks/cpu/report.py CPU.json [-o PICTURE.png]

Ratios are the time of the best peer over that of the library. The picture has a point for each row and number
of threads, by the peer's time, a colour for each group.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tilec.tune.outcome.pictures import canvas, png, require_matplotlib

#: Okabe and Ito's colours of groups; others are grey.
_COLOURS = {
    "products": "#0072b2",
    "random": "#56b4e9",
    "16-bit": "#882255",
    "8-bit": "#f0e442",
    "packed": "#cc79a7",
    "attention": "#d55e00",
    "caches": "#e69f00",
    "rows": "#000000",
}
_OTHER, _LINE, _SIZE = "#999999", "#999999", (7.6, 3.4)

Row = dict[str, Any]


def main() -> None:
    """Prints, and draws where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("-o", "--out", type=Path, help="the picture")
    options = parser.parse_args()
    rows = json.loads(options.rows.read_text())
    print("\n".join([*summary(rows), "", *table(rows)]))
    if options.out is not None:
        require_matplotlib()
        options.out.write_bytes(picture(rows))


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Geometric mean, tenth percentile and worst ratio of each group and number of threads."""
    counts = sorted({row["threads"] for row in rows})
    yield from _head(["rows", "shapes", *map(_threads, counts)])
    for group in dict.fromkeys(row["group"] for row in rows):
        ratios = [
            [row["ratio"] for row in rows if row["group"] == group and row["threads"] == n] for n in counts
        ]
        yield _line([group, str(len(ratios[0])), *map(_spread, ratios)])


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return ", ".join(f"{each:.3f}" for each in (mean, sorted(ratios)[len(ratios) // 10], min(ratios)))


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each kernel and shape: microseconds, those of the best peer, and the ratio."""
    counts = sorted({row["threads"] for row in rows})
    yield from _head(["kernel", "shape", *(f for n in counts for f in (_threads(n), "best peer", "ratio"))])
    found = {(row["kernel"], _shape(row), row["threads"]): row for row in rows}
    for kernel, shape in dict.fromkeys((row["kernel"], _shape(row)) for row in rows):
        cells = [cell for n in counts for cell in _cells(found.get((kernel, shape, n)))]
        yield _line([f"`{kernel}`", shape, *cells])


def _cells(row: Row | None) -> list[str]:
    if row is None:
        return ["", "", ""]
    name, least = min(row["peers"].items(), key=lambda peer: float(peer[1]))
    return [_us(row["us"]), f"{_us(least)} ({name})", f"{row['ratio']:.2f}"]


def _shape(row: Row) -> str:
    return " x ".join(f"({', '.join(map(str, n))})" if isinstance(n, list) else str(n) for n in row["shape"])


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _us(time: float) -> str:
    return f"{time:.1f}" if time < 100 else f"{time:.0f}"


def _head(cells: Sequence[str]) -> tuple[str, str]:
    return _line(cells), "|---" * len(cells) + "|"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def picture(rows: Sequence[Row]) -> bytes:
    """Ratios by the peer's time: dots of one thread, crosses of all."""
    figure, axes = canvas(_SIZE)
    for group in dict.fromkeys(row["group"] for row in rows):
        for alone, marker in ((True, "o"), (False, "x")):
            here = [row for row in rows if row["group"] == group and (row["threads"] == 1) == alone]
            axes.scatter(
                [row["us"] * row["ratio"] for row in here],
                [row["ratio"] for row in here],
                s=12,
                color=_COLOURS.get(group, _OTHER),
                marker=marker,
                linewidths=0.8,
                label=group if alone else None,
            )
    axes.axhline(1.0, color=_LINE, linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("us of the best peer (dots: one thread, crosses: all)")
    axes.set_ylabel("times as fast as it")
    figure.legend(fontsize=7, loc="outside right upper")
    return png(figure)


if __name__ == "__main__":
    main()
