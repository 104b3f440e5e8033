"""The page itself: HTML with its style and script inside, which needs no other file."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path, PurePath

from tilec.cli.page.layouts import BANKS, WORD, Painted, painted, shared_rooms
from tilec.cli.page.listing import Line, Source, sources, tile_ir
from tilec.cli.page.timeline import Row, Timeline, timelines
from tilec.cli.page.view import View, view_of
from tilec.cli.printing.output import size_text
from tilec.codegen.image import DeviceLaunch
from tilec.ir.roads import Road
from tilec.lowering.lowered import LoweredLaunch
from tilec.manifest import Variant

_HERE = Path(__file__).parent


def document(variant: Variant, schedule: Sequence[str]) -> str:
    """The page of a variant; ``schedule`` are lines about how it was chosen. Raises what elaboration and
    lowering raise."""
    view = view_of(variant)
    tiles = list(painted(view.lowered))
    return _template("page.html").substitute(
        title=escape(variant.title),
        doc=escape(view.written.doc),
        schedule="".join(_tag("p", escape(line)) for line in (*schedule, *map(str, view.remarks))),
        launches="".join(_launch(view, at) for at in range(len(view.launches))),
        sources="".join(_source(source, _roads(view)) for source in sources(view.written)),
        written=_listing(tile_ir(view.written)),
        lowered=_listing(tile_ir(view.lowered)),
        timelines="".join(map(_timeline, timelines(view.written, view.lowered, _roads(view))))
        or _NO_TIMELINE,
        tiles="".join(_tile(at, tile) for at, tile in enumerate(tiles)) or _NO_TILES,
        data=json.dumps([asdict(tile) for tile in tiles]).replace("<", "\\u003c"),
        banks=BANKS,
        word=WORD,
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        script=(_HERE / "page.js").read_text(encoding="utf-8"),
    )


_NO_TIMELINE = "<p>No statement of a loop runs ahead of the others.</p>"
_NO_TILES = "<p>No tile has a layout of its own: all are row-major.</p>"


def _template(name: str) -> string.Template:
    return string.Template((_HERE / name).read_text(encoding="utf-8"))


def _tag(name: str, inner: str, **attributes: object) -> str:
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{said}>{inner}</{name}>"


def _roads(view: View) -> list[Road]:
    return [road for launch in view.launches for road in launch.roads]


# ---- launches ----


def _launch(view: View, at: int) -> str:
    """Facts of a launch, and where its shared memory goes."""
    launch = view.launches[at]
    facts = _facts(launch, view.compiled[at])
    rows = "".join(_tag("tr", _tag("th", name) + _tag("td", escape(fact))) for name, fact in facts.items())
    notes = "".join(_tag("li", escape(note)) for note in launch.notes)
    unknown = _tag("p", f"not compiled here: {escape(view.unknown)}") if view.unknown else ""
    body = view.lowered.launches[at] if at < len(view.lowered.launches) else None
    rooms = shared_rooms([body]) if body is not None else []
    head = _tag("h3", f"launch {at + 1}")
    return _tag("section", head + _tag("ul", notes) + _tag("table", rows) + unknown + _rooms(rooms))


def _facts(launch: LoweredLaunch, compiled: DeviceLaunch | None) -> dict[str, str]:
    """How a launch runs and, where it is compiled here, what a block and a thread take."""
    facts = {"grid": " x ".join(launch.grid), "threads": " x ".join(map(str, launch.threads))}
    if launch.cluster != (1, 1, 1):
        facts["cluster"] = " x ".join(map(str, launch.cluster))
    if launch.blocks_per_unit:
        facts["blocks a multiprocessor"] = str(launch.blocks_per_unit)
    if launch.scratch_bytes:
        facts["scratch of a worker"] = size_text(launch.scratch_bytes)
    if compiled is not None:
        shared = (compiled.static_shared or 0) + compiled.dynamic_shared
        facts["shared memory"] = size_text(shared)
        for name, value in (("registers a thread", compiled.registers), ("spilled bytes", compiled.spills)):
            if value is not None:
                facts[name] = str(value)
    return facts


def _rooms(rooms: Sequence[tuple[str, int]]) -> str:
    """Tiles of shared memory as bars."""
    if not rooms:
        return ""
    most = max(size for _, size in rooms)
    bars = "".join(
        _tag(
            "div",
            _tag("span", escape(name))
            + _tag("i", "", style=f"width:{40 * size / most:.2f}em")
            + size_text(size),
            class_="room",
        )
        for name, size in rooms
    )
    return (
        _tag("p", "tiles in shared memory (those that live at different times may have the same place):")
        + bars
    )


# ---- source and tile IR ----


def _source(source: Source, roads: Sequence[Road]) -> str:
    """The functions of a file, with the roads of each line under it."""
    rows, before = [], source.lines[0][0] - 1
    for number, text in source.lines:
        rows += [_tag("div", "…", class_="gap")] if number != before + 1 else []
        before = number
        place = f"{source.file}:{number}"
        rows.append(_row(text, place, number))
        rows += [_road(road) for road in roads if (road.file, road.line) == (str(source.file), number)]
    return _tag("h3", escape(source.file.name)) + _tag("div", "".join(rows), class_="code")


def _listing(lines: Iterable[Line]) -> str:
    return _tag("div", "".join(_row(line.text, line.place) for line in lines), class_="code")


def _row(text: str, place: str, number: int | None = None) -> str:
    shown = "" if number is None else _tag("b", str(number))
    return _tag("div", shown + _tag("code", escape(text) or " "), class_="row", data_place=_key(place))


def _key(place: str) -> str:
    """A place without its folders: pages tell nothing of the machine."""
    return PurePath(place).name


def _road(road: Road) -> str:
    said = _tag("span", f"{escape(road.statement)}: {escape(road.instruction)}", class_="road")
    if road.loss is None:
        return _tag("div", said, class_="said")
    lost = _tag("span", f"lost: {escape(str(road.loss))}", class_="lost")
    return _tag("div", said + lost, class_="said")


# ---- pipelines ----


def _timeline(line: Timeline) -> str:
    """One loop: a row for each statement, a column for each step, the number of the trip in each cell."""
    head = _tag("h3", f"{escape(_key(line.place))}, {line.stages} stages")
    rows = "".join(_timeline_row(row, line) for row in line.rows)
    return head + _tag("table", rows, class_="timeline")


def _timeline_row(row: Row, line: Timeline) -> str:
    trips = (row.trip(step, line.first) for step in range(line.steps))
    cells = "".join(
        _tag("td", "" if trip is None else str(trip), class_="none" if trip is None else f"trip{trip % 4}")
        for trip in trips
    )
    return _tag("tr", _tag("th", f"{escape(row.label)}: {escape(row.instruction)}") + cells)


# ---- layouts ----


def _tile(at: int, tile: Painted) -> str:
    extents = " x ".join(map(str, tile.shape))
    head = _tag("h3", f"{escape(tile.name)}: {tile.dtype} {extents} in {escape(tile.scope)}")
    canvas = _tag("canvas", "", data_tile=at)
    return _tag(
        "figure", head + _tag("p", _tag("code", escape(tile.text))) + canvas + _tag("p", "", class_="cell")
    )
