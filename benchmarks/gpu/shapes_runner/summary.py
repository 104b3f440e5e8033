"""What a run of random shapes, or one over rows, comes to; no GPU needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: More rows that take less time by more than this share are worth a line.
NOTED = 0.03
_HEAD = "| family | shapes | missed | wrong | beside | shapes beside it | mean | tenth percentile | worst |"


@dataclass(frozen=True)
class Slow:
    """Calls of ``first`` to ``last`` rows, of which those of ``rows`` lose the most to ``faster`` rows, which
    take less time; microseconds."""

    first: int
    last: int
    rows: int
    us: float
    faster: int
    faster_us: float

    @property
    def members(self) -> tuple[int, ...]:
        """All numbers of rows that it compares."""
        return (*range(self.first, self.last + 1), self.faster)

    @property
    def text(self) -> str:
        """One line for people."""
        share = self.us / self.faster_us - 1
        return (
            f"{self.first}..{self.last} rows: {self.rows} take {self.us:.1f} us, "
            f"{self.faster} take {self.faster_us:.1f} ({share:+.0%})"
        )


def slower_with_fewer(us: Mapping[int, float]) -> list[Slow]:
    """Stretches of neighbouring numbers of rows that take more time than some larger number. ``us``:
    microseconds by rows."""
    rows = sorted(us)
    found: list[Slow] = []
    best = rows[-1]
    worse: list[Slow] = []
    for number in reversed(rows):
        best = min(best, number, key=lambda each: us[each])
        if us[number] > us[best] * (1 + NOTED):
            worse.append(Slow(number, number, number, us[number], best, us[best]))
            continue
        found += _joined(worse)
        worse = []
    found += _joined(worse)
    return found[::-1]


def _joined(worse: Sequence[Slow]) -> list[Slow]:
    """A stretch, as its worst member tells it; ``worse``: from more rows to fewer."""
    if not worse:
        return []
    worst = max(worse, key=lambda each: each.us / each.faster_us)
    return [Slow(worse[-1].first, worse[0].last, worst.rows, worst.us, worst.faster, worst.faster_us)]


def lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Geometric means of the ratios of each family, as Markdown; then the misses, with the reason."""
    yield _HEAD
    yield "|---" * 9 + "|"
    for family in dict.fromkeys(row["family"] for row in rows):
        members = [row for row in rows if row["family"] == family]
        served = [row for row in members if "us" in row]
        wrong = sum(not row["right"] for row in served)
        counts = f"{len(members)} | {sum('missed' in row for row in members)} | {wrong}"
        for name in dict.fromkeys(name for row in served for name in row["ratios"]):
            yield f"| {family} | {counts} | {name} | {_spread(served, name)} |"
    for row in rows:
        if "missed" in row:
            yield f"missed: {row['name']}: {row['missed']}"


def _spread(rows: Sequence[Mapping[str, Any]], peer: str) -> str:
    """How many ratios, their geometric mean, tenth percentile and least one."""
    ratios = sorted((row["ratios"][peer], row["name"]) for row in rows if peer in row["ratios"])
    mean = math.exp(sum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
    tenth = ratios[len(ratios) // 10][0]
    return f"{len(ratios)} | {mean:.3f} | {tenth:.3f} | {ratios[0][0]:.3f} ({ratios[0][1]})"
