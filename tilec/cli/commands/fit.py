"""`tilec fit`: costs of schedules from times at many shapes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.printing.output import print_table
from tilec.errors import InputError, Place
from tilec.spelling import counted

if TYPE_CHECKING:
    from tilec.manifest import Variant
    from tilec.tune.fit.schedule_file import Part


class PartText(click.ParamType):  # type: ignore[type-arg]
    """``few:M=1..16:5``: a list of at most five schedules for M from 1 to 16."""

    name = "NAME:DIM=GUARD:MOST"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Part:
        """The part that is meant."""
        from tilec.manifest.guards import parse_guard
        from tilec.tune.fit.schedule_file import Part

        try:
            name, sizes, most = str(value).split(":")
            dim, guard = sizes.split("=", 1)
            parse_guard(guard)
            return Part(name, dim, guard, int(most))
        except ValueError:
            self.fail(f"{value!r} is no part; write few:M=1..16:5", param, ctx)


@click.command("fit")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.argument("times", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--kernel", required=True, help="The kernel whose schedules were timed.")
@click.option("--part", "parts", type=PartText(), multiple=True, required=True, help="A list; repeatable.")
@click.option("--write", "out", type=click.Path(path_type=Path), required=True, help="Where the lists go.")
@click.option(
    "--gain",
    type=click.FloatRange(min=0),
    default=0.003,
    show_default=True,
    help="A schedule must make the mean call so much faster.",
)
def command(
    manifest: Path, times: tuple[Path, ...], kernel: str, parts: tuple[Part, ...], out: Path, gain: float
) -> None:
    """Fit costs to the TIMES of a kernel's schedules and keep the useful ones.

    MANIFEST gives the kernel one variant a schedule; TIMES are JSON files with what each took at many shapes,
    which count together. A list goes into the file under its name, for `schedules = "file.toml:name"`.
    """
    from tilec.tune.fit.schedule_file import fit_parts, read_times, write_lists

    variants = _variants(manifest, kernel)
    measured = read_times(times, kernel, variants)
    fitted = fit_parts(parts, variants, measured, gain)
    write_lists(out, {each.part.name: each.schedules for each in fitted})
    rows = [
        [
            each.part.name,
            each.shapes,
            len(each.schedules),
            f"{(each.loss - 1) * 100:.1f}%",
            counted(each.untimed, "shape"),
        ]
        for each in fitted
    ]
    print_table(
        ["list", "shapes", "schedules", "slower than the best of all, mean", "choice not timed at"], rows
    )


def _variants(manifest: Path, kernel: str) -> tuple[Variant, ...]:
    from tilec.manifest import load_manifest

    (plan,) = load_manifest(manifest, kernels=[kernel]).kernels
    if len({(variant.target, *variant.dims.values()) for variant in plan.variants}) > 1:
        raise InputError(
            f"{kernel} has variants of several targets or guards",
            place=Place(str(manifest)),
            remedy="give it one target and one guard for each dim, so that every variant is a schedule",
        )
    return plan.variants
