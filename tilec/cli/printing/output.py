"""What commands print: tables, JSON, progress. Rich on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click


def print_json(value: object) -> None:
    """One JSON document on stdout, keys in the order given."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout: ruled on a terminal, aligned columns in a pipe."""
    texts = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_ruled(headers, texts)
        return
    widths = [max(map(len, column)) for column in zip(headers, *texts, strict=True)]
    for line in [headers, *texts]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_ruled(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for header in headers:
        table.add_column(header)
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def write_file(file: Path, text: str) -> None:
    """Writes a file that a caller named. Raises InputError where it cannot be written."""
    from tilec.errors import InputError, Place

    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        remedy = "name a file in a folder that is there and can be written"
        raise InputError(
            "the file cannot be written", place=Place(str(file)), why=why, remedy=remedy
        ) from error


def print_warning(text: str) -> None:
    """One warning on stderr."""
    click.echo(f"warning: {text}", err=True)


def size_text(count: int) -> str:
    """Bytes for people: 512 B, 12.3 KB, 4.5 MB."""
    if count < 1000:
        return f"{count} B"
    for unit in ("KB", "MB"):
        count_in_unit = count / {"KB": 1e3, "MB": 1e6}[unit]
        if count_in_unit < 1000:
            return f"{count_in_unit:.1f} {unit}"
    return f"{count / 1e9:.1f} GB"
