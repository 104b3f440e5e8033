"""`tilec build`: progress while it compiles, then one summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.idle_overrides import print_idle_overrides
from tilec.cli.printing.output import print_json, print_table, print_warning, size_text
from tilec.cli.printing.progress import shown_progress
from tilec.cli.printing.roads import losses_json, print_losses
from tilec.spelling import counted

if TYPE_CHECKING:
    from tilec.build import BuildResult


@click.command("build")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder. [default: dist/<name>]"
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="T",
    help="Build for this target only, listed or not; repeatable.",
)
@click.option(
    "--kernel", "kernels", multiple=True, metavar="GLOB", help="Build these kernels only; repeatable."
)
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Processes. [default: TILEC_JOBS, else one per core]"
)
@click.option("--static", is_flag=True, help="Also write a static library.")
@click.option("--wheel", is_flag=True, help="Also write a Python wheel.")
@click.option("--hub", is_flag=True, help="Also write a folder for the kernel hub of Hugging Face.")
@click.option("--torch", is_flag=True, help="Also write a library of operators for torch without Python.")
@click.option("--onnxruntime", is_flag=True, help="Also write a library of operators for ONNX Runtime.")
@click.option(
    "--emit-source",
    "sources",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also write the sources of every variant and of the host there.",
)
@click.option("--strict", is_flag=True, help="Exit 1 where a warning says that a kernel is hardly meant so.")
@click.option("-v", "--verbose", is_flag=True, help="Name the overrides for none of the manifest's targets.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    manifest: Path,
    out: Path | None,
    targets: tuple[str, ...],
    kernels: tuple[str, ...],
    jobs: int | None,
    static: bool,
    wheel: bool,
    hub: bool,
    torch: bool,
    onnxruntime: bool,
    sources: Path | None,
    strict: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Build the library that MANIFEST describes."""
    from tilec.build import build
    from tilec.build.answers.losses import lost
    from tilec.build.written.beside import Asked
    from tilec.codegen.toolchain import zig_is_new_here

    if zig_is_new_here():
        click.echo("first build on this machine: zig fills its own cache once, which takes seconds", err=True)
    with shown_progress() as progress:
        result = build(
            manifest,
            out,
            targets=targets,
            kernels=kernels,
            jobs=jobs,
            static=static,
            asked=Asked(wheel, hub, torch, onnxruntime, sources),
            strict=strict,
            progress=progress,
        )
    for warning in (*result.warnings, *map(str, result.remarks)):
        print_warning(warning)
    found = lost(result.spec)
    if as_json:
        print_json({**_as_json(result), "losses": losses_json(found)})
        return
    print_losses(found, str(manifest))
    _print_summary(result)
    print_idle_overrides(result.plan, verbose)


def _print_summary(result: BuildResult) -> None:
    rows = [
        [
            kernel.name,
            ", ".join(dict.fromkeys(variant.target for variant in kernel.variants)),
            len(kernel.variants),
            size_text(sum(len(variant.image.code) for variant in kernel.variants)),
        ]
        for kernel in result.spec.kernels
    ]
    print_table(["kernel", "targets", "variants", "code"], rows)
    state = "unchanged" if result.package_reused else "written"
    *others, library = [each.library for each in result.reports]
    for other in others:
        click.echo(f"{other}: {size_text(other.stat().st_size)}, {state}")
    click.echo(
        f"{library}: {size_text(library.stat().st_size)}, {state}; "
        f"{counted(result.compiled, 'variant')} compiled, {result.reused} reused, {result.seconds:.1f} s"
    )
    if result.left_out:
        left = counted(result.left_out, "variant")
        click.echo(f"{left} left out: their calls get the same code from others (`tilec inspect` lists them)")
    if result.beside.sources:
        click.echo(f"{result.beside.sources[0].parent}: {counted(len(result.beside.sources), 'source file')}")
    for wheel in result.beside.wheels:
        click.echo(f"{wheel}: {size_text(wheel.stat().st_size)}")
    if result.beside.hub is not None:
        click.echo(f"{result.beside.hub}: for the kernel hub")
    for made in result.beside.torch:
        click.echo(f"{made}: for torch")
    for made in result.beside.onnxruntime:
        click.echo(f"{made}: for ONNX Runtime")


def _as_json(result: BuildResult) -> dict[str, object]:
    return {
        "name": result.plan.name,
        "library": str(result.report.library),
        "libraries": {
            each.host.triple: str(made.library)
            for each, made in zip(result.specs, result.reports, strict=True)
        },
        "wheel": str(result.beside.wheels[0]) if result.beside.wheels else None,
        "wheels": list(map(str, result.beside.wheels)),
        "hub": str(result.beside.hub) if result.beside.hub else None,
        "torch": list(map(str, result.beside.torch)),
        "onnxruntime": list(map(str, result.beside.onnxruntime)),
        "sources": [str(path) for path in result.beside.sources],
        "bytes": result.report.library.stat().st_size,
        "build_id": result.report.build_id,
        "compiled": result.compiled,
        "reused": result.reused,
        "left_out": result.left_out,
        "package_reused": result.package_reused,
        "seconds": round(result.seconds, 3),
        "warnings": [*result.warnings, *map(str, result.remarks)],
        "idle_overrides": list(result.plan.idle_overrides),
        "kernels": {kernel.name: len(kernel.variants) for kernel in result.spec.kernels},
    }
