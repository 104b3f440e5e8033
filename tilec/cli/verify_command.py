"""`tilec verify`: is every variant of a library right."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.output import print_json, print_table
from tilec.errors import UnsupportedError

if TYPE_CHECKING:
    from tilec.verify import Outcome


@click.command("verify")
@click.argument("library", type=click.Path(path_type=Path))
@click.option("--manifest", type=click.Path(path_type=Path), help="Use the references and inputs it names.")
@click.option(
    "--kernel", "kernels", multiple=True, metavar="GLOB", help="Verify these kernels only; repeatable."
)
@click.option("--device", default="cpu", show_default=True, help="Where to run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random arguments.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    library: Path, manifest: Path | None, kernels: tuple[str, ...], device: str, seed: int, as_json: bool
) -> int:
    """Check every variant of LIBRARY (a .so or a build folder) at the edges of its guards.

    The oracle is the reference that --manifest names; without it, the interpreter runs the tile IR that the
    library carries. Exit code 1: a variant is wrong.
    """
    from tilec.manifest import load_manifest
    from tilec.verify import verify_library

    if device != "cpu":
        raise UnsupportedError(f'device "{device}" cannot be verified', remedy="use --device cpu")
    plan = load_manifest(manifest) if manifest is not None else None
    outcomes = verify_library(library, plan=plan, kernels=kernels, seed=seed, progress=_progress)
    if as_json:
        print_json([asdict(outcome) for outcome in outcomes])
    else:
        print_table(
            ["kernel", "id", "target", "guards", "oracle", "shapes", "error", "result"], map(_row, outcomes)
        )
    wrong = [outcome for outcome in outcomes if outcome.problem]
    for outcome in wrong:
        click.echo(
            f"{outcome.kernel}, variant {outcome.variant} on {outcome.target}: {outcome.problem}", err=True
        )
    skipped = sum(bool(outcome.skipped) for outcome in outcomes)
    click.echo(f"{len(outcomes)} variants: {len(wrong)} wrong, {skipped} skipped", err=True)
    return 1 if wrong else 0


def _progress(outcome: Outcome) -> None:
    """One line per variant while a person waits."""
    if sys.stderr.isatty():
        click.echo(f"{outcome.kernel} {outcome.variant} {outcome.target}", err=True)


def _row(outcome: Outcome) -> list[object]:
    result = "WRONG" if outcome.problem else f"skipped: {outcome.skipped}" if outcome.skipped else "ok"
    return [
        outcome.kernel,
        outcome.variant,
        outcome.target,
        outcome.guards or "-",
        outcome.oracle,
        outcome.shapes,
        f"{outcome.error:.1e}",
        result,
    ]
