"""Several configs for the same shapes: where they are read from, and what must hold of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tilec.costs import check_cost
from tilec.errors import ManifestError, Place
from tilec.ir.guards import Guard
from tilec.manifest.model import Override, Schedule
from tilec.manifest.text.document import Document, format_path, read_document
from tilec.sizes import SizeError
from tilec.spelling import suggestion

_TABLES: TypeAdapter[tuple[Schedule, ...]] = TypeAdapter(tuple[Schedule, ...])


@dataclass(frozen=True)
class Schedules:
    """The schedules of an override; ``source`` says who chose their configs."""

    each: tuple[Schedule, ...]
    source: str


class ScheduleFiles:
    """The files of a manifest's schedules, relative to ``base``, each read once."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._read: dict[str, Document] = {}

    def schedules(self, override: Override, place: Place) -> Schedules | None:
        """Those of an override, which names them at ``place``; None where it has none. Raises ManifestError
        for a file that is not there or has no such table."""
        given = override.schedules
        if given is None:
            return None
        sources = [given] if isinstance(given, str) else [each for each in given if isinstance(each, str)]
        if not sources:
            return Schedules(tuple(each for each in given if isinstance(each, Schedule)), "schedule")
        files = dict.fromkeys(source.rpartition(":")[0] for source in sources)
        found = tuple(each for source in sources for each in self._schedules(source, place))
        return Schedules(found, f"schedule of {' and '.join(files)}")

    def _schedules(self, source: str, place: Place) -> tuple[Schedule, ...]:
        file, _, name = source.rpartition(":")
        document = self._document(file, place)
        if name not in document.data:
            raise ManifestError(
                f'{file} has no schedules "{name}"', place=place, remedy=suggestion(name, document.data)
            )
        return _tables(document, name)

    def _document(self, file: str, place: Place) -> Document:
        if file not in self._read:
            if not (self._base / file).is_file():
                raise ManifestError(
                    f'the file of schedules "{file}" does not exist',
                    place=place,
                    remedy="paths begin at the manifest",
                )
            self._read[file] = read_document(self._base / file)
        return self._read[file]


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


def narrowed(dims: Mapping[str, Guard], own: Mapping[str, Guard]) -> dict[str, Guard]:
    """The guards of a variant with those of a schedule beside them."""
    return {name: guard & own[name] if name in own else guard for name, guard in dims.items()}


def check_schedules(schedules: Sequence[Schedule], dims: Collection[str], place: Place) -> None:
    """Raises ManifestError for a list without a schedule that serves all calls, and for costs and guards of
    something else than dims."""
    if not schedules:
        raise ManifestError("a list of schedules is empty", place=place, remedy="give one, or remove the key")
    if all(schedule.dims for schedule in schedules):
        what = "a list of schedules has none for all calls"
        raise ManifestError(what, place=place, remedy="give one without dims")
    for number, schedule in enumerate(schedules):
        unknown = next((name for name in schedule.dims if name not in dims), None)
        if unknown is not None:
            what = f'unknown dimension "{unknown}" in schedule {number + 1}'
            raise ManifestError(what, place=place, remedy=suggestion(unknown, dims))
        try:
            check_cost(schedule.cost, dims)
        except SizeError as error:
            raise ManifestError(
                f"schedule {number + 1} has no usable cost", place=place, why=error.what, remedy="correct it"
            ) from error
