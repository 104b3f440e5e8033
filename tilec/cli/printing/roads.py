"""How commands print which instructions statements take, and what is lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from tilec.cli.printing.output import print_table

if TYPE_CHECKING:
    from tilec.build.answers.losses import Lost
    from tilec.ir.roads import Road


def print_roads(roads: Sequence[Road]) -> None:
    """A table of statements, then every loss with its reason and what to change."""
    from tilec.ir.roads import losses

    if not roads:
        click.echo("  no statement of it is left")
        return
    rows = [[road.place or "-", road.statement, road.instruction] for road in roads]
    print_table(["line", "statement", "road"], rows)
    for road in losses(roads):
        assert road.loss is not None
        click.echo(f"lost: {_head(road)}")
        click.echo(f"  why: {road.loss.condition}")
        click.echo(f"  what to do: {road.loss.remedy}")


def print_losses(found: Iterable[Lost], manifest: str) -> None:
    """One line for each kernel and target on stderr: its gravest loss, and where the others are."""
    for each in found:
        first, *others = each.roads
        line = f"{each.kernel} on {each.target}: {_head(first)}: {first.loss}"
        more = f"tilec explain {manifest} {each.kernel} --target {each.target}"
        rest = f" (and {len(others)} more: {more})" if others else ""
        click.echo(f"slower than it might be: {line}{rest}", err=True)


def road_json(road: Road) -> dict[str, object]:
    """All of a road."""
    loss = road.loss
    fields = {
        "file": road.file,
        "line": road.line,
        "statement": road.statement,
        "kind": road.kind,
        "instruction": road.instruction,
    }
    lost = None if loss is None else {"road": loss.road, "condition": loss.condition, "remedy": loss.remedy}
    return {**fields, "loss": lost}


def losses_json(found: Iterable[Lost]) -> list[dict[str, object]]:
    """Every loss of every kernel on every target."""
    return [
        {"kernel": each.kernel, "target": each.target, **road_json(road)}
        for each in found
        for road in each.roads
    ]


def _head(road: Road) -> str:
    said = f"{road.statement}: {road.instruction}"
    return f"{road.place}: {said}" if road.place else said
