"""What `tilec check` found of a kernel, by all that it follows from: a check of what has not changed asks
neither TVM nor the kernel. Errors are not kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tilec.build.records import spec_text
from tilec.build.reuse.compiled import find_entry, keep_entry
from tilec.build.reuse.kept_remarks import places_of, read_remark, remark_fields
from tilec.cache import Store
from tilec.errors import Place, Remark
from tilec.manifest import Variant

_KIND = "checked"


def find_remarks(store: Store, variants: Sequence[Variant], *more: str) -> tuple[Remark, ...] | None:
    """The remarks on variants of one tile IR that no check refused, while nothing of them, of ``more``, of
    their kernel's files and of tilec has changed."""
    first, *others = variants
    data = find_entry(store, _KIND, first, *map(spec_text, others), *more)
    if data is None:
        return None
    places = _places(variants)
    return tuple(read_remark(fields, places, first.base) for fields in json.loads(data))


def keep_remarks(
    store: Store,
    variants: Sequence[Variant],
    files: Mapping[Path, str],
    remarks: Sequence[Remark],
    *more: str,
) -> None:
    """Stores them; ``files``: what the kernel was made from, with digests. A cache that cannot be written
    costs time later."""
    first, *others = variants
    places = _places(variants)
    text = json.dumps([remark_fields(remark, places, first.base) for remark in remarks])
    with suppress(OSError):
        keep_entry(store, _KIND, first, files, text.encode(), *map(spec_text, others), *more)


def _places(variants: Sequence[Variant]) -> dict[str, Place]:
    """Those of the first variant under their keys, those of others behind their numbers."""
    found = places_of(variants[0])
    for number, variant in enumerate(variants[1:], 1):
        found.update({f"{number} {key}": place for key, place in places_of(variant).items()})
    return found
