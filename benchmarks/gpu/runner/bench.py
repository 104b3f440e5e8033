"""Timing beside torch: graph replay, several input sets in turn, medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_L2_BYTES = 128 << 20  # inputs in turn hold more than this
_MOST_SETS = 32
_REPEATS = 15
Call = Callable[[int], Any]


@dataclass(frozen=True)
class Row:
    """One line of the table: ``make(device)`` gives the tensors of one input set, ``peer`` torch's work on
    them, ``flops`` and ``bytes`` what the work needs at least. ``rtol`` is of the norm of the difference from
    the peer on float32 operands."""

    kernel: str
    dims: dict[str, int]
    make: Callable[[], dict[str, torch.Tensor]]
    output: str
    peer: Callable[..., torch.Tensor]
    flops: float
    bytes: float
    rtol: float = 2e-2


def rows(kernels: set[str]) -> list[Row]:
    """The rows for the kernels that are there."""
    made = [*_products(), *_memory_bound()]
    return [row for row in made if row.kernel in kernels]


def _products() -> list[Row]:
    squares = [(size, size, size) for size in (1000, 1024, 4096, 5000, 8192)]
    shapes = [*squares, (2048, 4096, 14336), (128, 4096, 4096), (16, 14336, 4096), (333, 4097, 2049)]
    return [_product(dtype, *shape) for dtype in ("float16", "bfloat16") for shape in shapes]


def _product(name: str, m: int, n: int, k: int) -> Row:
    dtype = getattr(torch, name)

    def make() -> dict[str, torch.Tensor]:
        return {"A": _random((m, k), dtype), "B": _random((k, n), dtype), "C": _random((m, n), dtype)}

    def peer(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B, out=C)

    size = dtype.itemsize
    total = size * (m * k + k * n + m * n)
    return Row(f"matmul_{name}", {"M": m, "N": n, "K": k}, make, "C", peer, 2.0 * m * n * k, total)


def _memory_bound() -> list[Row]:
    found = []
    for name in ("float32", "float16"):
        dtype = getattr(torch, name)
        n = 1 << 26
        found.append(
            Row(
                f"scale_add_{name}",
                {"n": n},
                lambda dtype=dtype, n=n: {key: _random((n,), dtype) for key in ("X", "B", "Y")},
                "Y",
                lambda X, B, Y: torch.add(B, X, alpha=1.5, out=Y),
                2.0 * n,
                3.0 * n * dtype.itemsize,
            )
        )
        found.append(_rows_kernel("softmax", dtype, name, 8192, 8192))
        found.append(_rows_kernel("rmsnorm", dtype, name, 8192, 8192))
    return found


def _rows_kernel(kind: str, dtype: torch.dtype, name: str, m: int, n: int) -> Row:
    def make() -> dict[str, torch.Tensor]:
        tensors = {"X": _random((m, n), dtype), "Y": _random((m, n), dtype)}
        return tensors if kind == "softmax" else {**tensors, "G": _random((n,), dtype)}

    def softmax(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(X, -1, out=Y) if X.dtype == Y.dtype else torch.softmax(X, -1)

    def rmsnorm(X: torch.Tensor, Y: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(X, (n,), G, 1e-6)

    peer = softmax if kind == "softmax" else rmsnorm
    moved = 2.0 * m * n * dtype.itemsize
    return Row(f"{kind}_{name}", {"M": m, "N": n, "ldx": n}, make, "Y", peer, 0.0, moved)


def _random(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)


def measure(library: Any, row: Row) -> dict[str, Any]:
    """One row: is it right at this size, both medians in microseconds, rates."""
    kernel = library.kernels[row.kernel]
    scalars = {"a": 1.5} if row.kernel.startswith("scale_add") else {}
    sets = _input_sets(row)

    def ours(number: int) -> None:
        kernel(**sets[number % len(sets)], **scalars)

    def peer(number: int) -> None:
        row.peer(**sets[number % len(sets)])

    error = _error(row, sets[0], lambda: ours(0))
    known = {name: value for name, value in row.dims.items() if name in kernel._binds}
    served = kernel.select("cuda:0", **known)
    first, theirs, second = _median(ours, len(sets)), _median(peer, len(sets)), _median(ours, len(sets))
    mine = min(first, second)
    return {
        "kernel": row.kernel,
        "dims": row.dims,
        "variant": served.id,
        "target": served.target,
        "error": error,
        "right": error < row.rtol,
        "us": mine,
        "us_again": max(first, second),
        "peer_us": theirs,
        "ratio": theirs / mine,
        "tflops": row.flops / mine * 1e-6,
        "gbps": row.bytes / mine * 1e-3,
    }


def _input_sets(row: Row) -> list[dict[str, torch.Tensor]]:
    one = row.make()
    size = sum(tensor.numel() * tensor.element_size() for tensor in one.values())
    count = max(1, min(_MOST_SETS, -(-_L2_BYTES // size)))
    return [one, *(row.make() for _ in range(count - 1))]


def _error(row: Row, tensors: dict[str, torch.Tensor], run: Callable[[], None]) -> float:
    """The norm of the difference from the peer on float32 operands, over that of its result."""
    wide = {name: tensor.float() for name, tensor in tensors.items()}
    wanted = row.peer(**wide).clone()
    tensors[row.output].fill_(float("nan"))
    run()
    torch.cuda.synchronize()
    distance = (tensors[row.output].float() - wanted).norm() / wanted.norm()
    value = float(distance)
    return value if value == value else float("inf")


def _median(call: Call, sets: int) -> float:
    """Microseconds of one call, from replays of a graph of many."""
    for number in range(max(3, sets)):
        call(number)
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call(0)
    end.record()
    end.synchronize()
    count = max(sets, min(200, int(20.0 / max(start.elapsed_time(end), 0.01))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(count):
            call(number)
    times = []
    for _ in range(_REPEATS):
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / count)
    return statistics.median(times)
