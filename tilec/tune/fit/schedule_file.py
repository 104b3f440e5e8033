"""Times of schedules as JSON, and the file that fitted costs go to."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from tilec.build.schedules.features import Features, features_of
from tilec.build.schedules.fit import Chooser, Times, few
from tilec.cache import write_atomically
from tilec.errors import InputError, Place, TuneError
from tilec.manifest import Variant
from tilec.manifest.guards import parse_guard
from tilec.manifest.text.document import read_document
from tilec.portable.dims import dims_text
from tilec.spelling import suggestion

_HEAD = (
    "# Schedules and what they cost, written by `tilec fit` or `tilec tune`. Comments above the first table\n"
    "# are kept.\n"
)
#: Rows outside of a guard that still tell something of it: within this factor of its ends.
_NEAR = 4


@dataclass(frozen=True)
class Part:
    """A list of at most ``most`` schedules for the sizes of ``dim`` that ``guard`` admits."""

    name: str
    dim: str
    guard: str
    most: int


@dataclass(frozen=True)
class Measured:
    """Times of the schedules of a kernel on a device with ``units`` multiprocessors."""

    units: int
    times: tuple[Times, ...]


@dataclass(frozen=True)
class FittedPart:
    """``schedules``: config and cost, the most useful first; ``loss``: the mean factor by which the cheapest
    of those timed is slower than the best of all that were, over ``shapes``; at ``untimed`` of these one that
    was not timed is cheaper."""

    part: Part
    schedules: tuple[tuple[Mapping[str, Any], str], ...]
    loss: float
    shapes: int
    untimed: int


def read_times(paths: Sequence[Path], kernel: str, variants: Sequence[Variant]) -> Measured:
    """The times of a kernel whose schedules are ``variants``, of all files together; those of schedules that
    are not among these are left out. Raises InputError for a file that is none or has none of them, and for
    files of devices with other numbers of multiprocessors."""
    found = [_read_times(path, kernel, variants) for path in paths]
    for path, each in zip(paths, found, strict=True):
        if each.units != found[0].units:
            raise InputError(
                f"{path} is of a device with {each.units} multiprocessors, {paths[0]} of one with "
                f"{found[0].units}",
                place=Place(str(path)),
                remedy="fit the times of each device by themselves",
            )
    return Measured(found[0].units, tuple(times for each in found for times in each.times))


def _read_times(path: Path, kernel: str, variants: Sequence[Variant]) -> Measured:
    numbers = {_config(variant.config): number for number, variant in enumerate(variants)}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = data["kernels"][kernel]
        told = [numbers.get(_config(config)) for config in found["configs"]]
        times = tuple(
            Times(dict(each["dims"]), _known({told[int(old)]: float(us) for old, us in each["us"].items()}))
            for each in found["times"]
        )
        units = int(data["units"])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"{path} has no times of {kernel}",
            place=Place(str(path)),
            why=f"{type(error).__name__}: {error}",
            remedy="give what the folder of benchmarks/gpu/costs/schedules.py wrote where the device is",
        ) from error
    if not any(each is not None for each in told):
        raise InputError(
            f"{path} is of other schedules of {kernel} than the manifest's",
            place=Place(str(path)),
            remedy="build and measure again",
        )
    _check_dims(path, times, variants[0].dims)
    return Measured(units, tuple(each for each in times if each.us))


def _config(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _known(us: Mapping[int | None, float]) -> dict[int, float]:
    return {number: time for number, time in us.items() if number is not None}


def _check_dims(path: Path, times: Sequence[Times], dims: Collection[str]) -> None:
    """Raises InputError where a shape is not whole, or a time is none."""
    for each in times:
        missing = [name for name in dims if type(each.dims.get(name)) is not int]
        if missing:
            shape = dims_text(each.dims) or "without dims"
            raise InputError(
                f"{path} has a shape that gives no {', '.join(missing)}: {shape}",
                place=Place(str(path)),
                remedy=f"time shapes that give {', '.join(dims)}",
            )
        if not all(0 < us < math.inf for us in each.us.values()):
            raise InputError(
                f"{path} has a shape with a time that is none: {dict(each.dims)}",
                place=Place(str(path)),
                remedy="remove the shape, or time it again",
            )


def fit_parts(
    parts: Sequence[Part], variants: Sequence[Variant], measured: Measured, gain: float
) -> list[FittedPart]:
    """Fits costs to what was measured in and near each part, and keeps the schedules that are worth it.
    Raises InputError where no shape is in a part."""
    for part in parts:
        if part.dim not in variants[0].dims:
            raise InputError(
                f'the list {part.name} is for sizes of "{part.dim}", which is no dim of {variants[0].kernel}',
                remedy=suggestion(part.dim, variants[0].dims),
            )
    features = [features_of(variant) for variant in variants]
    return [_fit_part(part, variants, features, measured, gain) for part in parts]


def _fit_part(
    part: Part, variants: Sequence[Variant], features: Sequence[Features], measured: Measured, gain: float
) -> FittedPart:
    guard = parse_guard(part.guard)
    least, most = guard.min or 1, guard.max or math.inf
    inside = [each for each in measured.times if guard.admits(each.dims[part.dim])]
    near = [each for each in measured.times if least / _NEAR <= each.dims[part.dim] <= most * _NEAR]
    costs = few(dict(enumerate(features)), near, inside, measured.units, part.most, gain) if inside else {}
    if not costs:
        raise InputError(f"too few shapes were timed with {part.dim} = {part.guard}", remedy="time more")
    chooser = Chooser(costs, inside, measured.units)
    schedules = tuple((variants[number].config, text) for number, text in costs.items())
    loss, untimed = chooser.loss(list(costs)), chooser.untimed(list(costs))
    return FittedPart(part, schedules, math.exp(loss), len(inside), untimed)


def _opened(path: Path) -> tomlkit.TOMLDocument:
    if not path.exists():
        return tomlkit.parse(_HEAD)
    read_document(path)  # says what is wrong with it
    return tomlkit.parse(path.read_text(encoding="utf-8-sig"))


def write_lists(path: Path, lists: Mapping[str, Sequence[tuple[Mapping[str, Any], str]]]) -> None:
    """Puts lists of configs and costs into a file, in place of those of their names. Raises ManifestError for
    a file that is no TOML, TuneError where it cannot be written."""
    document = _opened(path)
    for name, schedules in lists.items():
        tables = tomlkit.aot()
        for config, cost in schedules:
            table = tomlkit.table()
            inline = tomlkit.inline_table()
            inline.update(config)
            table.add("config", inline)
            table.add("cost", cost)
            tables.append(table)
        document[name] = tables
    try:
        write_atomically(path, tomlkit.dumps(document).encode(), 0o644)
    except OSError as error:
        raise TuneError(
            f"{path} cannot be written",
            place=Place(str(path)),
            why=error.strerror or str(error),
            remedy="make room",
        ) from error
