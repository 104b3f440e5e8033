"""One row of the table: is it right at full size, and how long does it take beside its peers. The rows are in
rows/, a file per family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from rows.row import Row, random, size_of
from timing import ROUNDS, Contestant, cool, sustained

from tilec.portable.loader import _view

_L2_BYTES = 160 << 20  # inputs in turn hold more than the cache
_MOST_SETS = 32
_REASON = 600  # characters of why a peer is absent
COPY = "copy_float16"


def versions() -> dict[str, Any]:
    """Of what the peers run in."""
    return {
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def text(row: Row, made: dict[str, Any]) -> str:
    """One line for people."""
    peers = ", ".join(f"{name} {time['us']:.1f}" for name, time in made["times"].items() if name != "tilec")
    later = ", ".join(f"{name} {time:.1f}" for name, time in made.get("sustained", {}).items())
    return (
        f"{row.name:60s} {made['target']:10s} {made['us']:9.1f} us, {peers}, ratio {made['ratio']:.3f}, "
        f"{made['tflops']:6.1f} TFLOP/s, {made['gbps']:6.0f} GB/s, error {made['error']:.1e}"
        + (f", {made['share']:.1%} of a copy" if "share" in made else "")
        + (f"; sustained {later}" if later else "")
    )


def measure(library: Any, row: Row, rounds: int = ROUNDS, copier: Any = None) -> dict[str, Any]:
    """Error, times in microseconds and rates. Peers that cannot do the work are named with the reason.
    ``copier``: the library with the copy that ``row.copied`` asks for, if not the same."""
    kernel = library.kernels[row.kernel]
    sets = input_sets(row)
    ours = runner(kernel, row)
    error = _error(row, sets[0], lambda: ours(sets[0]))
    contestants = [Contestant("tilec", lambda i: ours(sets[i]), len(sets))]
    absent = {}
    for name, peer in row.peers.items():
        try:
            contestants.append(Contestant(name, lambda i, peer=peer: peer(**sets[i]), len(sets)))
        except RuntimeError as problem:
            absent[name] = " ".join(str(problem).split())[:_REASON]
    copies = (copier or library).kernels
    if row.copied and COPY in copies:
        contestants.append(_copy(copies[COPY], row))
    times = cool(contestants, rounds)
    mine = times["tilec"]["us"]
    best = min((times[name]["us"] for name in row.peers if name in times), default=float("nan"))
    made = {
        "kernel": row.kernel,
        "library": row.library,
        "dims": row.dims,
        "note": row.note,
        "error": error,
        "right": error < row.rtol,
        "times": times,
        "absent": absent,
        "us": mine,
        "ratio": best / mine,
        "tflops": row.flops / mine * 1e-6,
        "gbps": row.bytes / mine * 1e-3,
        **({"share": times["copy"]["us"] / mine} if "copy" in times else {}),
        **_served(kernel, row, sets[0]),
    }
    return {**made, "sustained": sustained(contestants)} if row.sustained else made


def _copy(kernel: Any, row: Row) -> Contestant:
    """A copy of as many bytes: what memory-bound work is measured against."""
    count = max(8, int(row.bytes) // 4 // 8 * 8)
    pairs = max(1, min(_MOST_SETS, -(-_L2_BYTES // int(row.bytes))))
    held = [[random((count,), torch.float16) for _ in range(2)] for _ in range(pairs)]
    return Contestant("copy", lambda i: kernel(X=held[i][0], Y=held[i][1]), pairs)


def runner(kernel: Any, row: Row, variant: int | None = None) -> Callable[[dict[str, Any]], None]:
    """Calls the kernel, or the variant with that id, on a set of inputs; dims that no tensor shows come from
    the row."""
    taken = [param["name"] for param in kernel.metadata["params"]]
    free = {dim: row.dims[dim] for dim, binds in kernel._binds.items() if not binds}

    def run(tensors: dict[str, Any]) -> None:
        kernel(**{name: tensors[name] for name in taken if name in tensors}, **free, variant=variant)

    return run


def _served(kernel: Any, row: Row, tensors: dict[str, Any]) -> dict[str, Any]:
    """Which variant the call comes to."""
    views = {name: _view(tensors[name], name) for name in kernel._tensors if name in tensors}
    dims = kernel._bind(tensors, views, {dim: row.dims[dim] for dim in kernel._binds if dim in row.dims})
    variant = kernel.select("cuda:0", **dims)
    return {"variant": variant.id, "target": variant.target}


def input_sets(row: Row) -> list[dict[str, Any]]:
    """Arguments that take turns, so that no cache holds them all."""
    one = row.make()
    count = max(1, row.sets, min(_MOST_SETS, -(-_L2_BYTES // size_of(one))))
    return [one, *(row.make() for _ in range(count - 1))]


def _error(row: Row, tensors: dict[str, Any], run: Any) -> float:
    """The largest error over the outputs; infinite for NaN."""
    expected = wanted(row, tensors)
    for name in row.outputs:
        _poison(tensors[name])
    run()
    torch.cuda.synchronize()
    errors = [distance(tensors[name], each) for name, each in zip(row.outputs, expected, strict=True)]
    return max(errors)


def wanted(row: Row, tensors: dict[str, Any]) -> list[torch.Tensor]:
    """What the outputs should be."""
    found = row.reference(**tensors) if row.reference else next(iter(row.peers.values()))(**_wide(tensors))
    several = found if isinstance(found, (tuple, list)) else (found,)
    return [each.clone() for each in several]


def _wide(tensors: dict[str, Any]) -> dict[str, Any]:
    """Floats as float32."""
    return {
        name: value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in tensors.items()
    }


def _poison(tensor: torch.Tensor) -> None:
    tensor.view(torch.uint8).fill_(0xFF)  # NaN in every float


def distance(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """The norm of the difference over the norm; infinite for NaN."""
    found = float((got.double() - wanted.double()).norm() / wanted.double().norm())
    return found if found == found else float("inf")
