"""`tilec explain`: what each stage made of a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.output import counted, print_json, print_warning
from tilec.cli.roads import print_roads, road_json
from tilec.errors import InputError, Place

if TYPE_CHECKING:
    from tilec.lowering.lowered import LoweredLaunch
    from tilec.manifest import Variant


@click.command("explain")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.argument("kernel")
@click.option("--target", help="One of the manifest's targets. [default: the first of the kernel]")
@click.option(
    "--variant", "number", type=int, default=0, show_default=True, help="Which variant of that target."
)
@click.option("--stage", help="tile, a pass, tir, source, llvm or asm. [default: the roads of statements]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    manifest: Path, kernel: str, target: str | None, number: int, stage: str | None, as_json: bool
) -> None:
    """Show what a stage made of KERNEL of MANIFEST.

    Without --stage: for each launch which instructions its statements take, by source line, and for each
    statement that misses faster ones the condition that it does not meet and what to change.
    """
    from tilec.build.stages import lowered_launches, stage_names, stage_text

    variant = _choose(manifest, kernel, target, number)
    if stage is not None:
        text = stage_text(variant, stage)
        if as_json:
            print_json({"variant": variant.title, "stage": stage, "text": text})
            return
        click.echo(text.rstrip("\n"))
        return
    names, (launches, remarks) = stage_names(variant.target), lowered_launches(variant)
    for remark in remarks:
        print_warning(str(remark))
    if as_json:
        notes = [note for launch in launches for note in launch.notes]
        roads = [[road_json(road) for road in launch.roads] for launch in launches]
        print_json({"variant": variant.title, "stages": list(names), "notes": notes, "launches": roads})
        return
    click.echo(f"{variant.title}\nstages: {' '.join(names)} (show one with --stage NAME)")
    for number, launch in enumerate(launches, 1):
        _print_launch(number, launch)


def _print_launch(number: int, launch: LoweredLaunch) -> None:
    click.echo(f"\nlaunch {number}")
    for note in launch.notes:
        click.echo(f"  {note}")
    print_roads(launch.roads)


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
