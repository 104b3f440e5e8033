"""From a result to the entry of the tuned file."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass

from tilec.backends.base import backend_of, limits_of
from tilec.manifest.tuned import TunedEntry
from tilec.targets import parse_target
from tilec.tune.outcome.results import Result


@dataclass(frozen=True)
class Rate:
    """What a config makes of a device, over all points as often as they are called. One of ``tflops`` (1e12
    operations of products per second) and ``gbps`` (1e9 bytes of tensors per second) is given, the one that
    limits. ``share``: of the roofline, which for a CPU is a guess, as its clock is not known."""

    tflops: float | None
    gbps: float | None
    share: float


def rate_of(result: Result, number: int) -> Rate | None:
    """The rate of a config; None where it failed, or where nobody knows what a call does."""
    points = result.points(number)
    if not points or not any(point.bytes for point in result.about.points):
        return None
    limits = limits_of(parse_target(result.about.target), result.device, result.threads)
    flops = moved = least = taken = 0.0
    for point, microseconds in zip(result.about.points, points, strict=True):
        flops, moved = flops + point.weight * point.flops, moved + point.weight * point.bytes
        least += point.weight * limits.least_seconds(point.flops, point.bytes, point.dtype)
        taken += point.weight * microseconds * 1e-6
    dtype = result.about.points[0].dtype
    by_products = flops / limits.peak(dtype) > moved / limits.bandwidth
    return Rate(
        flops / taken * 1e-12 if by_products else None,
        None if by_products else moved / taken * 1e-9,
        least / taken,
    )


def entry_of(result: Result) -> TunedEntry | None:
    """What the tuned file remembers of a result; None where no config works."""
    if result.winner is None:
        return None
    known, rate, default = result.about, rate_of(result, result.winner), result.score(0)
    final = result.finals.get(result.winner)
    is_share_known = backend_of(parse_target(known.target)).known_rates
    return TunedEntry.model_validate(
        {
            "kernel": known.kernel,
            "target": known.target,
            "dims": dict(known.dims),
            "config": dict(known.configs[result.winner]),
            "latency_us": _rounded(result.score(result.winner)),
            "noise": None if final is None else _rounded(final.noise),
            "tflops": _rounded(rate.tflops) if rate and rate.tflops else None,
            "gbps": _rounded(rate.gbps) if rate and rate.gbps else None,
            "share": _rounded(rate.share) if rate and is_share_known else None,
            "default_us": _rounded(default) if math.isfinite(default) else None,
            "at": tuple(point.text for point in known.points),
            "trials": len(result.rows),
            "device": device_text(result),
            "driver": result.device.get("driver"),
            "compiler": known.compiler or None,
            "source_sha256": known.source_sha256,
            "date": result.date or datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        }
    )


def device_text(result: Result) -> str:
    """The device's name; of a CPU with its threads."""
    name = str(result.device["name"])
    if "cores" not in result.device:
        return name
    count = result.threads or result.device["cores"]
    return f"{name}, {count} thread{'s' if count != 1 else ''}"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
