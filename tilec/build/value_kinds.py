"""Values of a manifest that are of another kind than the defaults of the parameters that they are for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tilec.errors import ManifestError, Remark, SourceError
from tilec.ir.schedule import KEYS
from tilec.manifest import Variant
from tilec.manifest.model import Tune
from tilec.manifest.problems import toml_type

#: The type of a default -> those that values may have, and what they are called.
_KINDS: Mapping[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    str: ((str,), "a string"),
}


@contextmanager
def blaming_values(entry: object, variant: Variant) -> Iterator[None]:
    """What a kernel refuses is said of the value of another kind than its default that the manifest gives,
    where there is one: a ManifestError at that key. Such a value alone is no error: authors may take both."""
    from tilec.language.frontend.elaborate import defaults

    try:
        yield
    except SourceError as error:
        given = {**variant.args, **variant.config}
        usual = {key: value for key, value in defaults(entry).items() if key in given}
        key = next((key for key, value in usual.items() if not _is_alike(given[key], value)), None)
        if key is None or key not in variant.value_places:
            raise
        wanted = _KINDS[type(usual[key])][1]
        raise ManifestError(
            f"{key} = {_text(given[key])} is {toml_type(given[key])}, where {variant.kernel} has {wanted}",
            place=variant.value_places[key],
            why=f"its default is {_text(usual[key])}, and with this value {_said(error)}",
            remedy=f"give {wanted}",
        ) from error


def remarks_on_space(variant: Variant, tune: Tune, usual: Mapping[str, Any]) -> Iterator[Remark]:
    """The values to try of a variant that are of another kind than the default of their parameter, which
    ``usual`` has, or of another form than their schedule key takes. Raises ManifestError for a condition on
    unknown names."""
    from tilec.build.schedules.space import space_of

    for key, values in tune.axes.items():
        wanted = _wanted(key, usual)
        wrong = next((value for value in values if not _is_of(key, value, usual)), None)
        if wrong is not None:
            what = f"{key} = {_text(wrong)} is among the values to try, where {variant.kernel} has {wanted}"
            yield Remark(what, variant.value_places.get(key, variant.place), f"give {wanted}")
    if tune.configs is None and tune.space is None:
        space_of(variant, tune, None, tune.axes)


def _wanted(key: str, usual: Mapping[str, Any]) -> str:
    """What values of a key are, in words; nothing where nobody says."""
    if key in usual:
        return _KINDS.get(type(usual[key]), ((), ""))[1]
    return KEYS[key].form.said if key in KEYS else ""


def _is_of(key: str, value: Any, usual: Mapping[str, Any]) -> bool:
    """Whether a value is what `_wanted` says."""
    if key in usual:
        return _is_alike(value, usual[key])
    return key not in KEYS or KEYS[key].form.admits(tuple(value) if isinstance(value, list) else value)


def _is_alike(value: Any, usual: Any) -> bool:
    """Whether a value is of the kind of a default, as far as that says a kind."""
    types, _ = _KINDS.get(type(usual), ((object,), ""))
    return type(value) in types or types == (object,)


def _text(value: Any) -> str:
    """A value as the file writes it."""
    return json.dumps(value, default=str)


def _said(error: SourceError) -> str:
    """An error within another's text."""
    return f"{error.what} ({error.place})" if error.place else error.what
