"""`tilec inspect`: what a library holds, without loading it."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilec.cli.output import print_json, print_table, size_text
from tilec.errors import InputError, Place

if TYPE_CHECKING:
    from tilec.inspect import LibraryInfo


@click.command("inspect")
@click.argument("library", type=click.Path(path_type=Path))
@click.option("--kernel", "pattern", default="*", metavar="GLOB", help="Show these kernels only.")
@click.option("--asm", is_flag=True, help="Print the assembly of the variants shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(library: Path, pattern: str, asm: bool, as_json: bool) -> None:
    """Show kernels, variants, guards, configs, sizes and provenance of LIBRARY (a .so or a build folder)."""
    from tilec.inspect import read_library

    info = read_library(library)
    kernels = _matching(info, pattern)
    if asm:
        _print_assembly(info, kernels)
        return
    if as_json:
        print_json({**info.metadata, "arch": info.arch, "bytes": info.size, "kernels": kernels})
        return
    _print_library(info)
    for kernel in kernels:
        _print_kernel(kernel)


def _matching(info: LibraryInfo, pattern: str) -> list[dict[str, Any]]:
    from tilec.manifest.problems import suggestion

    every = info.metadata["kernels"]
    chosen = [kernel for kernel in every if fnmatchcase(kernel["name"], pattern)]
    if not chosen:
        names = [kernel["name"] for kernel in every]
        raise InputError(
            f'no kernel matches "{pattern}"', place=Place(str(info.path)), remedy=suggestion(pattern, names)
        )
    return chosen


def _print_library(info: LibraryInfo) -> None:
    data = info.metadata
    tools = ", ".join(f"{name} {version}" for name, version in data["tools"].items())
    click.echo(f"{info.path}: {data['name']} {data['version']}, {size_text(info.size)}")
    click.echo(f"  host {data['host']}, targets {' '.join(data['targets'])}")
    click.echo(f"  build {data['build_id']}, ABI {data['abi']}, by {tools}")


def _print_kernel(kernel: dict[str, Any]) -> None:
    arguments = ", ".join(_parameter(param) for param in kernel["params"])
    dims = ", ".join(dim["name"] for dim in kernel["dims"])
    click.echo(f"\n{kernel['name']}({arguments}; {dims})")
    if kernel["doc"]:
        click.echo(f"  {kernel['doc']}")
    rows = [_variant_row(variant) for variant in kernel["variants"]]
    columns = ["id", "target", "guards", "config", "code", "scratch", "source"]
    if any("compiler" in variant["image"] for variant in kernel["variants"]):
        columns.append("on the GPU")
        rows = [[*row, _gpu_text(variant)] for row, variant in zip(rows, kernel["variants"], strict=True)]
    print_table(columns, rows)


def _parameter(param: dict[str, Any]) -> str:
    shape = f"[{', '.join(param['extents'])}]" if param["kind"] == "tensor" else ""
    return f"{param['name']}: {param['access']} {param['dtype']}{shape}"


def _variant_row(variant: dict[str, Any]) -> list[object]:
    guards = " ".join(f"{name}={guard['text']}" for name, guard in variant["guards"].items())
    config = " ".join(f"{key}={json.dumps(value)}" for key, value in variant["config"].items())
    scratch = max((launch["scratch_bytes"] for launch in variant["launches"]), default=0)
    return [
        variant["id"],
        variant["target"],
        guards or "-",
        f"{config} ({variant['config_source']})" if config else "-",
        size_text(variant["image"]["bytes"]),
        size_text(scratch),
        variant["source_sha256"][:12],
    ]


def _gpu_text(variant: dict[str, Any]) -> str:
    """Registers, shared memory and spills of each launch, and what the image needs."""
    if "compiler" not in variant["image"]:
        return "-"
    launches = [_launch_text(launch["gpu"]) for launch in variant["launches"]]
    return f"{'; '.join(launches)}; driver {variant['image']['min_driver']}+, {variant['image']['compiler']}"


def _launch_text(gpu: dict[str, Any]) -> str:
    shared = size_text(gpu["dynamic_shared"] + (gpu["static_shared"] or 0))
    if gpu["registers"] is None:
        return f"{shared} shared, registers as the driver finds"
    spills = f", {gpu['spills']} bytes spilled" if gpu["spills"] else ""
    return f"{gpu['registers']} registers, {shared} shared{spills}"


def _print_assembly(info: LibraryInfo, kernels: list[dict[str, Any]]) -> None:
    from tilec.build.disassembly import assembly_of

    texts = info.ir_texts()
    for kernel in kernels:
        for variant in kernel["variants"]:
            click.echo(f"# {kernel['name']}, variant {variant['id']} on {variant['target']}")
            click.echo(assembly_of(variant, texts[variant["id"]]).rstrip("\n"))
