"""The machine code of a variant by its tile IR: where the file of a kernel changes, variants are compiled
again only if they are others."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from tilec.backends.base import backend_of
from tilec.build.reuse.images import decoded, encoded
from tilec.cache import Store, digest, toolchain_digest
from tilec.ir import roads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilec.codegen.image import Image, LaunchCode
    from tilec.ir.nodes import Kernel
    from tilec.ir.stmt import Loc
    from tilec.targets import Target

_KIND = "tile"


@dataclass(frozen=True)
class Origin:
    """What code is made from. ``key``: of the tile IR, the target, tilec and its tools. ``lines``: where the
    statements stand, (name of the file, line) each once, in order: the key has which of them each is, so that
    other lines may come in front and between."""

    key: str
    lines: tuple[tuple[str, int], ...]


def origin_of(kernel: Kernel, ir_text: str, target: Target) -> Origin:
    """That of a kernel, whose tile IR is ``ir_text``; the docstring in its first line makes no code."""
    at = [None if loc is None else (loc.file, loc.line) for loc in _locs(kernel)]
    lines = sorted({line for line in at if line is not None})
    rank = {line: number for number, line in enumerate(lines)}
    ranks = [-1 if line is None else rank[line] for line in at]
    _, _, body = ir_text.partition("\n")
    rest = repr((kernel.name, kernel.options, target.name, target.triple, ranks))
    key = digest(toolchain_digest(), *backend_of(target).compiler_stamp(), rest, body)
    return Origin(key, tuple((PurePath(file).name, line) for file, line in lines))


def _locs(kernel: Kernel) -> Iterator[Loc | None]:
    from tilec.ir.nodes import Alloc, walk

    for stmt in walk(kernel.body):
        yield stmt.loc
        if isinstance(stmt, Alloc) and stmt.asked is not None:
            yield stmt.asked.loc


def find_code(store: Store, origin: Origin) -> Image | None:
    """The code that was kept, its roads in the lines of now."""
    found = store.get(_KIND, origin.key)
    if found is None:
        return None
    head, _, data = found.partition(b"\n")
    lines = [(file, line) for file, line in json.loads(head)]
    image, moved = decoded(data), dict(zip(lines, origin.lines, strict=True))
    if moved == dict(zip(lines, lines, strict=True)):
        return image
    return replace(image, launches=tuple(_moved(launch, moved) for launch in image.launches))


def keep_code(store: Store, origin: Origin, image: Image) -> None:
    """Stores code, unless its roads stand in lines that may move to two places. Raises OSError when the cache
    cannot be written."""
    found = (road for launch in image.launches for road in roads.decode(launch.roads))
    named = {(road.file, road.line) for road in found if road.line}
    if named <= set(origin.lines) and len(set(origin.lines)) == len(origin.lines):
        store.put(_KIND, origin.key, json.dumps(origin.lines).encode() + b"\n" + encoded(image))


def _moved(launch: LaunchCode, moved: dict[tuple[str, int], tuple[str, int]]) -> LaunchCode:
    found = []
    for road in roads.decode(launch.roads):
        file, line = moved.get((road.file, road.line), (road.file, road.line))
        found.append(replace(road, file=file, line=line))
    return replace(launch, roads=roads.encode(found))
