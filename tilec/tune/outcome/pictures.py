"""The pictures of a report, by matplotlib, as PNG files of few colours."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilec.backends.base import backend_of, limits_of
from tilec.errors import EnvironmentError_
from tilec.portable.runner.judge import OK
from tilec.targets import parse_target
from tilec.tune.outcome.results import Result

_DPI, _COLOURS = 96, 48
_LONGEST = 60  # characters of a name beside a bar
_WIDE, _SMALL = (7.0, 2.9), (4.6, 3.2)
#: Colours that stay apart without red or green (Okabe and Ito).
_BEST, _DEFAULT, _OTHER, _LIMIT = "#d55e00", "#0072b2", "#999999", "#009e73"


def require_matplotlib() -> None:
    """Raises EnvironmentError_ where it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        remedy = "pip install 'tilec[report]'"
        raise EnvironmentError_("the report needs matplotlib", remedy=remedy) from error
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.size": 9})


def gains(results: Sequence[Result]) -> bytes:
    """Default against tuned: how many times faster the winner of each variant is than its default."""
    shown = [one for one in results if one.winner is not None and math.isfinite(one.score(0))]
    figure, axes = canvas((7.6, 0.9 + 0.26 * max(len(shown), 1)))
    values = [one.score(0) / one.score(one.winner or 0) for one in shown]
    axes.barh(range(len(shown)), [value - 1 for value in values], left=1.0, color=_BEST)
    axes.set_yticks(range(len(shown)), [_name(one) for one in shown], fontsize=7)
    for at, value in enumerate(values):
        axes.text(value, at, f" {value:.3f}", va="center", fontsize=7)
    axes.axvline(1.0, color=_DEFAULT, linewidth=1)
    axes.set_xlim(min([0.98, *values]), max([1.02, *values]) * 1.06)
    axes.invert_yaxis()
    axes.set_xlabel("times the speed of the manifest's own config")
    return png(figure)


def _name(result: Result) -> str:
    """A title without the dims that may be anything, cut to what fits."""
    known = result.about
    guards = " ".join(f"{name}={guard}" for name, guard in known.dims.items() if guard != "dynamic")
    text = f"{known.kernel} {guards}".strip()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def best_so_far(result: Result) -> bytes:
    """The best latency against the time since the start, with every config that was tried."""
    figure, axes = canvas(_WIDE)
    found = [(row.seconds, result.about.score(row.points)) for row in result.rows if row.outcome == OK]
    found.sort()
    times, scores = [one[0] for one in found], [one[1] for one in found]
    axes.scatter(times, scores, s=9, color=_OTHER, label="a config")
    axes.step(times, list(itertools.accumulate(scores, min)), where="post", color=_BEST, label="best so far")
    if math.isfinite(result.score(0)):
        axes.axhline(result.score(0), color=_DEFAULT, linewidth=1, linestyle="--", label="default")
    axes.set_xlabel("seconds")
    return _finished(figure, axes, scores)


def against_roofline(result: Result) -> bytes:
    """Every latency, the best first, with what the device could do at most and what the cost model said."""
    figure, axes = canvas(_WIDE)
    scores = {row.number: result.about.score(row.points) for row in result.rows if row.outcome == OK}
    ranked = sorted(scores, key=lambda number: scores[number])
    ranks = {number: at for at, number in enumerate(ranked)}
    axes.plot([scores[number] for number in ranked], ".", color=_OTHER, label="measured")
    guesses = [result.about.predicted.get(number, math.nan) for number in ranked]
    axes.plot(guesses, "x", color="#cc79a7", markersize=4, label="cost model")
    for number, colour, label in ((0, _DEFAULT, "default"), (result.winner, _BEST, "winner")):
        if number in ranks:
            axes.plot(ranks[number], scores[number], "o", color=colour, label=label)
    least = roofline(result)
    if least:
        axes.axhline(least, color=_LIMIT, linewidth=1, label="roofline")
    axes.set_xlabel("configs, the fastest first")
    return _finished(figure, axes, [*scores.values(), *([least] if least else [])])


def roofline(result: Result) -> float | None:
    """Microseconds that no config can beat, in the mean over the points; None where nobody can tell."""
    target = parse_target(result.about.target)
    if not backend_of(target).known_rates or not any(point.bytes for point in result.about.points):
        return None
    limits = limits_of(target, result.device)
    seconds = [limits.least_seconds(one.flops, one.bytes, one.dtype) for one in result.about.points]
    return result.about.score([one * 1e6 for one in seconds])


def pivots(result: Result) -> dict[str, bytes]:
    """A heat map for every two keys in which configs differ: the best latency of any config with these two
    values. By title: "bM x bN"."""
    scores = {row.number: result.about.score(row.points) for row in result.rows if row.outcome == OK}
    axes = _varied([result.about.configs[number] for number in scores])
    return {
        f"{first} x {second}": _pivot(result, scores, (first, axes[first]), (second, axes[second]))
        for first, second in itertools.combinations(axes, 2)
    }


def _varied(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The keys that have several values, with these in order."""
    keys = dict.fromkeys(key for config in configs for key in config)
    values = {key: _distinct(config[key] for config in configs if key in config) for key in keys}
    return {key: found for key, found in values.items() if len(found) > 1}


def _distinct(values: Iterable[Any]) -> list[Any]:
    found = list({repr(value): value for value in values}.values())
    try:
        return sorted(found)
    except TypeError:
        return sorted(found, key=repr)


def _pivot(
    result: Result,
    scores: Mapping[int, float],
    down: tuple[str, list[Any]],
    across: tuple[str, list[Any]],
) -> bytes:
    table = [[math.nan] * len(across[1]) for _ in down[1]]
    for number, score in scores.items():
        config = result.about.configs[number]
        if down[0] in config and across[0] in config:
            y, x = down[1].index(config[down[0]]), across[1].index(config[across[0]])
            table[y][x] = score if math.isnan(table[y][x]) else min(score, table[y][x])
    figure, axes = canvas(_SMALL)
    image = axes.imshow(table, aspect="auto", cmap="viridis_r")
    best = min(one for line in table for one in line if not math.isnan(one))
    worst = max(one for line in table for one in line if not math.isnan(one))
    for y, x in itertools.product(range(len(down[1])), range(len(across[1]))):
        if not math.isnan(table[y][x]):
            weight = "bold" if table[y][x] == best else "normal"
            dark = table[y][x] > (best + worst) / 2
            axes.text(
                x, y, f"{table[y][x]:.3g}", ha="center", va="center", fontsize=8, fontweight=weight,
                color="white" if dark else "black",
            )  # fmt: skip
    axes.set_xticks(range(len(across[1])), [str(value) for value in across[1]])
    axes.set_yticks(range(len(down[1])), [str(value) for value in down[1]])
    axes.set_xlabel(across[0])
    axes.set_ylabel(down[0])
    figure.colorbar(image, ax=axes, label="us, best of the rest")
    return png(figure)


def canvas(size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure of ``size`` in inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


def _finished(figure: Any, axes: Any, values: Sequence[float]) -> bytes:
    if values and max(values) > 8 * min(values):
        axes.set_yscale("log")
    axes.set_ylabel("us")
    axes.legend(fontsize=7, loc="best")
    return png(figure)


def png(figure: Any) -> bytes:
    """A picture on a screen has few colours: a palette makes it a quarter of the size."""
    from PIL import Image

    drawn, out = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI)
    Image.open(drawn).convert("RGB").quantize(_COLOURS).save(out, format="png", optimize=True)
    return out.getvalue()
