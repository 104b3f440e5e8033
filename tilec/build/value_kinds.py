"""Values of a manifest that are of another kind than the defaults of the parameters that they are for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tilec.errors import ManifestError, SourceError
from tilec.manifest import Variant
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
