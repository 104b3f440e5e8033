"""`tilec cache`: what the compile cache holds, and clearing it."""

from __future__ import annotations

import click

from tilec.cache import Store
from tilec.cli.printing.output import print_json, size_text
from tilec.settings import read_settings


@click.group("cache", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Show or clear the compile cache."""
    if context.invoked_subcommand is None:
        context.invoke(info, as_json=False)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(as_json: bool) -> None:
    """Show where the cache is and what it holds."""
    held = Store(read_settings().cache_dir).info()
    if as_json:
        fields = {"path": str(held.path), "entries": held.entries, "bytes": held.size, "limit": held.limit}
        print_json(fields)
        return
    limit = f"at most {size_text(held.limit)}" if held.limit else "no limit"
    click.echo(f"{held.path}: {held.entries} entries, {size_text(held.size)} ({limit}: TILEC_CACHE_LIMIT)")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def clear(as_json: bool) -> None:
    """Remove all entries."""
    held = Store(read_settings().cache_dir).clear()
    if as_json:
        print_json({"path": str(held.path), "entries": held.entries, "bytes": held.size})
        return
    click.echo(f"removed {held.entries} entries, {size_text(held.size)}, from {held.path}")
