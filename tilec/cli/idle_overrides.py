"""Overrides of a manifest that are for none of its targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tilec.spelling import counted

if TYPE_CHECKING:
    from tilec.manifest import Plan


def print_idle_overrides(plan: Plan, verbose: bool) -> None:
    """How many there are, on stdout, behind each of them with ``verbose``; nothing where there are none."""
    idle = plan.idle_overrides
    if not idle:
        return
    for line in idle if verbose else ():
        click.echo(line)
    verb, where = "is" if len(idle) == 1 else "are", "" if verbose else " (-v names them)"
    click.echo(f"{counted(len(idle), 'override')} {verb} for none of the manifest's targets{where}")
