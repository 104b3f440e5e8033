"""From a result to the entry of the tuned file."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass

from tilec.manifest.tuned import TunedEntry
from tilec.tune.contents import kernel_facts, whole_dims
from tilec.tune.limits import limits_of
from tilec.tune.planning import tensor_bytes
from tilec.tune.results import OK, Result


@dataclass(frozen=True)
class Rate:
    """What a config makes of a device, over all points as often as they are called. One of ``tflops`` (1e12
    operations of products per second) and ``gbps`` (1e9 bytes of tensors per second) is given, the one that
    limits; ``share`` is that of the roofline, which for a CPU is a guess: its clock is not known."""

    tflops: float | None
    gbps: float | None
    share: float
    intensity: float


def rate_of(result: Result, number: int, threads: int = 0) -> Rate | None:
    """The rate of a config; None where it failed."""
    points = _microseconds(result, number)
    if points is None:
        return None
    planned, target = result.planned, result.problem.variant.target
    kernel, variant, examined = kernel_facts(planned)
    limits = limits_of(target, result.device, threads)
    flops = moved = least = taken = 0.0
    for point, microseconds in zip(result.problem.points, points, strict=True):
        dims = whole_dims(kernel, variant, point)
        work, size = planned.useful_flops(point) or 0.0, tensor_bytes(examined.signature.params, dims)
        flops, moved = flops + point.weight * work, moved + point.weight * size
        least += point.weight * limits.least_seconds(work, size, planned.dtype)
        taken += point.weight * microseconds * 1e-6
    by_products = flops / limits.peak(planned.dtype) > moved / limits.bandwidth
    return Rate(
        flops / taken * 1e-12 if by_products else None,
        None if by_products else moved / taken * 1e-9,
        least / taken,
        flops / max(moved, 1.0),
    )


def _microseconds(result: Result, number: int) -> tuple[float, ...] | None:
    if number in result.finals:
        return result.finals[number].points
    row = next((row for row in result.rows if row.number == number and row.outcome == OK), None)
    return None if row is None else row.points


def entry_of(result: Result, threads: int = 0, date: str | None = None) -> TunedEntry | None:
    """What the tuned file remembers of a result; None where no config works."""
    if result.winner is None:
        return None
    problem, rate, default = result.problem, rate_of(result, result.winner, threads), result.score(0)
    final = result.finals.get(result.winner)
    return TunedEntry(
        kernel=problem.variant.kernel,
        target=problem.variant.target.name,
        dims=dict(problem.variant.dims),
        config=dict(problem.configs[result.winner]),
        latency_us=_rounded(result.score(result.winner)),
        noise=None if final is None else _rounded(final.noise),
        tflops=_rounded(rate.tflops) if rate and rate.tflops else None,
        gbps=_rounded(rate.gbps) if rate and rate.gbps else None,
        share=_rounded(rate.share) if rate and not problem.variant.target.is_cpu else None,
        default_us=_rounded(default) if math.isfinite(default) else None,
        at=tuple(point.text for point in problem.points),
        trials=len(result.rows),
        device=device_text(result, threads),
        driver=result.device.get("driver"),
        compiler=result.compiler or _tvm(),
        source_sha256=problem.source_sha256,
        date=date or datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    )


def device_text(result: Result, threads: int) -> str:
    """The device's name; of a CPU with its threads."""
    name = str(result.device["name"])
    if "cores" not in result.device:
        return name
    count = threads or result.device["cores"]
    return f"{name}, {count} thread{'s' if count != 1 else ''}"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _tvm() -> str:
    import importlib.metadata

    return f"tvm {importlib.metadata.version('apache-tvm')}"
