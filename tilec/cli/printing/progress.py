"""How far long work has come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tilec.build import Progress

_PLAIN_INTERVAL = 2.0


@contextmanager
def shown_progress(*, plain: bool = True) -> Iterator[Progress]:
    """A bar on a terminal, elsewhere with ``plain`` a line now and then, else nothing; on stderr."""
    if not sys.stderr.isatty():
        yield _plain_progress() if plain else lambda done, total, title, reused: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int, title: str, reused: bool) -> None:
            bar.update(task, completed=done, total=total, description=title)

        yield show


def _plain_progress() -> Progress:
    """Compiled variants, at most one line every two seconds, and the last one."""
    shown = time.monotonic()

    def show(done: int, total: int, title: str, reused: bool) -> None:
        nonlocal shown
        due = time.monotonic() - shown >= _PLAIN_INTERVAL or done == total
        if reused or not due:
            return
        shown = time.monotonic()
        click.echo(f"{done}/{total} {title}", err=True)

    return show
