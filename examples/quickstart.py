"""Builds the quickstart library, calls it from Python and from C, and compares both with NumPy."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tilec
from tilec.build import build

ROOT = Path(__file__).parents[1]
OUT = ROOT / "dist" / "quickstart"
LENGTH = 1_000_003
M, N, K = 500, 768, 1024
RUNS = 20
TOLERANCE = 1e-3


def inputs() -> dict[str, np.ndarray]:
    """x and b of LENGTH, A (M, K), B (K, N), float32."""
    rng = np.random.default_rng(0)
    shapes = {"x": (LENGTH,), "b": (LENGTH,), "A": (M, K), "B": (K, N)}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def best_time(call: Callable[[], object]) -> float:
    """The shortest of some runs in microseconds."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def from_python(data: dict[str, np.ndarray]) -> tuple[list[np.ndarray], list[float], list[str]]:
    """Results, times and the variants that serve the calls."""
    library = tilec.load(OUT)
    y, c = np.empty_like(data["x"]), np.empty((M, N), np.float32)
    calls = [
        lambda: library.scale_add(data["x"], data["b"], 2.0, y),
        lambda: library.matmul(data["A"], data["B"], c),
    ]
    times = [best_time(call) for call in calls]
    chosen = [
        library.kernels["scale_add"].select(n=LENGTH, device="cpu"),
        library.kernels["matmul"].select(M=M, N=N, K=K, device="cpu"),
    ]
    return [y, c], times, [f"{one.target}, {dict(one.guards) or 'any shape'}" for one in chosen]


def from_c(data: dict[str, np.ndarray]) -> tuple[list[np.ndarray], list[float]]:
    """Results and times of the C program, which ziglang compiles."""
    program = OUT / "quickstart"
    flags = [f"-I{OUT / 'include'}", f"-L{OUT / 'lib'}", "-lquickstart", f"-Wl,-rpath,{OUT / 'lib'}", "-O2"]
    source = ROOT / "examples" / "c" / "quickstart.c"
    subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", str(source), "-o", str(program), *flags], check=True
    )
    sizes = [str(size) for size in (LENGTH, M, N, K)]
    sent = b"".join(data[name].tobytes() for name in ("x", "b", "A", "B"))
    done = subprocess.run([str(program), *sizes], input=sent, capture_output=True, check=True)
    floats = np.frombuffer(done.stdout, np.float32)
    return [floats[:LENGTH], floats[LENGTH:].reshape(M, N)], [float(text) for text in done.stderr.split()]


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> int:
    """Prints one table; the exit code says whether every result is right."""
    result = build(ROOT / "manifests" / "quickstart.toml", OUT)
    print(f"built {result.report.library.relative_to(ROOT)} in {result.seconds:.1f} s\n")
    data = inputs()
    exact = [2.0 * data["x"] + data["b"], data["A"].astype(np.float64) @ data["B"]]
    made, times, variants = from_python(data)
    made_c, times_c = from_c(data)
    times_numpy = [best_time(lambda: 2.0 * data["x"] + data["b"]), best_time(lambda: data["A"] @ data["B"])]
    rows = [("kernel", "variant chosen", "error", "error (C)", "us", "us (C)", "us (NumPy)")]
    right = True
    for i, name in enumerate([f"scale_add n={LENGTH}", f"matmul {M}x{N}x{K}"]):
        errors = [float(np.abs(got[i] - exact[i]).max()) for got in (made, made_c)]
        right = right and max(errors) < TOLERANCE
        figures = [
            *(f"{error:.1e}" for error in errors),
            *(f"{one[i]:.0f}" for one in (times, times_c, times_numpy)),
        ]
        rows.append((name, variants[i], *figures))
    print_table(rows)
    print("\nevery result agrees with NumPy" if right else "\nRESULTS DIFFER FROM NUMPY")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
