"""Times of a matrix kernel by the number of rows: from 1 on, weights the same."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

import torch
from bench import distance, input_sets, runner, wanted
from draw import Drawn
from summary import slower_with_fewer
from timing import events
from work import row_of

#: So many rows unless asked for otherwise; up to these every number is timed, then those where tiles of a
#: multiple of `_STEP` rows end, and begin.
MOST_ROWS, _STEP = 256, 16
KERNELS = {
    **dict.fromkeys(("matmul_float16", "matmul_bfloat16", "linear_bfloat16"), "products"),
    **dict.fromkeys(("linear_fp8", "linear_int8", "linear_fp8_blocks"), "quantised"),
    **dict.fromkeys(("linear_packed_w4a16", "linear_packed_w8a16"), "quantised"),
}
SIZES = ((4096, 4096), (6144, 6144))
BY_ROW = ("A", "C", "a_scale")
_REPLAYS, _TURNS, _CHECKS = 5, 9, 3


def sweep(library: Any, name: str, sizes: tuple[int, int], most: int = MOST_ROWS) -> dict[str, Any]:
    """Microseconds by rows up to ``most``, where more rows take less time, and how many rows are wrong."""
    timer = _Timer(library.kernels[name], Drawn(KERNELS[name], name, _dims(most, sizes)))
    us = {
        rows: timer.time(rows) for rows in range(1, most + 1) if rows <= MOST_ROWS or rows % _STEP in (0, 1)
    }
    for _ in range(_CHECKS):  # what is told should be no interrupt's doing: rows and more rows in turns
        us |= timer.in_turns({rows for slow in slower_with_fewer(us) for rows in slow.members})
    found = [vars(slow) | {"text": slow.text} for slow in slower_with_fewer(us)]
    return {"kernel": name, "sizes": sizes, "us": us, "slow": found, "wrong": timer.wrong}


def _dims(rows: int, sizes: tuple[int, int]) -> dict[str, int]:
    return {"M": rows, "N": sizes[0], "K": sizes[1]}


class _Timer:
    """Calls of a kernel with the first rows of the same tensors."""

    def __init__(self, kernel: Any, most: Drawn) -> None:
        row = row_of(most)
        self._sets, self._rtol = input_sets(row), row.rtol
        self._run = runner(kernel, row)
        (self._wanted,) = wanted(row, self._sets[0])
        self.wrong: list[int] = []

    def time(self, rows: int) -> float:
        """Of one call, the median of replays."""
        replay = self._replay(rows)
        return statistics.median(replay() for _ in range(_REPLAYS))

    def in_turns(self, numbers: Iterable[int]) -> dict[int, float]:
        """Of one call by numbers of rows, the median of replays that take turns."""
        replays = {rows: self._replay(rows) for rows in numbers}
        rounds = [{rows: replay() for rows, replay in replays.items()} for _ in range(_TURNS)]
        return {rows: statistics.median(each[rows] for each in rounds) for rows in replays}

    def _replay(self, rows: int) -> Callable[[], float]:
        """Microseconds of one call, by one replay of a graph that goes through all sets."""
        sets = [
            {key: value[:rows] if key in BY_ROW else value for key, value in each.items()}
            for each in self._sets
        ]
        self._run(sets[0])
        if not distance(sets[0]["C"], self._wanted[:rows]) < self._rtol and rows not in self.wrong:
            self.wrong.append(rows)
        calls = max(len(sets), 16 // len(sets) * len(sets))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number in range(calls):
                self._run(sets[number % len(sets)])
        graph.replay()
        return lambda: events(graph.replay) / calls
