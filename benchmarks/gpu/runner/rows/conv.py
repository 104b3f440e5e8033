"""Convolutions with channels last and a bias beside cuDNN, with its bias and without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from rows.row import Peer, Row, random

# batch, pixels along each side, channels, filters, stride of 3 x 3 filters
_IMAGES = (
    (32, 56, 64, 64, 1),
    (32, 28, 128, 128, 1),
    (32, 14, 256, 256, 1),
    (32, 7, 512, 512, 1),
    (8, 64, 320, 320, 1),
    (8, 32, 640, 640, 1),
    (8, 16, 1280, 1280, 1),
    (8, 64, 320, 320, 2),
)
# batch, length, channels, filters, stride of 3 taps: the first layers of a speech encoder
_LINES = ((8, 3000, 128, 1280, 1), (8, 3000, 1280, 1280, 2))


def rows() -> list[Row]:
    """Images of residual and diffusion networks, lines of speech."""
    images = [_images(name, *shape) for name in ("float16", "bfloat16") for shape in _IMAGES]
    return [*images, *(_lines(*shape) for shape in _LINES)]


def _images(name: str, batch: int, size: int, channels: int, filters: int, stride: int) -> Row:
    count = (size - 1) // stride + 1
    shapes = {
        "X": (batch, size, size, channels),
        "K": (filters, 3, 3, channels),
        "Y": (batch, count, count, filters),
    }
    kernel = f"conv3x3_{name}" if stride == 1 else f"conv3x3_down_{name}"
    dims = {"N": batch, "H": size, "W": size, "C": channels, "F": filters}
    return _row(kernel, dims, shapes, getattr(torch, name), _conv2d(stride, lambda tensor: tensor))


def _lines(batch: int, length: int, channels: int, filters: int, stride: int) -> Row:
    count = (length - 1) // stride + 1
    shapes = {"X": (batch, length, channels), "K": (filters, 3, channels), "Y": (batch, count, filters)}
    dims = {"N": batch, "L": length, "C": channels, "F": filters}
    kernel = "conv1d_float16" if stride == 1 else "conv1d_down_float16"
    return _row(kernel, dims, shapes, torch.float16, _conv2d((1, stride), lambda tensor: tensor.unsqueeze(1)))


def _row(
    kernel: str, dims: dict[str, int], shapes: dict[str, tuple[int, ...]], dtype: torch.dtype, peer: Any
) -> Row:
    def make() -> dict[str, torch.Tensor]:
        tensors = {name: random(shape, dtype) for name, shape in shapes.items()}
        return {**tensors, "bias": random((dims["F"],), dtype)}

    def plain(bias: torch.Tensor, **tensors: torch.Tensor) -> torch.Tensor:
        return peer(bias=None, **tensors)

    elements = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
    flops = 2.0 * elements["Y"] * elements["K"] / dims["F"]
    moved = float(sum(elements.values()) * dtype.itemsize)
    peers: dict[str, Peer] = {"cuDNN": peer, "cuDNN, no bias": plain}
    return Row(kernel, dims, make, ("Y",), peers, flops, moved, sustained=flops > 1.0e11)


def _conv2d(stride: Any, view: Callable[[torch.Tensor], torch.Tensor]) -> Peer:
    """cuDNN's choice for tensors whose channels are last, seen as images by ``view``."""

    def run(X: torch.Tensor, K: torch.Tensor, bias: torch.Tensor | None, **_: Any) -> torch.Tensor:
        image, filters = (view(tensor).permute(0, 3, 1, 2) for tensor in (X, K))
        pad = tuple(extent // 2 for extent in filters.shape[2:])
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            found = F.conv2d(image, filters, bias, stride=stride, padding=pad)
        return found.permute(0, 2, 3, 1).squeeze(1) if X.dim() == 3 else found.permute(0, 2, 3, 1)

    return run
