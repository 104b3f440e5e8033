"""`do_bench`: how long a function takes, on a GPU or on the CPU."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tilec.errors import SourceAssertionError, SourceValueError

_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
}
_BACKENDS = ("event", "cudagraph", "cupti")
_ESTIMATES = 5
#: A run that is that many times slower than the baseline need not be measured further.
_HOPELESS = 2.0


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    _n_warmup: int = 0,
    _n_repeat: int = 0,
    quantiles: Sequence[float] | None = None,
    fast_flush: bool = True,
    backend: str = "event",
    return_mode: str = "mean",
    device: Any = None,
    cache_size: int = 256,
    early_stop_baseline: float | None = None,
) -> float | list[float]:
    """Milliseconds of a call of ``fn``: ``warmup`` and ``rep`` are milliseconds to spend, the counts
    ``_n_warmup`` and ``_n_repeat`` win over them. ``cache_size`` MB are overwritten between runs, so that
    caches are cold. ``quantiles`` give a list (a number for one of them), else ``return_mode`` (mean, median,
    min, max) chooses. On a GPU by CUDA events, as one graph ("cudagraph"), or by what the driver says that
    kernels took ("cupti"); without a GPU, or with device="cpu", by the clock. ``early_stop_baseline``:
    measuring ends early where the estimate is far above.

    Raises AssertionError for an unknown mode, ValueError for an unknown backend."""
    if return_mode not in _MODES:
        raise SourceAssertionError(f"unknown return_mode {return_mode!r}", remedy=f"use {', '.join(_MODES)}")
    if backend not in _BACKENDS:
        raise SourceValueError(f"unknown backend {backend!r}", remedy=f"use {', '.join(_BACKENDS)}")
    timer = _timer(backend, device, cache_size)
    timer(fn, 1)
    begin = time.perf_counter()
    estimate = timer(fn, _ESTIMATES)
    round_trip = 1e3 * (time.perf_counter() - begin) / _ESTIMATES  # with what empties the caches
    if early_stop_baseline is not None and statistics.fmean(estimate) > _HOPELESS * early_stop_baseline:
        return _answer(estimate, quantiles, return_mode)
    timer(fn, _n_warmup or max(1, int(warmup / round_trip)))
    return _answer(timer(fn, _n_repeat or max(1, int(rep / round_trip))), quantiles, return_mode)


def _answer(times: Sequence[float], quantiles: Sequence[float] | None, mode: str) -> float | list[float]:
    if not quantiles:
        return _MODES[mode](times)
    found = [_quantile(sorted(times), share) for share in quantiles]
    return found[0] if len(found) == 1 else found


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between two samples in proportion."""
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


_Timer = Callable[[Callable[[], Any], int], "list[float]"]


def _timer(backend: str, device: Any, cache_size: int) -> _Timer:
    torch = sys.modules.get("torch")
    on_gpu = torch is not None and torch.cuda.is_available() and str(device or "cuda").startswith("cuda")
    if not on_gpu:
        return lambda fn, count: _by_the_clock(fn, count, cache_size)
    if backend == "cudagraph":
        return lambda fn, count: _by_graph(torch, fn, count)
    if backend == "cupti":
        return lambda fn, count: _by_kernels(torch, fn, count, cache_size)
    return lambda fn, count: _by_events(torch, fn, count, cache_size)


def _by_the_clock(fn: Callable[[], Any], count: int, cache_size: int) -> list[float]:
    cache = (ctypes.c_char * (cache_size << 20))()
    times = []
    for _ in range(count):
        ctypes.memset(cache, 0, cache_size << 20)
        begin = time.perf_counter()
        fn()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def _by_events(torch: Any, fn: Callable[[], Any], count: int, cache_size: int) -> list[float]:
    cache = torch.empty(cache_size << 18, dtype=torch.int32, device="cuda")
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    torch.cuda.synchronize()
    for begin, end in events:
        cache.zero_()
        begin.record()
        fn()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in events]


def _by_graph(torch: Any, fn: Callable[[], Any], count: int) -> list[float]:
    """One graph of all calls: the time that the GPU takes, without the time of launching."""
    fn()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(count):
            fn()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / count] * count


def _by_kernels(torch: Any, fn: Callable[[], Any], count: int, cache_size: int) -> list[float]:
    """The time of all kernels of a call, without the gaps between them."""
    cache = torch.empty(cache_size << 18, dtype=torch.int32, device="cuda")

    def flushed() -> None:
        cache.zero_()
        fn()

    whole = _kernel_time(torch, flushed, count) - _kernel_time(torch, cache.zero_, count)
    return [max(whole, 0.0) / count] * count


def _kernel_time(torch: Any, call: Callable[[], Any], count: int) -> float:
    """Milliseconds of the kernels of ``count`` calls, from torch's profiler."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(count):
            call()
        torch.cuda.synchronize()
    return 1e-3 * float(sum(each.self_device_time_total for each in profiler.key_averages()))
