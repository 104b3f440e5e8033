"""Roads that a config asks for (``road``), and the remarks on variants that do not get them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from tilec.backends.base import backend_of
from tilec.errors import Place, Remark
from tilec.ir.roads import Road, missed

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.manifest import Variant


def asked_roads(kernel: Kernel, variant: Variant) -> tuple[str, ...]:
    """The roads that the launches of a variant are asked for, as far as its kind of target knows them: a
    manifest's config holds for CPUs and GPUs alike."""
    known = backend_of(variant.target).roads
    values = [launch.schedule.road or () for launch in kernel.launches]
    names = [name for value in values for name in ((value,) if isinstance(value, str) else value)]
    return tuple(name for name in dict.fromkeys(names) if name in known)


def remarks_on_roads(kernel: Kernel, variant: Variant, roads: Iterable[Road]) -> Iterator[Remark]:
    """What keeps a variant from the roads that it asks for, at the lines of its source."""
    found = list(roads)
    for asked in asked_roads(kernel, variant):
        elsewhere = backend_of(variant.target).target_with(asked, variant.target)
        if elsewhere is not None:
            what = f"{variant.title} asks for {asked}, which {variant.target.name} has not"
            yield Remark(what, variant.place, f'ask for it in an override with targets = ["{elsewhere}"]')
            continue
        for road in missed(asked, found):
            assert road.loss is not None
            what = f"{variant.title} asks for {asked}: {road.statement}: {road.loss.condition}"
            yield Remark(what, _place(road, variant), road.loss.remedy)


def _place(road: Road, variant: Variant) -> Place:
    """The line of the author's file; images know files by their names alone."""
    if not road.line:
        return variant.place
    source = variant.base / variant.source.partition(":")[0]
    return Place(str(source) if source.name == PurePath(road.file).name else road.file, road.line)
