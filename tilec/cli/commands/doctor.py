"""`tilec doctor`: what this machine can build and run, and the commands that fix what is missing."""

from __future__ import annotations

from itertools import groupby

import click

from tilec.cli.checkup import ABSENT, BUILD, MISSING, OK, RUN, Finding, findings, settings_in_use
from tilec.cli.printing.output import print_json
from tilec.cli.versions import versions
from tilec.spelling import counted

_MARKS = {OK: ("ok", "green"), ABSENT: ("--", "yellow"), MISSING: ("no", "red")}
_ENVIRONMENT = 3


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """Say what this machine can build and run, and what is missing.

    Each line that lacks something names the command that brings it. What says "no" keeps tilec from
    building or running anything here; the exit code is 3 then. What says "--" is needed for the named
    purpose alone."""
    found = list(findings())
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)
    return _ENVIRONMENT if _missing(found) else 0


def _missing(found: list[Finding]) -> list[Finding]:
    return [each for each in found if each.state == MISSING]


def _as_json(found: list[Finding]) -> dict[str, object]:
    sections = {each.section for each in _missing(found)}
    return {
        "versions": versions(),
        "settings": settings_in_use(),
        "can_build": BUILD not in sections,
        "can_run": RUN not in sections,
        "findings": [each.as_json() for each in found],
    }


def _print(found: list[Finding]) -> None:
    click.echo(", ".join(f"{name} {version}" for name, version in versions().items()))
    for name, value in settings_in_use().items():
        click.echo(f"{name}={value}")
    width = max(len(each.what) for each in found)
    for section, members in groupby(found, key=lambda each: each.section):
        click.echo(f"\n{section}")
        for each in members:
            _print_finding(each, width)
    missing = len(_missing(found))
    said = "nothing that is needed is missing" if not missing else f"{counted(missing, 'thing')} missing"
    click.echo(f"\n{said}")


def _print_finding(each: Finding, width: int) -> None:
    mark, colour = _MARKS[each.state]
    detail, *rest = each.detail.splitlines()
    click.echo(f"  {click.style(mark, fg=colour)}  {each.what.ljust(width)}  {detail}")
    for line in (*rest, *([f"what to do: {each.remedy}"] if each.remedy else [])):
        click.echo(f"{' ' * (width + 8)}{line}")
