"""Products of quantised weights: 4 and 8 bits with a scale per group, 8 bits with one per block; experts."""

from __future__ import annotations

from typing import Any

import torch

from rows.ceiling import read_pair
from rows.row import Row, random

GROUP = 128
_WEIGHTS = (14336, 4096)
#: Up to so many tokens reading the weights is most of the work.
_FEW = 64
#: Bytes of weights that rows which only read them go through in turn.
_ROTATED = 512 << 20


def rows() -> list[Row]:
    """Few tokens beside cuBLAS on 16-bit weights and beside reading the packed ones once; blocks and experts
    beside torch."""
    return [
        *(
            packed("linear_packed_w4a16", 4, torch.float16, (tokens, *_WEIGHTS))
            for tokens in (1, 8, 16, 32, 64, 4096)
        ),
        *(
            packed("linear_packed_w8a16", 8, torch.bfloat16, (tokens, *_WEIGHTS))
            for tokens in (1, 8, 16, 4096)
        ),
        *(blocks(*shape) for shape in ((128, 4096, 7168), (4096, 4096, 4096), (8192, 8192, 8192))),
        integers(4096, 4096, 4096),
        *(_experts(tokens, 8, 14336, 4096) for tokens in (256, 8192)),
    ]


# ---- packed weights ----


