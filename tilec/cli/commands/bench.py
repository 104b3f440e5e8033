"""`tilec bench`: how long the kernels of a library take, beside what the machine can do."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.params import Device, Dims
from tilec.cli.printing.output import print_json, print_table
from tilec.portable.cores import usable_cores
from tilec.portable.dims import dims_text

if TYPE_CHECKING:
    from tilec.backends.ceilings import Ceilings
    from tilec.bench.run import Row
    from tilec.portable.timing import Timing


@click.command("bench")
@click.argument("library", type=click.Path(path_type=Path))
@click.option(
    "--kernel", "kernels", multiple=True, metavar="GLOB", help="Measure these kernels only; repeatable."
)
@click.option("--shape", "shapes", type=Dims(least=1), multiple=True, help="Measure these dims; repeatable.")
@click.option(
    "--shapes",
    "file",
    type=click.Path(path_type=Path),
    help="Measure the calls of a file, as check takes it.",
)
@click.option(
    "--device",
    type=Device(),
    default="cpu",
    show_default=True,
    help="Where to run: cpu, cuda, cuda:1, hip, metal.",
)
@click.option("--threads", type=click.IntRange(min=1), help="On the CPU. [default: one per core]")
@click.option("--manifest", type=click.Path(path_type=Path), help="Use the inputs and peers it names.")
@click.option(
    "--vs",
    "peers",
    type=click.Choice(("numpy", "torch")),
    multiple=True,
    help="Measure the manifest's reference in NumPy, or its peer in torch, too; repeatable.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.0),
    default=0.5,
    show_default=True,
    help="For each shape and contestant.",
)
@click.option(
    "--clock",
    type=click.Choice(("wall", "cpu")),
    default="wall",
    show_default=True,
    help="cpu: CPU time of one thread, for a machine with other work.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    library: Path,
    kernels: tuple[str, ...],
    shapes: tuple[Mapping[str, int], ...],
    file: Path | None,
    device: str,
    threads: int | None,
    manifest: Path | None,
    peers: tuple[str, ...],
    seconds: float,
    clock: str,
    as_json: bool,
) -> int:
    """Measure the kernels of LIBRARY (a .so or a build folder).

    Latency is that of warm calls in C, dispatch included, on inputs that are in no cache where memory allows
    it; on a GPU it is that of graph replay. The ceiling is what this machine does at most, measured once and
    kept in the cache folder: multiply-adds on registers, and copies. A call's share is the least time that
    its products and bytes take there over the time it took. Without --shape or --shapes, each kernel is
    measured at one typical shape for each choice of guards. NumPy and torch run on threads of their own: the
    number that --threads gives goes to torch. Exit code 1: a call failed,
    or nothing could be measured.
    """
    from tilec.bench.run import Request, bench_library
    from tilec.families import host_family

    if shapes and file is not None:
        raise click.UsageError("--shape and --shapes each say what to measure; give one of them")
    if clock == "cpu" and (threads != 1 or device != host_family().device or "numpy" in peers):
        raise click.UsageError("--clock cpu is for --threads 1 on the CPU; NumPy has threads of its own")
    if peers and manifest is None:
        raise click.UsageError("--vs measures what a manifest names; give it with --manifest")
    request = Request(
        kernels=kernels or ("*",),
        shapes=_shapes(shapes, file),
        manifest=manifest,
        device=device,
        threads=threads or usable_cores(),
        peers=tuple(dict.fromkeys(peers)),
        seconds=seconds,
        cpu_time=clock == "cpu",
    )
    rows = bench_library(library, request, _progress)
    if as_json:
        print_json(_json(rows))
    else:
        _print(rows, request.peers)
    return _report(rows)


def _shapes(
    shapes: Sequence[Mapping[str, int]], file: Path | None
) -> list[tuple[str, Mapping[str, int]]] | None:
    """Kernel globs with dims."""
    if file is not None:
        from tilec.manifest.shapes import parse_shapes

        return [(call.kernel, call.dims) for call in parse_shapes(file)]
    return [("*", dims) for dims in shapes] or None


def _progress(row: Row) -> None:
    """One line per shape while a person waits."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{row.kernel} {dims_text(row.dims) or '-'}", err=True, nl=False)


