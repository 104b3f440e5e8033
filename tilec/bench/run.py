"""`bench_library`: latency of the kernels of a library, and how far it is from what the machine can do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.backends.base import backend_at
from tilec.backends.ceilings import Ceilings
from tilec.bench.arrays import argument_set
from tilec.bench.peers import NoPeer, import_torch, peer_call
from tilec.bench.shapes import typical_shapes
from tilec.errors import InputError, Place
from tilec.families import device_named
from tilec.package.library.inspect import find_library, no_such_dims
from tilec.portable.timing import Sampler, Timing, measure
from tilec.spelling import kernels_meant
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.library import load_library, read_facts, require_device
from tilec.trials.oracle import Author, Oracle, authors
from tilec.trials.work import Work, work_of

if TYPE_CHECKING:
    from tilec.portable import loader
    from tilec.portable.devices.base import Device

_MOST_SETS, _MOST_BYTES = 32, 1 << 30


@dataclass(frozen=True)
class Request:
    """What to measure. ``shapes``: (kernel, dims) to measure, None for typical ones; ``device``: "cpu",
    "cuda:1"; ``threads``: of a call on the CPU; ``peers``: of `PEERS`;
    ``seconds``: for each contestant of a shape; ``cpu_time``: count those of the calling thread alone, which
    other programs do not change (one thread)."""

    kernels: Sequence[str] = ("*",)
    shapes: Sequence[tuple[str, Mapping[str, int]]] | None = None
    manifest: Path | None = None
    device: str = "cpu"
    threads: int = 1
    peers: Sequence[str] = ()
    seconds: float = 0.5
    seed: int = 0
    cpu_time: bool = False

    @property
    def clock(self) -> Callable[[], float]:
        """What times calls on the CPU."""
        return time.thread_time if self.cpu_time else time.perf_counter


@dataclass(frozen=True)
class Row:
    """One shape of one kernel. ``problem`` says why there is no ``timing``, ``failed`` that a call failed.
    ``peers``: by name a timing, or why there is none."""

    kernel: str
    dims: Mapping[str, int]
    variant: int | None = None
    target: str = ""
    timing: Timing | None = None
    work: Work | None = None
    ceilings: Ceilings | None = None
    peers: Mapping[str, Timing | str] = field(default_factory=dict)
    problem: str = ""
    failed: bool = False

    @property
    def flops(self) -> float | None:
        """Operations of products per second; None where there are none, or nobody knows."""
        if self.timing is None or self.work is None or not self.work.flops:
            return None
        return self.work.total_flops / self.timing.median

    @property
    def bandwidth(self) -> float | None:
        """Bytes of tensors per second."""
        return None if self.timing is None or self.work is None else self.work.bytes / self.timing.median

    @property
    def limit(self) -> tuple[str, float] | None:
        """What binds the machine first, "compute" or "memory", and the least seconds that it takes."""
        if self.work is None or self.ceilings is None or self.work.unknown:
            return None
        compute = self.ceilings.compute_seconds(self.work.flops)
        memory = self.ceilings.memory_seconds(self.work.bytes)
        if compute is None:
            return None
        return ("compute", compute) if compute > memory else ("memory", memory)

    @property
    def share(self) -> float | None:
        """The least time over the time taken: 1 is all that the machine can do."""
        return self.limit[1] / self.timing.median if self.limit and self.timing else None


def bench_library(
    path: str | Path, request: Request, progress: Callable[[Row], None] | None = None
) -> list[Row]:
    """Measures what ``request`` asks for.

    Raises:
        LibraryError: the file is no tilec library, or is for another machine.
        InputError: no kernel matches, or dims are wrong.
        EnvironmentError_: there is no such device, or torch is missing.
    """
    library = find_library(Path(path))
    chosen = _chosen(library, request)
    device = device_named(request.device)
    if not device.on_host:
        require_device(device, "measure")
    if "torch" in request.peers:
        import_torch(request.threads)
    ceilings = backend_at(request.device).ceilings(device.index, request.threads)
    bench = _Bench(load_library(library), request, device, ceilings)
    rows = []
    for kernel, dims in chosen:
        rows.append(bench.row(kernel, dims))
        if progress is not None:
            progress(rows[-1])
    return rows


def _chosen(library: Path, request: Request) -> list[tuple[KernelFacts, dict[str, int]]]:
    """Kernels and dims. Raises InputError where there are none, or a dim is unknown or missing."""
    facts = {kernel.name: kernel for kernel in read_facts(library)}
    meant = kernels_meant(request.kernels, facts, library)
    named = [kernel for name, kernel in facts.items() if name in meant]
    if request.shapes is None:
        return [(kernel, dims) for kernel in named for dims in typical_shapes(kernel)]
    chosen = []
    for name, dims in request.shapes:
        matching = [
            kernel for kernel in named if fnmatchcase(kernel.name, name) and set(dims) == set(kernel.dims)
        ]
        if not matching and any(fnmatchcase(kernel.name, name) for kernel in named):
            raise no_such_dims(library, dims, {kernel.name: kernel.dims for kernel in named})
        chosen += [(kernel, dict(dims)) for kernel in matching]
    if not chosen:
        raise InputError(
            "the shapes name no kernel that is to be measured",
            place=Place(str(library)),
            remedy=f"measured are {', '.join(kernel.name for kernel in named)}",
        )
    return chosen


class _Bench:
    """One loaded library."""

    def __init__(
        self, library: loader.Library, request: Request, device: Device, ceilings: Ceilings | None
    ) -> None:
        self._library, self._request, self._device, self._ceilings = library, request, device, ceilings
        self._authors = authors(request.manifest) if request.manifest is not None else {}

    def row(self, kernel: KernelFacts, dims: dict[str, int]) -> Row:
        """The measurements of one shape."""
        from tilec.portable.loader import LaunchError

        try:
            served = self._library.kernels[kernel.name].select(str(self._device), **dims)
        except LaunchError as error:
            return Row(kernel.name, dims, problem=str(error))
        variant = next(each for each in kernel.variants if each.id == served.id)
        start = Row(kernel.name, dims, served.id, served.target)
        author = self._authors.get(kernel.name, Author())
        oracle = Oracle(kernel, author, self._device)
        try:
            values = oracle.inputs(variant, dims, np.random.default_rng(self._request.seed))
        except Exception as error:  # the author's function may raise anything for dims that it does not know
            return _with(start, problem=f"inputs raised {type(error).__name__}: {error}")
        try:
            return self._measured(start, kernel, variant, author, values)
        except LaunchError as error:
            return _with(start, problem=str(error), failed=True)

    def _measured(
        self,
        start: Row,
        kernel: KernelFacts,
        variant: VariantFacts,
        author: Author,
        values: Mapping[str, Any],
    ) -> Row:
        work = work_of(kernel, variant.ir_text, start.dims, values)
        sets = list(self._sets(kernel, start.dims, values, work.bytes))
        samplers, absent = self._samplers(kernel, author, sets, start.dims)
        timings = measure(samplers, seconds=self._request.seconds)
        mine = timings.pop(_MINE)
        return _with(start, timing=mine, work=work, ceilings=self._ceilings, peers={**timings, **absent})

    def _sets(
        self, kernel: KernelFacts, dims: Mapping[str, int], values: Mapping[str, Any], size: int
    ) -> Iterator[dict[str, Any]]:
        """Sets of arguments with the same values: together more than the last cache holds, if they may be."""
        beyond_cache = -(-2 * backend_at(self._request.device).cache_bytes() // max(size, 1))
        count = max(1, min(_MOST_SETS, beyond_cache, _MOST_BYTES // max(size, 1)))
        for _ in range(count):
            yield argument_set(kernel, dims, values, self._device)

    def _samplers(
        self,
        kernel: KernelFacts,
        author: Author,
        sets: Sequence[dict[str, Any]],
        dims: Mapping[str, int],
    ) -> tuple[dict[str, Sampler], dict[str, str]]:
        """The contestants, and why some are absent."""
        samplers, absent = {_MINE: self._sampler(kernel, sets, dims)}, {}
        for name in self._request.peers:
            try:
                call = peer_call(name, kernel, author, sets, self._device)
                samplers[name] = self._timed(self._device.beside(call), len(sets))
            except NoPeer as reason:
                absent[name] = str(reason)
        return samplers, absent

    def _sampler(
        self, kernel: KernelFacts, sets: Sequence[dict[str, Any]], dims: Mapping[str, int]
    ) -> Sampler:
        """Calls that are prepared: what a call costs without Python's part in it."""
        function, options = self._library.kernels[kernel.name], self._device.options(self._request.threads)
        names = [param.name for param in kernel.params]
        free: dict[str, Any] = {name: value for name, value in dims.items() if name not in names}
        if not self._device.on_host:
            function.preload(str(self._device))
        calls = [function.prepare(**each, **free, **options) for each in sets]
        return self._timed(lambda number: calls[number](), len(sets))

    def _timed(self, call: Callable[[int], object], sets: int) -> Sampler:
        return self._device.sampler(call, sets, clock=self._request.clock)


_MINE = "tilec"


def _with(row: Row, **changes: Any) -> Row:
    from dataclasses import replace

    return replace(row, **changes)