def packed(kernel: str, bits: int, dtype: torch.dtype, sizes: tuple[int, int, int], part: int = GROUP) -> Row:
    """Weights of 4 or 8 bits, a scale for ``part`` of them; ``sizes``: tokens, features and the depth, a
    multiple of `GROUP`."""
    tokens, features, depth = sizes
    shape = (features, depth * bits // 8)
    stored = torch.uint8 if bits == 4 else torch.int8

    def make() -> dict[str, torch.Tensor]:
        weights = torch.randint(0, 256, shape, device="cuda", dtype=torch.uint8).view(stored)
        scales = (torch.rand((depth // part, features), device="cuda") + 0.5) / (2**bits * depth**0.5 / 4)
        made = {"A": random((tokens, depth), dtype), "W": weights, "scales": scales.to(dtype)}
        wide = {"wide": _unpacked(weights, made["scales"], bits)}
        return {**made, "C": random((tokens, features), dtype), **wide}

    def cublas(A: torch.Tensor, wide: torch.Tensor, C: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.matmul(A, wide.T, out=C)

    size, few = shape[0] * shape[1], tokens <= _FEW
    reading = {"read only": lambda W, **_: read_pair(*W.chunk(2))}
    return Row(
        kernel,
        {"M": tokens, "N": features, "K": depth},
        make,
        ("C",),
        {"cuBLAS, 16-bit weights": cublas, **(reading if few else {})},
        2.0 * tokens * features * depth,
        float(size),
        reference=lambda A, wide, **_: A.float() @ wide.float().T,
        sets=-(-_ROTATED // size) if few else 0,
    )


def _unpacked(packed: torch.Tensor, scales: torch.Tensor, bits: int) -> torch.Tensor:
    """The weights that packed ones stand for."""
    ordered = packed
    if bits == 4:
        ordered = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).to(torch.int8) - 8
    place = _place(torch.arange(GROUP, device=packed.device), bits)
    numbers = ordered.unflatten(1, (-1, GROUP))[..., place].flatten(1)
    parts = scales.T.repeat_interleave(numbers.shape[1] // len(scales), 1)
    return (numbers * parts).to(scales.dtype)


def _place(k: torch.Tensor, bits: int) -> torch.Tensor:
    """Where weight k of a group lies (examples/kernels/quantised_packed.py)."""
    low, lane, half = k % 2, k // 2 % 4, k // 8 % 2
    if bits == 8:
        return lane * 32 + k // 16 * 4 + half * 2 + low
    return lane * 32 + k // 32 * 8 + k // 16 % 2 * 2 + half + low * 4


# ---- 8-bit operands ----


def blocks(m: int, n: int, k: int) -> Row:
    """8-bit floats with a scale for a row, or for a block of weights, and 128 along K."""
    depths = -(-k // GROUP)

    def make() -> dict[str, torch.Tensor]:
        a, w = (random((rows, k), torch.float8_e4m3fn) for rows in (m, n))
        a_scale = torch.rand((m, depths), device="cuda") + 0.5
        w_scale = torch.rand((-(-n // GROUP), depths), device="cuda") + 0.5
        turned = {"a_turned": a_scale.T.contiguous().T, "w_turned": w_scale.T}
        return {
            "A": a,
            "W": w,
            "a_scale": a_scale,
            "w_scale": w_scale,
            **turned,
            "C": random((m, n), torch.bfloat16),
        }

    def torch_blocks(A: torch.Tensor, W: torch.Tensor, **scales: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(
            A, W.T, scale_a=scales["a_turned"], scale_b=scales["w_turned"], out_dtype=torch.bfloat16
        )

    def reference(
        A: torch.Tensor, W: torch.Tensor, a_scale: torch.Tensor, w_scale: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        wide = W.float() * w_scale.repeat_interleave(GROUP, 0).repeat_interleave(GROUP, 1)[:n, :k]
        return (A.float() * a_scale.repeat_interleave(GROUP, 1)[:, :k]) @ wide.T

    dims = {"M": m, "N": n, "K": k}
    peers = {"torch _scaled_mm, blocks": torch_blocks}
    moved = float(m * k + n * k + 2 * m * n)
    return Row("linear_fp8_blocks", dims, make, ("C",), peers, 2.0 * m * n * k, moved, reference=reference)


def integers(m: int, n: int, k: int) -> Row:
    """8-bit integers with a scale for each row of both."""

    def make() -> dict[str, torch.Tensor]:
        a, w = (torch.randint(-127, 128, (rows, k), device="cuda", dtype=torch.int8) for rows in (m, n))
        scales = {
            name: torch.rand(size, device="cuda") + 0.5 for name, size in (("a_scale", m), ("w_scale", n))
        }
        return {"A": a, "W": w, **scales, "C": random((m, n), torch.float32)}

    def reference(
        A: torch.Tensor, W: torch.Tensor, a_scale: torch.Tensor, w_scale: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        return (A.double() @ W.double().T).float() * a_scale[:, None] * w_scale

    peers = {"torch _int_mm, unscaled": lambda A, W, **_: torch._int_mm(A, W.T)}
    dims = {"M": m, "N": n, "K": k}
    moved = float(m * k + n * k + 4 * m * n)
    return Row("linear_int8", dims, make, ("C",), peers, 2.0 * m * n * k, moved, reference=reference)


# ---- experts ----


def _experts(tokens: int, experts: int, n: int, k: int) -> Row:
    def make() -> dict[str, torch.Tensor]:
        cuts = torch.randint(0, tokens + 1, (experts - 1,), device="cuda").sort().values
        ends = torch.tensor([tokens], device="cuda")
        offsets = torch.cat([torch.zeros_like(ends), cuts, ends]).int()
        tensors = {"A": random((tokens, k), torch.bfloat16), "W": random((experts, n, k), torch.bfloat16)}
        return {**tensors, "offsets": offsets, "C": random((tokens, n), torch.bfloat16)}

    def grouped(A: torch.Tensor, W: torch.Tensor, offsets: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch._grouped_mm(A, W.transpose(1, 2), offs=offsets[1:])

    def reference(A: torch.Tensor, W: torch.Tensor, offsets: torch.Tensor, **_: Any) -> torch.Tensor:
        bounds = offsets.tolist()
        pairs = zip(bounds[:-1], bounds[1:], W, strict=True)
        return torch.cat([A[first:end].float() @ weight.float().T for first, end, weight in pairs])

    dims = {"tokens": tokens, "N": n, "K": k, "G": experts}
    peers = {"torch _grouped_mm": grouped}
    flops, moved = 2.0 * tokens * n * k, 2.0 * (tokens * k + experts * n * k + tokens * n)
    return Row("linear_grouped", dims, make, ("C",), peers, flops, moved, reference=reference)