def _print(rows: Sequence[Row], peers: Sequence[str]) -> None:
    """The machine, then one row per shape; times in microseconds."""
    measured = [row for row in rows if row.timing is not None]
    ceilings = next((row.ceilings for row in measured if row.ceilings is not None), None)
    if measured:
        click.echo(
            "nothing measures what this device does at most: no shares"
            if ceilings is None
            else _ceilings_text(ceilings)
        )
    headers = ["kernel", "dims", "id", "target", "p50 us", "p99 us", "TFLOP/s", "GB/s", "share", "limit"]
    print_table([*headers, *(f"{name} us" for name in peers)], [_cells(row, peers) for row in measured])


def _ceilings_text(ceilings: Ceilings) -> str:
    rates = ", ".join(f"{dtype} {_tera(rate)}" for dtype, rate in ceilings.flops.items())
    return f"{ceilings.device}: {rates} TFLOP/s, copies {ceilings.bandwidth * 1e-9:.0f} GB/s"


def _cells(row: Row, peers: Sequence[str]) -> list[object]:
    assert row.timing is not None
    limit = row.limit
    return [
        row.kernel,
        dims_text(row.dims) or "-",
        row.variant,
        row.target,
        _micro(row.timing.median),
        _micro(row.timing.percentile(99)),
        "-" if row.flops is None else _tera(row.flops),
        "-" if row.bandwidth is None else f"{row.bandwidth * 1e-9:.1f}",
        "-" if row.share is None else f"{row.share:.0%}",
        "-" if limit is None else limit[0],
        *(_peer_text(row, name) for name in peers),
    ]


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.3g}" if seconds < 1e-4 else f"{seconds * 1e6:.1f}"


def _tera(rate: float) -> str:
    return f"{rate * 1e-12:.3g}"


def _peer_text(row: Row, name: str) -> str:
    """Its time, and how much longer than the kernel's it is."""
    found = row.peers.get(name)
    if found is None or isinstance(found, str) or row.timing is None:
        return "-"
    return f"{_micro(found.median)} ({found.median / row.timing.median:.2f}x)"


def _json(rows: Sequence[Row]) -> dict[str, object]:
    ceilings = next((row.ceilings for row in rows if row.ceilings is not None), None)
    device = None
    if ceilings is not None:
        device = {
            "device": ceilings.device,
            "flops": dict(ceilings.flops),
            "bytes_per_second": ceilings.bandwidth,
        }
    return {"ceilings": device, "rows": [_row_json(row) for row in rows]}


def _row_json(row: Row) -> dict[str, object]:
    base: dict[str, object] = {
        "kernel": row.kernel,
        "dims": dict(row.dims),
        "variant": row.variant,
        "target": row.target,
    }
    if row.timing is None or row.work is None:
        return {**base, "problem": row.problem}
    return {
        **base,
        "latency": _timing_json(row.timing),
        "flops": dict(row.work.flops),
        "flops_unknown": row.work.unknown or None,
        "bytes": row.work.bytes,
        "flops_per_second": row.flops,
        "bytes_per_second": row.bandwidth,
        "limit": row.limit[0] if row.limit else None,
        "share": row.share,
        "peers": {
            name: found if isinstance(found, str) else _timing_json(found)
            for name, found in row.peers.items()
        },
    }


def _timing_json(timing: Timing) -> dict[str, float]:
    """Seconds of one call."""
    return {
        "least": timing.least,
        "p50": timing.median,
        "p90": timing.percentile(90),
        "p99": timing.percentile(99),
        "most": timing.samples[-1],
        "samples": len(timing.samples),
        "calls_per_sample": timing.calls,
    }


def _report(rows: Sequence[Row]) -> int:
    """Says on stderr what could not be measured, and why; returns the exit code."""
    absent = {
        f"no {name} beside {row.kernel}: {found}": None
        for row in rows
        for name, found in row.peers.items()
        if isinstance(found, str)
    }
    for text in absent:
        click.echo(text, err=True)
    for row in rows:
        if row.problem:
            word = "failed" if row.failed else "skipped"
            click.echo(f"{word} {row.kernel} {dims_text(row.dims) or '-'}: {row.problem}", err=True)
        if row.work is not None and row.work.unknown:
            click.echo(f"{row.kernel} {dims_text(row.dims) or '-'}: {row.work.unknown}", err=True)
    failed = any(row.failed for row in rows) or not any(row.timing for row in rows)
    return 1 if failed else 0
