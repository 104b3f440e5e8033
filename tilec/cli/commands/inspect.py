"""`tilec inspect`: what a library holds, without loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilec.cli.params import Dims
from tilec.cli.printing.output import print_json, print_table, size_text
from tilec.cli.printing.roads import print_roads, road_json
from tilec.errors import InputError, Place
from tilec.portable.dims import dims_text

if TYPE_CHECKING:
    from tilec.ir.roads import Road
    from tilec.package.dispatch.reasons import Reason
    from tilec.package.library.inspect import LibraryInfo


@click.command("inspect")
@click.argument("library", type=click.Path(path_type=Path))
@click.option("--kernel", "pattern", default="*", metavar="GLOB", help="Show these kernels only.")
@click.option("--asm", is_flag=True, help="Print the assembly of the variants shown.")
@click.option("--roads", is_flag=True, help="Print which instructions the statements of each variant take.")
@click.option("--shape", type=Dims(), help="Say of each variant why dispatch takes or rejects it.")
@click.option(
    "--target",
    "devices",
    multiple=True,
    metavar="TARGET",
    help="With --shape: on a machine of this target, such as sm_90a; repeatable. [default: this CPU]",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="With --shape: of a call on a CPU. [default: as the library's; with --target 1]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    library: Path,
    pattern: str,
    asm: bool,
    roads: bool,
    shape: Mapping[str, int] | None,
    devices: tuple[str, ...],
    threads: int | None,
    as_json: bool,
) -> None:
    """Show kernels, variants, guards, configs, sizes and provenance of LIBRARY (a .so or a build folder).

    With --shape, the kernels with these dims are shown as the library's explain tells of them: each variant
    in dispatch order with what becomes of it. Without --target, TILEC_CPU, TILEC_NUM_THREADS and
    TILEC_FORCE_VARIANT count as they do for a library.
    """
    from tilec.package.library.inspect import read_library

    if shape is None and (devices or threads):
        name = "--target" if devices else "--threads"
        raise click.UsageError(f"{name} says where a call would run; give its dims with --shape")
    if (shape is not None) + asm + roads > 1:
        raise click.UsageError("--shape, --asm and --roads ask for different things; give one of them")
    if asm and as_json:
        raise click.UsageError("--asm prints assembly, not JSON; leave one of them out")
    info = read_library(library)
    kernels = _matching(info, pattern)
    if shape is not None:
        _explain(info, kernels, shape, devices, threads, as_json)
        return
    if asm:
        _print_assembly(info, kernels)
        return
    if roads:
        _print_roads(info, kernels, as_json)
        return
    if as_json:
        print_json({**info.metadata, "arch": info.arch, "bytes": info.size, "kernels": kernels})
        return
    _print_library(info)
    for kernel in kernels:
        _print_kernel(kernel)


def _matching(info: LibraryInfo, pattern: str) -> list[dict[str, Any]]:
    from tilec.spelling import kernels_meant

    every = info.metadata["kernels"]
    meant = kernels_meant([pattern], (kernel["name"] for kernel in every), info.path)
    return [kernel for kernel in every if kernel["name"] in meant]


def _explain(
    info: LibraryInfo,
    kernels: list[dict[str, Any]],
    dims: Mapping[str, int],
    devices: tuple[str, ...],
    threads: int | None,
    as_json: bool,
) -> None:
    """What dispatch makes of a call with ``dims``, per kernel and machine; on this one as the environment
    says."""
    from tilec.package.dispatch.reasons import reasons
    from tilec.settings import LibrarySettings, read_library_settings
    from tilec.targets import parse_target

    settings = LibrarySettings() if devices else read_library_settings()
    names = [parse_target(text).name for text in devices] or [_this_cpu(info, settings.cpu)]
    shape = dims_text(dims)
    workers = threads or settings.threads
    answers = [
        (
            kernel["name"],
            device,
            reasons(kernel, device, dims, _units(device, workers, bool(devices)), settings.forced),
        )
        for kernel in _with_dims(info, kernels, dims)
        for device in names
    ]
    if as_json:
        print_json([_answer_json(name, dims, device, found) for name, device, found in answers])
        return
    for name, device, found in answers:
        click.echo(f"{name} {shape} on {device}")
        for reason in found:
            click.echo(f"  {reason}")


def _units(device: str, threads: int | None, elsewhere: bool) -> int:
    """Who shares the work of a call on a machine of the target ``device``: multiprocessors of a GPU, workers
    of a CPU, by default those of this process, of one that is ``elsewhere`` one."""
    from tilec.backends.base import backend_of, limits_of
    from tilec.targets import parse_target

    target = parse_target(device)
    backend = backend_of(target)
    if not backend.on_host:
        return limits_of(target).units
    return threads or (limits_of(target).units if elsewhere else backend.units(0))


def _this_cpu(info: LibraryInfo, limit: str | None) -> str:
    """This machine's target, or the one in TILEC_CPU. Raises InputError where the library would refuse it."""
    from tilec.targets import CPU_LEVELS, native_target, parse_target, runs_here

    if limit is None:
        return native_target().name
    is_level = limit.partition("+")[0] in CPU_LEVELS
    if is_level and runs_here(parse_target(limit)):
        return limit
    why = "this CPU lacks what it needs" if is_level else "it names no CPU target of this architecture"
    raise InputError(
        f"every call would be refused: TILEC_CPU is {limit}",
        place=Place(str(info.path)),
        why=why,
        remedy=f"unset it, or set it to a target that runs here: {native_target().name} or less",
    )


