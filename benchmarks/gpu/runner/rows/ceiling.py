"""How fast device memory can be read: a kernel that sums what it reads, as a peer of work that reads once."""

from __future__ import annotations

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # the rows that it stands in then say so
    triton = None

_BLOCK, _STEPS = 4096, 4  # with 8 warps the best of four choices on an H200, by 1 %


def read_pair(first: torch.Tensor, second: torch.Tensor) -> None:
    """Reads all bytes of two contiguous tensors of one size once, in one launch.

    Raises:
        RuntimeError: without Triton.
    """
    if triton is None:
        raise RuntimeError("a read-only kernel needs Triton")
    words = first.view(-1).view(torch.int32)
    apart = (second.data_ptr() - first.data_ptr()) // 4
    sink = _sink.setdefault(words.device, torch.zeros(1, dtype=torch.int32, device=words.device))
    grid = (-(-words.numel() // (_BLOCK * _STEPS)), 2)
    _read[grid](words, sink, words.numel(), apart, _BLOCK, _STEPS, num_warps=8)


_sink: dict[torch.device, torch.Tensor] = {}

if triton is not None:

    @triton.jit
    def _read(words, sink, count, apart, BLOCK: tl.constexpr, STEPS: tl.constexpr):
        base = words + tl.program_id(1).to(tl.int64) * apart
        first = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS)
        total = tl.zeros((BLOCK,), tl.int32)
        for step in tl.static_range(STEPS):
            place = first + step * BLOCK + tl.arange(0, BLOCK)
            total += tl.load(base + place, mask=place < count, other=0)
        answer = tl.sum(total)
        if answer == -1234567891:  # a store that the compiler cannot leave out, and that hardly ever happens
            tl.store(sink, answer)
