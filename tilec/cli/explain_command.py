"""`tilec explain`: what each stage made of a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.output import counted, print_json
from tilec.errors import InputError, Place

if TYPE_CHECKING:
    from tilec.manifest import Variant


@click.command("explain")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.argument("kernel")
@click.option("--target", help="One of the manifest's targets. [default: the first of the kernel]")
@click.option(
    "--variant", "number", type=int, default=0, show_default=True, help="Which variant of that target."
)
@click.option("--stage", help="tile, a pass, tir, source, llvm or asm. [default: list the stages and notes]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    manifest: Path, kernel: str, target: str | None, number: int, stage: str | None, as_json: bool
) -> None:
    """Show what a stage made of KERNEL of MANIFEST."""
    from tilec.build.stages import lowering_notes, stage_names, stage_text

    variant = _choose(manifest, kernel, target, number)
    if stage is not None:
        text = stage_text(variant, stage)
        if as_json:
            print_json({"variant": variant.title, "stage": stage, "text": text})
            return
        click.echo(text.rstrip("\n"))
        return
    names, notes = stage_names(variant.target), lowering_notes(variant)
    if as_json:
        print_json({"variant": variant.title, "stages": list(names), "notes": list(notes)})
        return
    click.echo(f"{variant.title}\nstages: {' '.join(names)}")
    for note in notes:
        click.echo(f"  {note}")
    click.echo("show one with --stage NAME")


def _choose(manifest: Path, kernel: str, target: str | None, number: int) -> Variant:
    """The variant that the options name."""
    from tilec.manifest import load_manifest

    plan = load_manifest(manifest, targets=[target] if target else [], kernels=[kernel])
    first = plan.kernels[0]
    chosen = target or first.variants[0].target.name
    variants = [variant for variant in first.variants if variant.target.name == chosen] or list(
        first.variants
    )
    if not 0 <= number < len(variants):
        raise InputError(
            f"{first.name} has {counted(len(variants), 'variant')} on {chosen}",
            place=Place(str(manifest), key="--variant"),
            remedy=f"give --variant 0 to {len(variants) - 1}; tilec check lists them",
        )
    return variants[number]
