"""Times the kernels of libstreams.so beside torch, and beside a copy of as many bytes.

    python3 run.py [--json FILE] [--only NAME]...

Each is compared with torch first; float16 and int8 results may differ by one rounding.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timing import Contestant, cool

from tilec.portable import loader

HALF, FLOAT = torch.float16, torch.float32
#: Sets of tensors that calls take in turn; two of them hold more than the caches.
SETS = 2
Tensor = torch.Tensor


@dataclass(frozen=True)
class Work:
    """``make`` gives the tensors of a call, the last of which the kernel writes, or adds to; ``peer`` takes
    all and gives that one, or what it becomes from zeros, and is ``timed`` where a graph may hold it."""

    make: Callable[[], list[Tensor]]
    peer: Callable[..., Tensor]
    tolerance: float = 2e-3
    timed: bool = True


def normal(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    """Random numbers."""
    return torch.randn(*shape, device="cuda", dtype=dtype)


def zeros(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    """What a kernel writes."""
    return torch.zeros(*shape, device="cuda", dtype=dtype)


def _bytes(count: int) -> Tensor:
    return torch.randint(0, 256, (count,), device="cuda", dtype=torch.uint8)


def _quantised(x: Tensor, scales: Tensor, rows: Tensor) -> Tensor:
    top = x.abs().amax(1, keepdim=True).float()
    return torch.round(x.float() * (127 / top.clamp(min=1e-8))).to(torch.int8)


def _depthwise(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    weight = w.permute(2, 0, 1)[:, None].contiguous(memory_format=torch.channels_last)
    made = F.conv2d(x.permute(0, 3, 1, 2), weight, padding=1, groups=x.shape[3])
    return made.permute(0, 2, 3, 1)


def _pooled(x: Tensor, y: Tensor) -> Tensor:
    return F.max_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)


ODD = (1 << 25) + 3
WORK = {
    "added_float16": Work(lambda: [normal(ODD), normal(ODD), zeros(ODD)], lambda a, b, c: a + b),
    "added_float32": Work(
        lambda: [*(normal(ODD, dtype=FLOAT) for _ in "AB"), zeros(ODD, dtype=FLOAT)], lambda a, b, c: a + b
    ),
    "summed": Work(
        lambda: [normal(1 << 26) + 1, zeros(1, dtype=FLOAT)], lambda x, s: x.sum(dtype=FLOAT).reshape(1)
    ),
    "histogram": Work(
        lambda: [_bytes(1 << 26), zeros(256, dtype=torch.int32)],
        lambda x, h: torch.bincount(x, minlength=256).to(torch.int32),
        timed=False,  # it waits for the device
    ),
    "transposed": Work(lambda: [normal(8192, 8192), zeros(8192, 8192)], lambda x, y: x.t().contiguous()),
    "column_sums": Work(
        lambda: [normal(16384, 4096) + 1, zeros(4096, dtype=FLOAT)], lambda x, s: x.sum(0, dtype=FLOAT)
    ),
    "layer_norm": Work(
        lambda: [normal(16384, 4096), normal(4096), normal(4096), zeros(16384, 4096)],
        lambda x, g, b, y: F.layer_norm(x, (4096,), g, b),
    ),
    "softmax": Work(lambda: [normal(4096, 16384), zeros(4096, 16384)], lambda x, y: torch.softmax(x, -1)),
    "matrix_vector": Work(lambda: [normal(8192, 8192), normal(8192), zeros(8192)], lambda w, x, y: w @ x),
    "heads_first": Work(
        lambda: [normal(8, 4096, 32, 128), zeros(8, 32, 4096, 128)],
        lambda x, y: x.permute(0, 2, 1, 3).contiguous(),
    ),
    "pooled": Work(lambda: [normal(32, 224, 224, 64), zeros(32, 112, 112, 64)], _pooled),
    "quantised_rows": Work(
        lambda: [normal(16384, 4096), zeros(16384, dtype=FLOAT), zeros(16384, 4096, dtype=torch.int8)],
        _quantised,
        tolerance=1.01 / 127,
    ),
    "depthwise": Work(
        lambda: [normal(32, 56, 56, 256), normal(3, 3, 256), zeros(32, 56, 56, 256)], _depthwise
    ),
    "largest": Work(
        lambda: [normal(4096, 32000), zeros(4096, dtype=torch.int32)],
        lambda x, at: x.argmax(-1).to(torch.int32),
    ),
    "group_norm": Work(
        lambda: [normal(32, 512, 4096), normal(512), normal(512), zeros(32, 512, 4096)],
        lambda x, g, b, y: F.group_norm(x, 32, g, b),
    ),
    "running_sums": Work(
        lambda: [normal(8192, 8192, dtype=FLOAT), zeros(8192, 8192, dtype=FLOAT)],
        lambda x, y: x.cumsum(-1),
    ),
    "small_products": Work(
        lambda: [*(normal(65536, 16, 16, dtype=FLOAT) for _ in "AB"), zeros(65536, 16, 16, dtype=FLOAT)],
        lambda a, b, c: torch.bmm(a, b),
    ),
}


def error_of(kernel: Any, work: Work, tensors: list[Tensor]) -> float:
    """The largest difference from torch, as a part of the largest element; of places, of what lies there."""
    kernel(*tensors)
    found, expected = tensors[-1], work.peer(*tensors)
    if found.dtype == torch.int32 and tensors[0].dim() > 1:  # places: equal elements have several
        found, expected = (tensors[0].gather(1, at[:, None].long()) for at in (found, expected))
    return float((found.double() - expected.double()).abs().max() / expected.double().abs().max())


def copying(count: int) -> Callable[[int], object]:
    """A copy that reads and writes ``count`` bytes together, of each set, whole lines of memory."""
    sources = [torch.empty(count // 256 * 32, device="cuda") for _ in range(SETS)]
    copies = [torch.empty_like(each) for each in sources]
    return lambda number: copies[number].copy_(sources[number])


def measured(kernel: Any, work: Work) -> dict[str, Any]:
    """Microseconds, and the error."""
    sets = [work.make() for _ in range(SETS)]
    error = error_of(kernel, work, sets[0])
    moved = sum(each.numel() * each.element_size() for each in sets[0])
    contestants = [
        Contestant("tilec", lambda number: kernel(*sets[number]), SETS),
        Contestant("copy", copying(moved), SETS),
    ]
    if work.timed:
        contestants.append(Contestant("torch", lambda number: work.peer(*sets[number]), SETS))
    times = {name: each["us"] for name, each in cool(contestants).items()}
    return {"error": error, "right": error <= work.tolerance, **times}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints one line for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append")
    options = parser.parse_args(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    library = loader.load(str(Path(__file__).resolve().parent / "libstreams.so"))
    rows: dict[str, Any] = {}
    for name, work in WORK.items():
        if options.only and name not in options.only:
            continue
        made = rows[name] = measured(library.kernels[name], work)
        torch.cuda.empty_cache()
        beside = f"torch {made['torch']:7.1f}" if "torch" in made else "torch   -    "
        verdict = "" if made["right"] else "  WRONG"
        print(
            f"{name:15s} {made['tilec']:7.1f} us, {beside}, copy {made['copy']:7.1f}: "
            f"{made['copy'] / made['tilec']:.2f} of a copy, error {made['error']:.1e}{verdict}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
