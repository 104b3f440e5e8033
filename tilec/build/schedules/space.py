"""The configs that tuning may choose from, of one kernel on one target under one set of guards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.build.schedules.parameters import derived_axes
from tilec.errors import InputError, ManifestError, Place, TilecError
from tilec.manifest import Variant
from tilec.manifest.model import Tune
from tilec.manifest.sources import source_text
from tilec.manifest.text.conditions import holds, names_in
from tilec.spelling import suggestion

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Space:
    """``base``: the manifest's own config, under every choice. ``axes``: config key to the values to try.
    ``listed``: whole choices that a function gave. ``names``: what conditions read beside the config."""

    base: Config
    axes: Mapping[str, tuple[Any, ...]]
    where: tuple[str, ...] = ()
    listed: tuple[Config, ...] | None = None
    names: Mapping[str, Any] | None = None
    place: Place | None = None

    @property
    def size(self) -> int:
        """Choices before any condition; 0 where there is nothing to choose."""
        if self.listed is None and not self.axes:
            return 0
        count = 1 if self.listed is None else len(self.listed)
        for values in self.axes.values():
            count *= len(values)
        return count

    def configs(self) -> list[dict[str, Any]]:
        """The configs for which every condition holds, each once."""
        found: dict[str, dict[str, Any]] = {}
        for config in self._choices():
            if all(self._holds(text, config) for text in self.where):
                found.setdefault(repr(sorted(config.items())), config)
        return list(found.values())

    def _choices(self) -> Iterator[dict[str, Any]]:
        for chosen in self.listed if self.listed is not None else ({},) if self.axes else ():
            for values in itertools.product(*self.axes.values()):
                yield {**self.base, **chosen, **dict(zip(self.axes, values, strict=True))}

    def _holds(self, text: str, config: Config) -> bool:
        names = {**(self.names or {}), **config}
        try:
            return holds(text, names)
        except KeyError as error:
            unknown = str(error.args[0])
            raise self._problem(text, f'"{unknown}" has no value', suggestion(unknown, names)) from error
        except (TypeError, ZeroDivisionError) as error:
            raise self._problem(text, str(error), "mend the condition") from error

    def _problem(self, text: str, why: str, remedy: str) -> ManifestError:
        return ManifestError(
            f'the condition "{text}" cannot be used', place=self.place, why=why, remedy=remedy
        )


def space_for(variant: Variant, tune: Tune) -> Space:
    """The space of a variant: what its manifest lists, else the author's own (`tilec.autotune`); with
    ``space = "auto"``, and where a variant with ``config = "auto"`` has neither, what its parameters allow.

    Raises what `space_of` and `derived_axes` raise."""
    configs = _function(tune.configs, variant.base) or _authors_configs(variant, tune)
    if tune.space == "auto" or (variant.is_auto and configs is None and not tune.axes):
        axes = {name: values for name, values in derived_axes(variant).items() if name not in tune.axes}
        return space_of(variant, tune, configs, {**axes, **tune.axes})
    return space_of(variant, tune, configs, tune.axes)


def _authors_configs(variant: Variant, tune: Tune) -> Callable[..., Any] | None:
    """Where the manifest has no space: that of `tilec.autotune` above the kernel. A source that does not name
    it is not imported to find out."""
    if tune.axes or "autotune" not in source_text(variant.source, variant.base):
        return None
    from tilec.language.frontend.elaborate import load_entry, tuning_configs

    found = tuning_configs(load_entry(variant.source, variant.base), variant.dims, variant.args)
    return (lambda _dims, _target: found) if found else None


def _function(source: str | None, base: Path) -> Callable[..., Any] | None:
    if source is None:
        return None
    from tilec.language.frontend.elaborate import load_entry

    function = load_entry(source, base)
    if not callable(function):
        raise InputError(f"{source} is no function", remedy="name a function of dims and target")
    return function


def space_of(
    variant: Variant, tune: Tune, configs: Callable[..., Any] | None, axes: Mapping[str, tuple[Any, ...]]
) -> Space:
    """The space of a variant. ``configs``: the function that the manifest names, if any.

    Raises ManifestError for conditions over unknown names and for what the function gives."""
    pinned = {name: guard.eq for name, guard in variant.dims.items() if guard.eq is not None}
    names = {**variant.args, **pinned, "target": variant.target.name}
    listed = None if configs is None else _listed(variant, tune, configs, pinned)
    given = (key for one in listed or () for key in one)
    known = dict.fromkeys([*axes, *variant.config, *given, *names])
    for text in tune.where:
        unknown = next((name for name in names_in(text) if name not in known), None)
        if unknown is not None:
            what = f'the condition "{text}" reads "{unknown}"'
            raise ManifestError(what, place=variant.place, remedy=suggestion(unknown, known))
    return Space(variant.config, axes, tune.where, listed, names, variant.place)


def check_conditions(variant: Variant, tune: Tune | None) -> None:
    """Raises ManifestError for a condition on unknown names in the values to try of a variant."""
    listed = None if tune is None else tune.for_target(variant.target)
    if listed is not None and listed.configs is None and listed.space is None:
        space_of(variant, listed, None, listed.axes)


def _listed(
    variant: Variant, tune: Tune, configs: Callable[..., Any], pinned: Mapping[str, int]
) -> tuple[Config, ...]:
    """What the manifest's function gives: dims that are no integers come as the texts of their guards."""
    dims: dict[str, Any] = {name: pinned.get(name, str(guard)) for name, guard in variant.dims.items()}
    try:
        given: Sequence[Any] = list(configs(dims, variant.target.name))
    except TilecError:
        raise
    except Exception as error:
        what = f"{tune.configs} raised {type(error).__name__}: {error}"
        raise ManifestError(what, place=variant.place, why=f"it was asked for {variant.title}") from error
    wrong = next((one for one in given if not isinstance(one, Mapping)), None)
    if wrong is not None:
        what = f"{tune.configs} gave {wrong!r}, which is no config"
        raise ManifestError(what, place=variant.place, remedy="give a list of dicts of config keys")
    return tuple(dict(one) for one in given)
