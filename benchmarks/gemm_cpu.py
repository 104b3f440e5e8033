"""Matrix products on one core against its multiply-add peak, NumPy and torch beside them in the same run.

python benchmarks/gemm_cpu.py [--target x86-64-v4] [--rounds 9] [--only packed]

Every figure is the median over rounds; within a round the peak loop, this library, NumPy and torch follow
each other, and all are timed in CPU seconds of the one thread that works, so that other processes disturb
little. The share of the peak is taken round by round. OPENBLAS_CORETYPE=SKYLAKEX makes NumPy's BLAS use
AVX-512.
"""

# ruff: noqa: E402 (thread counts are read when NumPy is imported)
from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

for _variable in ("TILEC_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np

from tilec.build import build
from tilec.codegen.toolchain import find_toolchain
from tilec.targets import Target, native_target, parse_target

HERE = Path(__file__).resolve().parent
ROUND_SECONDS = 0.05

#: (kernel, M, N, K)
CASES = (
    ("matmul", 1024, 1024, 1024),
    ("matmul", 512, 4096, 4096),
    ("matmul_gpu_tiles", 1024, 1024, 1024),
    *(("linear", m, 1024, 1024) for m in (1, 16, 1024)),
    *(("packed", m, 1536, 384) for m in (1, 4, 16, 32, 128, 512, 4096)),
    *(("packed", m, 384, 1536) for m in (1, 4, 16, 32, 128, 512, 4096)),
    ("packed", 512, 4096, 4096),
)

PEAK_SOURCE = """
typedef float vector __attribute__((vector_size({bytes})));
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
__attribute__((visibility("default"))) float run(long trips) {{
  const vector x = {{0}}, y = {{0}};
#define DECLARE(i) vector a##i = {{i}};
  EACH(DECLARE)
  for (long trip = 0; trip < trips; ++trip) {{
#define STEP(i) a##i = __builtin_elementwise_fma(a##i, x, y); __asm__ volatile("" : "+v"(a##i));
    EACH(STEP)
  }}
  float sum = 0;
#define ADD(i) sum += a##i[0];
  EACH(ADD)
  return sum;
}}
"""
CHAINS = 12


@dataclass(frozen=True)
class Rates:
    """GFLOP/s of one case, and our share of the peak of the same round."""

    ours: float
    numpy: float
    torch: float | None
    share: float


def main() -> None:
    """Builds the kernels, checks every case against NumPy and prints one line each."""
    options = _options()
    target = parse_target(options.target) if options.target else _best_level()
    os.environ["TILEC_CPU"] = target.name
    with tempfile.TemporaryDirectory() as folder:
        build(HERE / "gemm_cpu.toml", Path(folder), targets=[target.name])
        library = Library(Path(folder))
        peak = peak_loop(target, Path(folder))
        print(f"{target.name}, one thread, fp32; GFLOP/s and share of the peak")
        print(f"{'kernel':18}{'M':>6}{'N':>6}{'K':>6}{'tilec':>8}{'share':>8}{'numpy':>8}{'torch':>8}")
        for name, m, n, k in CASES:
            if options.only in (None, name):
                _print(name, (m, n, k), measure(library, peak, name, (m, n, k), options.rounds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", help="a CPU target of the manifest; default: the best of this machine")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", help="the name of one kernel")
    return parser.parse_args()


def _best_level() -> Target:
    return parse_target(native_target().level)


def _print(name: str, shape: tuple[int, int, int], rates: Rates) -> None:
    torch = "-" if rates.torch is None else f"{rates.torch:.0f}"
    sizes = "".join(f"{size:6}" for size in shape)
    print(f"{name:18}{sizes}{rates.ours:8.0f}{rates.share:8.0%}{rates.numpy:8.0f}{torch:>8}", flush=True)


def peak_loop(target: Target, folder: Path) -> Callable[[], float]:
    """A function that runs independent multiply-adds in registers and returns their FLOP/s."""
    source, exports, shared = folder / "peak.c", folder / "peak.map", folder / "peak.so"
    source.write_text(PEAK_SOURCE.format(bytes=target.vector_bits // 8))
    exports.write_text("{ global: run; local: *; };\n")
    toolchain = find_toolchain()
    is_zig = toolchain.kind == "zig"
    instructions = f"-mcpu={target.mcpu.replace('-', '_')}" if is_zig else f"-march={target.mcpu}"
    objects = toolchain.compile([source], folder, flags=[instructions])
    toolchain.link_shared(objects, shared, soname="peak.so", version_script=exports)
    run = ctypes.CDLL(str(shared)).run
    run.argtypes, run.restype = [ctypes.c_long], ctypes.c_float
    trips = 400_000

    def rate() -> float:
        start = time.thread_time()
        run(trips)
        return trips * CHAINS * 2 * target.lanes(32) / (time.thread_time() - start)

    return rate


class Library:
    """The typed C functions of the built library: what an engine calls, without Python's work per call."""

    def __init__(self, folder: Path) -> None:
        (path,) = (folder / "lib").glob("*.so")
        self._library = ctypes.CDLL(str(path))
        metadata = json.loads((folder / "metadata.json").read_text())
        self._kernels = {kernel["name"]: kernel for kernel in metadata["kernels"]}

    def call(self, name: str, arrays: Sequence[np.ndarray], dims: Mapping[str, int]) -> Callable[[], None]:
        """A function without arguments that runs ``name`` once, on this thread."""
        function = getattr(self._library, f"gemm_cpu_{name}")
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        sizes = [ctypes.c_int64(dims[dim["name"]]) for dim in self._kernels[name]["dims"]]

        def run() -> None:
            status = function(None, *pointers, *sizes)
            if status != 0:
                raise RuntimeError(f"{name} returned status {status}")

        return run


def measure(
    library: Library, peak: Callable[[], float], name: str, shape: tuple[int, int, int], rounds: int
) -> Rates:
    """Checks one case, then times it round by round."""
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
    ours, result = _our_call(library, name, a, b)
    ours()
    np.testing.assert_allclose(result, a @ b, atol=1e-3 * k**0.5)
    calls = [ours, _numpy_call(name, a, b), _torch_call(name, a, b)]
    flops, rows = 2 * m * n * k, []
    for _ in range(rounds):
        before = peak()
        rates = [_rate(call, flops) if call is not None else None for call in calls]
        rows.append((*rates, max(before, peak())))
    ours_rate, numpy_rate, torch_rate = (
        None if column[0] is None else statistics.median(column) / 1e9
        for column in list(zip(*rows, strict=True))[:3]
    )
    return Rates(ours_rate, numpy_rate, torch_rate, statistics.median(row[0] / row[3] for row in rows))


def _rate(call: Callable[[], object], flops: int) -> float:
    """FLOP/s over enough calls to fill a round, the first one left out."""
    start = time.thread_time()
    call()
    repeats = max(1, int(ROUND_SECONDS / max(time.thread_time() - start, 1e-6)))
    start = time.thread_time()
    for _ in range(repeats):
        call()
    return flops * repeats / (time.thread_time() - start)


def _our_call(
    library: Library, name: str, a: np.ndarray, b: np.ndarray
) -> tuple[Callable[[], None], np.ndarray]:
    """The call, and the array it writes."""
    (m, k), n = a.shape, b.shape[1]
    out = np.empty((m, n), np.float32)
    weight = {"packed": lambda: np.ascontiguousarray(b.reshape(k, n // 32, 32).transpose(1, 0, 2)),
              "linear": lambda: np.ascontiguousarray(b.T)}.get(name, lambda: b)()  # fmt: skip
    bias = [np.zeros(n, np.float32)] if name in ("packed", "linear") else []
    arrays = [a, weight, *bias, out]
    run = library.call(name, arrays, {"M": m, "N": n, "K": k})
    run.keep = arrays  # type: ignore[attr-defined]
    return run, out


def _numpy_call(name: str, a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    return lambda: np.matmul(a, b, out=out)


def _torch_call(name: str, a: np.ndarray, b: np.ndarray) -> Callable[[], object] | None:
    """torch.mm for a product, torch's linear for one with stored weights; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    if name.startswith("matmul"):
        out = torch.empty(a.shape[0], b.shape[1])
        return lambda: torch.mm(left, right, out=out)
    weight, bias = right.T.contiguous(), torch.zeros(b.shape[1])
    return lambda: torch.nn.functional.linear(left, weight, bias)


if __name__ == "__main__":
    main()
