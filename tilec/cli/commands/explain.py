"""`tilec explain`: what each stage made of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.chosen_variant import schedule_lines, variant_named, variant_serving
from tilec.cli.params import Dims
from tilec.cli.printing.output import print_json, print_warning, write_file
from tilec.cli.printing.roads import print_roads, road_json

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
@click.option(
    "--shape", "dims", type=Dims(least=1), help="The variant that such a call takes, in place of --variant."
)
@click.option("--stage", help="tile, a pass, tir, source, llvm or asm. [default: the roads of statements]")
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a page: source beside tile IR, layouts, pipelines.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    manifest: Path,
    kernel: str,
    target: str | None,
    number: int,
    dims: Mapping[str, int] | None,
    stage: str | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Show what a stage made of KERNEL of MANIFEST.

    Without --stage: for each launch which instructions its statements take, by source line, and for each
    statement that misses faster ones the condition that it does not meet and what to change. Of schedules
    that the library chooses among it says what they cost, with --shape at that call.
    """
    import tilec.build.processes.lean_tvm  # noqa: F401  # in front of what imports TVM
    from tilec.build.elaborated.plans import load_plan
    from tilec.build.written.stages import lowered_launches, stage_names, stage_text

    plan = load_plan(manifest, targets=[target] if target else [], kernels=[kernel])
    if dims is None:
        variant = variant_named(plan, manifest, target, number)
    else:
        variant = variant_serving(plan, manifest, target, dims)
    if page is not None:
        _write_page(page, variant, schedule_lines(plan.kernels[0], variant, target, dims))
        return
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
    click.echo("\n".join([variant.title, *schedule_lines(plan.kernels[0], variant, target, dims)]))
    for number, launch in enumerate(launches, 1):
        _print_launch(number, launch)
    click.echo(f"\nstages: {' '.join(names)} (show one with --stage NAME)")


def _write_page(file: Path, variant: Variant, schedule: Sequence[str]) -> None:
    from tilec.cli.page import document

    write_file(file, document(variant, schedule))
    click.echo(f"{file}: {variant.title}")


def _print_launch(number: int, launch: LoweredLaunch) -> None:
    click.echo(f"\nlaunch {number}")
    for note in launch.notes:
        click.echo(f"  {note}")
    print_roads(launch.roads)
