"""What `tilec tune --schedules` writes and prints when everything is measured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.printing.output import print_table
from tilec.errors import TuneError

if TYPE_CHECKING:
    from tilec.manifest import Plan, Variant
    from tilec.tune import Result
    from tilec.tune.fit.fitted import Fitted

#: Schedules of a variant, and what each must gain in the mean.
_MOST, _GAIN = 8, 0.003


def write_schedules(manifest: Path, out: Path, plan: Plan, results: Sequence[Result]) -> None:
    """Fits costs to the results of sweeps, puts the lists into ``out``, and says how good they are and what
    the manifest is to say."""
    from tilec.tune.fit.fitted import fitted
    from tilec.tune.fit.schedule_file import write_lists

    known = {_key(variant.kernel, variant): variant for variant in plan.variants}
    found = [
        fitted(result, known[key], _MOST, _GAIN)
        for result in results
        if result.about.is_sweep and (key := _key_of(result)) in known
    ]
    if not found:
        raise TuneError("there are no results to make schedules of", remedy="measure with --schedules")
    names = _names(found)
    write_lists(out, {name: each.schedules for name, each in zip(names, found, strict=True)})
    _print(names, found)
    click.echo(f"\nin {manifest}, below its [[kernel]]:")
    for name, each in zip(names, found, strict=True):
        click.echo(f"\n{_override(each.variant, f'{os.path.relpath(out, manifest.parent)}:{name}')}")


def _key(kernel: str, variant: Variant) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    guards = sorted((name, str(guard)) for name, guard in variant.dims.items())
    return kernel, variant.target.name, tuple(guards)


def _key_of(result: Result) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    return result.about.kernel, result.about.target, tuple(sorted(result.about.dims.items()))


def _names(found: Sequence[Fitted]) -> list[str]:
    """A name for each list: the kernel's, with a number where it has several."""
    kernels = [each.variant.kernel for each in found]
    return [
        kernel if kernels.count(kernel) == 1 else f"{kernel}_{kernels[:at].count(kernel) + 1}"
        for at, kernel in enumerate(kernels)
    ]


def _print(names: Sequence[str], found: Sequence[Fitted]) -> None:
    headers = ["list", "for", "schedules", "fitted", "held out", "mean", "worst", "one config"]
    rows = [
        [
            name,
            each.variant.title,
            len(each.schedules),
            *(f"+{(each.told - 1) * 100:.1f}%", each.shapes),
            *(f"+{(factor - 1) * 100:.1f}%" for factor in (each.held, each.worst, each.single)),
        ]
        for name, each in zip(names, found, strict=True)
    ]
    print_table(headers, rows)
    click.echo("mean time over that of the best config of all at each shape")


def _override(variant: Variant, schedules: str) -> str:
    dims = ", ".join(f'{name} = "{guard}"' for name, guard in variant.dims.items() if not guard.is_dynamic)
    lines = ["[[kernel.override]]", f'targets = ["{variant.target.name}"]']
    return "\n".join([*lines, *([f"dims = {{ {dims} }}"] if dims else []), f'schedules = "{schedules}"'])
