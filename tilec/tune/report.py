"""A page about a tuning run that needs no other file and no network, and tables for other programs."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from tilec.cache import write_atomically
from tilec.errors import Place, TuneError
from tilec.portable.dims import dims_text
from tilec.portable.runner.judge import OK
from tilec.tune.outcome import pictures
from tilec.tune.outcome.entries import device_text, rate_of
from tilec.tune.outcome.results import Result

_COLUMNS = (
    "kernel", "target", "guards", "number", "config", "outcome", "us", "final_us", "noise", "predicted_us",
    "winner", "detail",
)  # fmt: skip


def write_report(path: str | Path, results: Sequence[Result], title: str) -> None:
    """Writes the page. Raises EnvironmentError_ without matplotlib, TuneError where it cannot be written."""
    pictures.require_matplotlib()
    _write(Path(path), report(results, title))


def write_csv(path: str | Path, results: Sequence[Result]) -> None:
    """Writes a line for every config. Raises TuneError where that cannot be done."""
    _write(Path(path), table(results))


def table(results: Sequence[Result]) -> str:
    """A line of CSV for every config that was tried or left out."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for result in results:
        known = result.about
        guards = dims_text(known.dims)
        head = [known.kernel, known.target, guards]
        for row in result.rows:
            final = result.finals.get(row.number)
            measured = [f"{known.score(row.points):.4f}" if row.outcome == OK else ""]
            again = ["", ""] if final is None else [f"{final.score:.4f}", f"{final.noise:.5f}"]
            guess = [f"{known.predicted[row.number]:.4f}" if row.number in known.predicted else ""]
            config = json.dumps(known.configs[row.number])
            tail = [row.number == result.winner, row.detail]
            writer.writerow([*head, row.number, config, row.outcome, *measured, *again, *guess, *tail])
        for number, kind, reason in known.pruned:
            config = json.dumps(known.configs[number])
            writer.writerow([*head, number, config, f"left out: {kind}", "", "", "", "", False, reason])
    return out.getvalue()


def report(results: Sequence[Result], title: str) -> str:
    """The page as HTML."""
    devices = dict.fromkeys(
        f"{device_text(one)} ({one.device.get('driver') or 'no driver'})" for one in results
    )
    template = Template(files("tilec.tune").joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        devices=escape("; ".join(devices)),
        gains=_picture(pictures.gains(results), "How much faster winners are than defaults"),
        rows="\n".join(_summary(at, one) for at, one in enumerate(results)),
        sections="\n".join(_section(at, one) for at, one in enumerate(results)),
    )


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode(), 0o644)
    except OSError as error:
        why = error.strerror or str(error)
        raise TuneError(f"{path} cannot be written", place=Place(str(path)), why=why) from error


def _summary(at: int, result: Result) -> str:
    """One line of the table of winners."""
    failed = sum(result.failures.values())
    counts = f"{len(result.rows)} tried, {len(result.about.pruned)} left out, {failed} failed"
    if result.winner is None:
        return _line(
            [f'<a href="#v{at}">{escape(result.about.title)}</a>', "-", "-", "-", "none works", counts]
        )
    best, default, rate = result.score(result.winner), result.score(0), rate_of(result, result.winner)
    final = result.finals.get(result.winner)
    noise = f" &plusmn; {final.noise:.1%}" if final else ""
    cells = [
        f'<a href="#v{at}">{escape(result.about.title)}</a>',
        f"{default:.2f}" if math.isfinite(default) else "-",
        f"<b>{best:.2f}</b>{noise}",
        f"{default / best:.3f}" if math.isfinite(default) else "-",
        "-" if rate is None else f"{rate.tflops:.1f} TFLOP/s" if rate.tflops else f"{rate.gbps:.0f} GB/s",
        counts,
    ]
    return _line(cells)


def _line(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _section(at: int, result: Result) -> str:
    """All about one variant."""
    known = result.about
    points = "; ".join(point.text for point in known.points)
    parts = [f'<section id="v{at}"><h2>{escape(known.title)}</h2>', f"<p>Measured at {escape(points)}.</p>"]
    if result.winner is not None:
        parts.append(_configs(result))
    if any(row.outcome == OK for row in result.rows):
        parts.append(_picture(pictures.against_roofline(result), "Latency of every config"))
        parts.append(_picture(pictures.best_so_far(result), "Best so far over time"))
        parts.append(_pivots(result))
    parts.append(_failures(result))
    return "\n".join([*parts, "</section>"])


def _configs(result: Result) -> str:
    """The winner's config beside the default, key by key."""
    winner, default = result.about.configs[result.winner or 0], result.about.configs[0]
    keys = dict.fromkeys((*default, *winner))
    lines = [
        _line([escape(key), _changed(default.get(key), winner.get(key)), escape(str(default.get(key, "-")))])
        for key in keys
    ]
    head = _line(["<b>key</b>", "<b>tuned</b>", "<b>default</b>"])
    return f"<table class=config>{head}{''.join(lines)}</table>"


def _changed(old: object, new: object) -> str:
    text = escape(str("-" if new is None else new))
    return text if old == new else f"<b>{text}</b>"


def _pivots(result: Result) -> str:
    """The heat maps, of which one is shown."""
    found = pictures.pivots(result)
    if not found:
        return ""
    options = "".join(f"<option>{escape(name)}</option>" for name in found)
    images = "".join(
        f'<div data-pair="{escape(name)}"{" hidden" if number else ""}>{_picture(png, name)}</div>'
        for number, (name, png) in enumerate(found.items())
    )
    return f"<figure class=pivot><label>Keys: <select>{options}</select></label>{images}</figure>"


def _failures(result: Result) -> str:
    """What was left out and what failed, by kind, with the reasons."""
    known = result.about
    left = [(f"left out: {kind}", number, reason) for number, kind, reason in known.pruned]
    failed = [(row.outcome, row.number, row.detail) for row in result.rows if row.outcome != OK]
    if not left and not failed:
        return "<p>Nothing was left out, and nothing failed.</p>"
    counts = Counter(kind for kind, _, _ in (*failed, *left))
    text = ", ".join(f"{count} {escape(kind)}" for kind, count in counts.most_common())
    lines = "".join(
        _line([escape(kind), escape(_config_text(result, number)), escape(reason)])
        for kind, number, reason in (*failed, *left)
    )
    return f"<details><summary>{text}</summary><table>{lines}</table></details>"


def _config_text(result: Result, number: int) -> str:
    """The keys in which a config differs from the default."""
    default = result.about.configs[0]
    config = result.about.configs[number]
    changed = {key: value for key, value in config.items() if default.get(key) != value}
    return " ".join(f"{key}={value}" for key, value in changed.items()) or "the default"


def _picture(png: bytes, text: str) -> str:
    data = base64.b64encode(png).decode()
    return f'<img alt="{escape(text)}" src="data:image/png;base64,{data}" loading="lazy">'
