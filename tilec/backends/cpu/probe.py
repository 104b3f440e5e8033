"""The ceilings of this CPU: a small C library (probe.c), on as many threads as are asked for."""

from __future__ import annotations

import ctypes
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilec.backends.ceilings import Ceilings, kept
from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import find_toolchain
from tilec.cpu_bits import CpuBit
from tilec.targets import native_target

_SOURCE = Path(__file__).parent / "probe.c"
_LANES = 12  # as in the C file
_SECONDS, _ROUNDS = 0.04, 5
_CALIBRATING_TRIPS = 20_000
#: Bytes of the source of a copy: more than the last cache holds, on any machine that says nothing about it.
_LEAST_COPY, _MOST_COPY = 64 << 20, 512 << 20


@dataclass(frozen=True)
class _Probe:
    """A function of the C file: which feature it needs, whose rate it measures, elements of its vectors."""

    name: str
    needs: CpuBit
    dtype: str
    elements: int

    @property
    def operations(self) -> int:
        """Of one trip."""
        return 2 * _LANES * self.elements


#: Of the probes of one type, the last that the machine runs counts.
_PROBES = (
    _Probe("fma_neon", CpuBit.AARCH64, "float32", 4),
    _Probe("fma_sse2", CpuBit.X86_64_V2, "float32", 4),
    _Probe("fma_avx2", CpuBit.X86_64_V3, "float32", 8),
    _Probe("fma_avx512", CpuBit.X86_64_V4, "float32", 16),
    _Probe("dot_bfloat16", CpuBit.AVX512BF16, "bfloat16", 32),
    _Probe("dot_int8", CpuBit.VNNI, "int8", 64),
    _Probe("tiles_bfloat16", CpuBit.AMX, "bfloat16", 16 * 16 * 32),
    _Probe("tiles_int8", CpuBit.AMX, "int8", 16 * 16 * 64),
)


def cpu_ceilings(threads: int) -> Ceilings:
    """The ceilings of ``threads`` threads. Needs a C compiler the first time.

    Raises:
        EnvironmentError_: there is no C compiler.
    """
    return _known(threads)


@lru_cache(maxsize=8)
def _known(threads: int) -> Ceilings:
    name = f"{_model()}, {threads} thread{'' if threads == 1 else 's'}"
    probe = _SOURCE.read_text()
    return kept(f"{name} of {native_target().name}", probe, lambda: _measure(name, threads))


def _measure(name: str, threads: int) -> Ceilings:
    with tempfile.TemporaryDirectory() as folder:
        library = _library(Path(folder))
        flops = {probe.dtype: _rate(library, probe, threads) for probe in _usable(library)}
        return Ceilings(name, flops, _copy_rate(library, threads))


def _usable(library: ctypes.CDLL) -> list[_Probe]:
    """The best probe of each type."""
    native = native_target()
    order = [CpuBit.X86_64_V2, CpuBit.X86_64_V3, CpuBit.X86_64_V4]
    present = set(native.bits)
    present |= {bit for at, bit in enumerate(order) if present & set(order[at:])}
    usable = [probe for probe in _PROBES if probe.needs in present and _is_granted(library, probe)]
    return list({probe.dtype: probe for probe in usable}.values())


def _is_granted(library: ctypes.CDLL, probe: _Probe) -> bool:
    """Whether the system lets this process use what the probe measures."""
    function = library[probe.name]
    function.argtypes, function.restype = [ctypes.c_int64], ctypes.c_double
    return bool(function(0) >= 0)


def _library(folder: Path) -> ctypes.CDLL:
    toolchain = find_toolchain()
    made = toolchain.compile(_SOURCE, folder)
    output = folder / "probe.so"
    toolchain.link_shared([made], SharedLibrary(output, output.name, "*"))
    return ctypes.CDLL(str(output))


def _rate(library: ctypes.CDLL, probe: _Probe, threads: int) -> float:
    """Operations per second of all threads together: the best of some rounds."""
    function = library[probe.name]
    function.argtypes, function.restype = [ctypes.c_int64], ctypes.c_double
    once = _speed([lambda: function(_CALIBRATING_TRIPS)]) * _CALIBRATING_TRIPS
    trips = max(_CALIBRATING_TRIPS, int(once * _SECONDS))
    best = max(_speed([lambda: function(trips)] * threads) for _ in range(_ROUNDS))
    return probe.operations * trips * best


def _copy_rate(library: ctypes.CDLL, threads: int) -> float:
    """Bytes per second that all threads read and write: the best of some rounds."""
    function = library["copy"]
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    size = min(_MOST_COPY, max(_LEAST_COPY, 4 * last_cache_bytes()))
    share = size // threads // 4096 * 4096
    blocks = [
        (ctypes.create_string_buffer(share), ctypes.create_string_buffer(share)) for _ in range(threads)
    ]

    def copier(pair: tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_char]]) -> Callable[[], object]:
        return lambda: function(pair[0], pair[1], share, 1)

    work = [copier(pair) for pair in blocks]
    _speed(work)  # brings the pages in
    return 2 * share * max(_speed(work) for _ in range(_ROUNDS))


def _speed(work: Sequence[Callable[[], object]]) -> float:
    """How often a second the functions are done, summed over threads that run one each, at the same time. By
    the CPU time of each thread: what other programs take from it makes the machine no slower."""
    gate, taken = threading.Barrier(len(work)), [0.0] * len(work)

    def run(number: int) -> None:
        gate.wait()
        start = time.thread_time()
        work[number]()
        taken[number] = time.thread_time() - start

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(1 / max(seconds, 1e-9) for seconds in taken)


def last_cache_bytes() -> int:
    """The largest cache of the first CPU; 0 where the system does not say."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 0))
    return max(sizes)


def _model() -> str:
    """The CPU's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, native_target().arch)