def _with_dims(
    info: LibraryInfo, kernels: list[dict[str, Any]], dims: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The kernels whose dims are those given. Raises InputError when there are none or a dim is too large."""
    from tilec.ir.guards import largest_dim
    from tilec.package.library.inspect import no_such_dims

    chosen = [kernel for kernel in kernels if {dim["name"] for dim in kernel["dims"]} == set(dims)]
    if not chosen:
        named = {kernel["name"]: [dim["name"] for dim in kernel["dims"]] for kernel in kernels}
        raise no_such_dims(info.path, dims, named)
    for name, bits in {(dim["name"], dim["bits"]) for kernel in chosen for dim in kernel["dims"]}:
        limit = largest_dim(bits)
        if dims[name] > limit:
            text = f"{name} = {dims[name]} is out of range, it must be 0 to {limit}"
            raise InputError(text, place=Place(str(info.path)))
    return chosen


def _answer_json(
    name: str, dims: Mapping[str, int], device: str, found: tuple[Reason, ...]
) -> dict[str, object]:
    variants = [{"id": each.id, "target": each.target, "reason": each.text} for each in found]
    return {"kernel": name, "dims": dict(dims), "target": device, "variants": variants}


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
    if any(map(_products, kernel["variants"])):
        columns.append("products by")
        rows = [[*row, _products(each) or "-"] for row, each in zip(rows, kernel["variants"], strict=True)]
    if any("compiler" in variant["image"] for variant in kernel["variants"]):
        columns.append("on the GPU")
        rows = [[*row, _gpu_text(variant)] for row, variant in zip(rows, kernel["variants"], strict=True)]
    print_table(columns, rows)
    for target, guards in _left_out(kernel).items():
        click.echo(f"  left out, as others run the same code: {target} {', '.join(guards)}")


def _left_out(kernel: dict[str, Any]) -> dict[str, list[str]]:
    """By target, the guards of variants that the build did without."""
    found: dict[str, list[str]] = {}
    for each in kernel.get("left_out", ()):
        found.setdefault(each["target"], []).append(_guards_text(each))
    return {target: list(dict.fromkeys(guards)) for target, guards in found.items()}


def _guards_text(variant: dict[str, Any]) -> str:
    return " ".join(f"{name}={guard['text']}" for name, guard in variant["guards"].items()) or "-"


def _parameter(param: dict[str, Any]) -> str:
    shape = f"[{', '.join(param['extents'])}]" if param["kind"] == "tensor" else ""
    return f"{param['name']}: {param['access']} {param['dtype']}{shape}"


def _variant_row(variant: dict[str, Any]) -> list[object]:
    config = " ".join(f"{key}={json.dumps(value)}" for key, value in variant["config"].items())
    scratch = max((launch["scratch_bytes"] for launch in variant["launches"]), default=0)
    return [
        variant["id"],
        variant["target"],
        _guards_text(variant),
        f"{config} ({variant['config_source']})" if config else "-",
        size_text(variant["image"]["bytes"]),
        size_text(scratch),
        variant["source_sha256"][:12],
    ]


def _products(variant: dict[str, Any]) -> str:
    """The instructions that multiply tiles, each once; nothing where there are none."""
    named = (name for launch in variant["launches"] for name in launch.get("products", ()))
    return " ".join(dict.fromkeys(named))


def _gpu_text(variant: dict[str, Any]) -> str:
    """Registers, shared memory and spills of each launch, and what the image needs."""
    image = variant["image"]
    if "compiler" not in image:
        return "-"
    launches = "; ".join(_launch_text(launch["gpu"]) for launch in variant["launches"])
    driver = f"driver {image['min_driver']}+, " if "min_driver" in image else ""
    return f"{launches}; {driver}{image['compiler']}"


def _launch_text(gpu: dict[str, Any]) -> str:
    shared = size_text(gpu["dynamic_shared"] + (gpu["static_shared"] or 0))
    if gpu["registers"] is None:
        return f"{shared} shared, registers as the driver finds"
    spills = f", {gpu['spills']} bytes spilled" if gpu["spills"] else ""
    waves = f", waves of {gpu['lanes']}" if "lanes" in gpu else ""
    return f"{gpu['registers']} registers{waves}, {shared} shared{spills}"


def _print_roads(info: LibraryInfo, kernels: list[dict[str, Any]], as_json: bool) -> None:
    """Variants of a kernel and target with the same roads together."""
    roads = info.roads()
    found: dict[tuple[str, str, tuple[Any, ...]], list[int]] = {}
    for kernel in kernels:
        for variant in kernel["variants"]:
            launches = tuple(roads[variant["id"]]) if roads else ()
            found.setdefault((kernel["name"], variant["target"], launches), []).append(variant["id"])
    if as_json:
        print_json(
            [_roads_json(name, target, launches, ids) for (name, target, launches), ids in found.items()]
        )
        return
    for (name, target, launches), ids in found.items():
        click.echo(f"\n{name} on {target}, variants {' '.join(map(str, ids))}")
        for launch in launches:
            print_roads(launch)


def _roads_json(name: str, target: str, launches: tuple[tuple[Road, ...], ...], ids: list[int]) -> object:
    listed = [[road_json(road) for road in launch] for launch in launches]
    return {"kernel": name, "target": target, "variants": ids, "launches": listed}


def _print_assembly(info: LibraryInfo, kernels: list[dict[str, Any]]) -> None:
    from tilec.build.written.disassembly import assembly_of

    texts = info.ir_texts()
    for kernel in kernels:
        for variant in kernel["variants"]:
            click.echo(f"# {kernel['name']}, variant {variant['id']} on {variant['target']}")
            click.echo(assembly_of(variant, texts[variant["id"]]).rstrip("\n"))
