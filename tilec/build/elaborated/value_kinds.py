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
from tilec.manifest.text.problems import toml_type

#: The name of a default's type -> those that values may have, and what they are called.
_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "any": ((object,), "any value"),
    "bool": ((bool,), "true or false"),
    "int": ((int,), "an integer"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a string"),
}


def kinds_of(usual: Mapping[str, Any]) -> dict[str, str]:
    """The kind of each parameter that has a default: the name of its type, `any` where that says none."""
    named = {key: type(value).__name__ for key, value in usual.items()}
    return {key: name if name in _KINDS else "any" for key, name in named.items()}


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
        kinds = kinds_of(usual)
        key = next((key for key, kind in kinds.items() if not _is_alike(given[key], kind)), None)
        if key is None or key not in variant.value_places:
            raise
        wanted = _KINDS[kinds[key]][1]
        raise ManifestError(
            f"{key} = {_text(given[key])} is {toml_type(given[key])}, where {variant.kernel} has {wanted}",
            place=variant.value_places[key],
            why=f"its default is {_text(usual[key])}, and with this value {_said(error)}",
            remedy=f"give {wanted}",
        ) from error


def remarks_on_space(variant: Variant, tune: Tune | None, kinds: Mapping[str, str]) -> Iterator[Remark]:
    """The values to try of a variant that are of another kind than the default of their parameter, by
    `kinds_of`, or of another form than their schedule key takes."""
    axes = {} if tune is None else tune.for_target(variant.target).axes
    for key, values in axes.items():
        wanted = _wanted(key, kinds)
        wrong = next((value for value in values if not _is_of(key, value, kinds)), None)
        if wrong is not None:
            what = f"{key} = {_text(wrong)} is among the values to try, where {variant.kernel} has {wanted}"
            yield Remark(what, variant.value_places.get(key, variant.place), f"give {wanted}")


def _wanted(key: str, kinds: Mapping[str, str]) -> str:
    """What values of a key are, in words; nothing where nobody says."""
    if key in kinds:
        return _KINDS[kinds[key]][1]
    return KEYS[key].form.said if key in KEYS else ""


def _is_of(key: str, value: Any, kinds: Mapping[str, str]) -> bool:
    """Whether a value is what `_wanted` says."""
    if key in kinds:
        return _is_alike(value, kinds[key])
    return key not in KEYS or KEYS[key].form.admits(tuple(value) if isinstance(value, list) else value)


def _is_alike(value: Any, kind: str) -> bool:
    """Whether a value is of a kind of defaults."""
    types, _ = _KINDS[kind]
    return type(value) in types or types == (object,)


def _text(value: Any) -> str:
    """A value as the file writes it."""
    return json.dumps(value, default=str)


def _said(error: SourceError) -> str:
    """An error within another's text."""
    return f"{error.what} ({error.place})" if error.place else error.what
