"""Remarks as plain data, for the cache: places of a manifest are kept by what stands there, as its lines may
move while all that the remark is about stays as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilec.errors import Place, Remark
from tilec.manifest import Variant


def places_of(variant: Variant) -> dict[str, Place]:
    """Where values of a variant stand, by their keys, and under "" its kernel."""
    return {**variant.value_places, "": variant.place}


def relative(path: Path, base: Path) -> str:
    """The name of a source beside the manifest's folder, so that a moved project keeps its entries."""
    return Path(os.path.relpath(path, base)).as_posix()


def remark_fields(remark: Remark, places: Mapping[str, Place], base: Path) -> list[Any]:
    """A remark as JSON takes it. ``places``: those of the manifest, by what stands there; ``base``: its
    folder, beside which files are named."""
    place = remark.place
    key = next((key for key, at in places.items() if at == place), None)
    file = relative(Path(place.file), base) if place.file and key is None else None
    return [remark.what, file, place.line, remark.remedy, key]


def read_remark(fields: list[Any], places: Mapping[str, Place], base: Path) -> Remark:
    """The inverse, with the places of now; where a key is gone, that of the kernel."""
    what, file, line, remedy, key = fields
    if key is not None:
        return Remark(what, places.get(key, places[""]), remedy)
    return Remark(what, Place(os.path.normpath(base / file) if file else None, line), remedy)
