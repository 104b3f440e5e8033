"""Writing `<stem>.tuned.toml`: entries sorted, the same text from the same entries, comments kept.

A block is one `[[tuned]]` table with the comment lines right above it. Values that did not change stay as
they are written.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import InlineTable, Null

from tilec.cache import write_atomically
from tilec.errors import Place, TuneError
from tilec.manifest.tuned import TunedEntry
from tilec.portable.dims import dims_text

_HEAD = "# Written by `tilec tune`; commit it. Comments are kept.\nedition = 1\n"
_TABLE = re.compile(r"^\s*\[\[\s*tuned\s*\]\]")
_KEYS = tuple(TunedEntry.model_fields)
Key = tuple[str, str, str]


def key_of(entry: TunedEntry) -> Key:
    """What an entry belongs to."""
    return entry.kernel, entry.target, dims_text(dict(sorted(entry.dims.items())))


def write_entries(path: Path, entries: Iterable[TunedEntry]) -> None:
    """Puts entries into the file, in place of those of the same kernel, target and guards.

    Raises TuneError where the file cannot be written; then the old one is still there."""
    text = path.read_text(encoding="utf-8") if path.exists() else _HEAD
    try:
        write_atomically(path, updated(text, entries).encode(), 0o644)
    except OSError as error:
        raise TuneError(
            f"{path} cannot be written",
            place=Place(str(path)),
            why=error.strerror or str(error),
            remedy="make room, and run the same command again: what was measured is in the journal",
        ) from error


def updated(text: str, entries: Iterable[TunedEntry]) -> str:
    """The text of a tuned file with some entries replaced."""
    head, blocks = _split(text)
    by_key = {_block_key(block): block for block in blocks}
    for entry in entries:
        by_key[key_of(entry)] = _block(by_key.get(key_of(entry), "[[tuned]]\n"), entry)
    parts = [head.rstrip("\n") + "\n", *(by_key[key].strip("\n") + "\n" for key in sorted(by_key))]
    return "\n".join(parts)


def _split(text: str) -> tuple[str, list[str]]:
    """What stands before the first table, and the tables with the comments above them."""
    lines = text.splitlines(keepends=True)
    starts = [_with_comments(lines, at) for at, line in enumerate(lines) if _TABLE.match(line)]
    cuts = [*starts, len(lines)]
    blocks = ["".join(lines[start:end]) for start, end in itertools.pairwise(cuts)]
    return "".join(lines[: cuts[0]]), blocks


def _with_comments(lines: list[str], at: int) -> int:
    while at > 0 and lines[at - 1].lstrip().startswith("#"):
        at -= 1
    return at


def _block_key(block: str) -> Key:
    table: Any = tomlkit.parse(block)["tuned"]
    entry = table[0].unwrap()
    return key_of(TunedEntry.model_validate(entry))


def _block(block: str, entry: TunedEntry) -> str:
    """A block with the values of an entry, its keys in the order of the model."""
    document = tomlkit.parse(block)
    tables: Any = document["tuned"]
    old, values = tables[0], _values(entry)
    for key in [key for key in old if key not in values]:
        del old[key]
    for key, value in values.items():
        if key not in old or old[key].unwrap() != value:
            _set(old, key, value)
    tables[0] = _in_order(old)
    return tomlkit.dumps(document)


def _in_order(table: Any) -> Any:
    """The same table, its keys in order, each with the comment lines above it."""
    groups: list[list[Any]] = [[]]
    for key, item in table.value.body:
        if isinstance(item, Null):  # what is left of a key that was removed
            continue
        groups[-1].append((key, item))
        if key is not None:
            groups.append([])
    *named, rest = groups
    named.sort(key=lambda group: _KEYS.index(group[-1][0].key))
    made = tomlkit.table()
    for key, item in (pair for group in (*named, rest) for pair in group):
        if key is None:
            made.add(item)
        else:
            made.append(key, item)
    return made


def _set(table: Any, key: str, value: Any) -> None:
    """Changes a value and keeps the comment behind it."""
    item = _inline(value) if isinstance(value, dict) else tomlkit.item(value)
    if key in table:
        old = table[key]
        item.trivia.comment_ws, item.trivia.comment = old.trivia.comment_ws, old.trivia.comment
    table[key] = item


def _inline(value: Mapping[str, Any]) -> InlineTable:
    table = tomlkit.inline_table()
    for key, one in value.items():
        table[key] = one
    return table


def _values(entry: TunedEntry) -> dict[str, Any]:
    """The keys of an entry in the order of the model, without those that say nothing."""
    found: dict[str, Any] = {}
    for key in _KEYS:
        value = getattr(entry, key)
        if value is None or value == ():
            continue
        if key == "dims":
            value = {name: guard.eq if guard.eq is not None else str(guard) for name, guard in value.items()}
        elif isinstance(value, float):
            value = float(f"{value:.4g}")
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, Mapping):
            value = {name: _plain(one) for name, one in value.items()}
        found[key] = value
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
