"""Several configs for the same shapes: where they are read from, and what must hold of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tilec.costs import check_cost
from tilec.errors import ManifestError, Place
from tilec.manifest.document import Document, format_path, read_document
from tilec.manifest.model import Override, Schedule
from tilec.manifest.problems import suggestion
from tilec.sizes import SizeError

_TABLES: TypeAdapter[tuple[Schedule, ...]] = TypeAdapter(tuple[Schedule, ...])


@dataclass(frozen=True)
class Schedules:
    """The schedules of an override; ``source`` says who chose their configs."""

    each: tuple[Schedule, ...]
    source: str


def read_schedules(
    document: Document, override: Override, at: tuple[int, int], base: Path
) -> Schedules | None:
    """Those of override number ``at[1]`` of kernel number ``at[0]``; None where it has none. Raises
    ManifestError for a file that is not there or has no such table, and for costs that are none."""
    place = document.place("kernel", at[0], "override", at[1], "schedules")
    if override.schedules is None:
        return None
    if not isinstance(override.schedules, str):
        return Schedules(override.schedules, "schedule")
    file, _, name = override.schedules.rpartition(":")
    if not (base / file).is_file():
        raise ManifestError(
            f'the file of schedules "{file}" does not exist',
            place=place,
            remedy="paths begin at the manifest",
        )
    other = read_document(base / file)
    if name not in other.data:
        raise ManifestError(
            f'{file} has no schedules "{name}"', place=place, remedy=suggestion(name, other.data)
        )
    return Schedules(_tables(other, name), f"schedule of {file}")


def _tables(document: Document, name: str) -> tuple[Schedule, ...]:
    try:
        return _TABLES.validate_python(document.data[name])
    except ValidationError as error:
        first = error.errors()[0]
        path = (name, *first["loc"])
        raise ManifestError(
            f'the value of "{format_path(path)}" cannot be used',
            place=document.place(*path),
            why=first["msg"],
            remedy="a schedule is a table of config and cost",
        ) from error


def check_costs(schedules: Sequence[Schedule], dims: Collection[str], place: Place) -> None:
    """Raises ManifestError for a list without schedules, and for costs that read something else than dims."""
    if not schedules:
        raise ManifestError("a list of schedules is empty", place=place, remedy="give one, or remove the key")
    for number, schedule in enumerate(schedules):
        try:
            check_cost(schedule.cost, dims)
        except SizeError as error:
            raise ManifestError(
                f"schedule {number + 1} has no usable cost", place=place, why=error.what, remedy="correct it"
            ) from error
