"""Tensors, dims and peers of every row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import peers
import torch
import torch_peers
from table import Row

Calls = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Case:
    """``args`` in the order of the kernel's signature; ``out`` is the number of the tensor that is checked
    beside ``expected`` (None: nothing to check against), ``peers`` what is timed beside the kernel."""

    args: list[Any]
    dims: dict[str, int]
    peers: Calls
    expected: Callable[[], torch.Tensor] | None
    tolerance: float = 1e-3
    out: int = -1


def case_of(row: Row) -> Case:
    """The case of a row, its inputs drawn by a fixed seed."""
    torch.manual_seed(0)
    return _CASES[row.kernel](*row.shape)


def _matmul(m: int, n: int, k: int) -> Case:
    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
    return Case([a, b, c], _mnk(m, n, k), peers.products(a, b), lambda: torch.mm(a, b), 1e-4 * k)


def _linear_bfloat16(m: int, n: int, k: int) -> Case:
    a, w, bias = (torch.randn(shape).bfloat16() for shape in ((m, k), (n, k), (n,)))
    c = torch.empty(m, n, dtype=torch.bfloat16)
    return _of_torch([a, w, bias, c], _mnk(m, n, k), torch_peers.linear, 0.02 * k**0.5)


def _linear_int8(m: int, n: int, k: int) -> Case:
    """Checked beside a product in float32: oneDNN saturates sums of two products on CPUs without VNNI."""
    a, w = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((m, k), (n, k)))
    scales = [torch.rand(count) / k for count in (m, n)]
    tensors = [a, w, *scales, torch.empty(m, n)]

    def expected() -> torch.Tensor:
        return (a.float() @ w.float().T) * scales[0][:, None] * scales[1]

    return Case(tensors, _mnk(m, n, k), peers.products_int8(a, w, *scales), expected)


def _linear_gelu(m: int, n: int, k: int) -> Case:
    tensors = [torch.randn(m, k), torch.randn(n, k) / k**0.5, torch.randn(n), torch.empty(m, n)]
    return _of_torch(tensors, _mnk(m, n, k), torch_peers.linear_gelu)


def _packed(bits: int) -> Callable[..., Case]:
    def case(m: int, n: int, k: int) -> Case:
        kinds = {4: torch.uint8, 8: torch.int8}
        w = torch.randint(-128, 128, (n, k * bits // 8)).to(kinds[bits])
        scales = torch.rand(k // 128, n).half()
        return _of_bytes([w, scales], _mnk(m, n, k))

    return case


def _groups(group: int) -> Callable[..., Case]:
    def case(m: int, n: int, k: int) -> Case:
        w = torch.randint(0, 256, (n, k // 2)).to(torch.uint8)
        return _of_bytes([w, torch.rand(n, k // group).half()], _mnk(m, n, k))

    return case


def _gguf(size: int, stored: int, floats: int) -> Callable[..., Case]:
    """Blocks of ``size`` weights in ``stored`` bytes, which begin with some 16-bit floats."""

    def case(m: int, n: int, k: int) -> Case:
        w = torch.randint(0, 256, (n, k // size, stored), dtype=torch.uint8)
        w[..., : 2 * floats] = torch.rand(n, k // size, floats).half().view(torch.uint8)
        return _of_bytes([w], _mnk(m, n, k))

    return case


def _of_bytes(weights: list[torch.Tensor], dims: dict[str, int]) -> Case:
    """Weights of few bits times 16-bit activations, beside reading as many bytes (one row) or torch's
    products with weights of bfloat16 and float32. Tests hold the results to references."""
    m, n, k = dims.values()
    a = torch.randn(m, k)
    calls: dict[str, Callable[[], object]]
    if m == 1:
        words = torch.zeros(sum(part.nbytes for part in weights) // 4)
        calls = {"reading": lambda: torch.sum(words)}
    else:
        kinds, w = (torch.bfloat16, torch.float32), torch.randn(n, k)
        pairs = {str(kind): (a.to(kind), w.to(kind)) for kind in kinds}
        calls = {name: partial(torch.nn.functional.linear, *pair) for name, pair in pairs.items()}
    tensors = [a.half(), *weights, torch.empty(m, n, dtype=torch.float16)]
    return Case(tensors, dims, calls, None)


def _mnk(m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k}


def _dense(b: int, sq: int, sk: int, h: int, d: int) -> Case:
    q, k, v = _heads(b, sq, sk, h, d, torch.bfloat16)
    tensors = [q, k, v, torch.empty_like(q), torch.empty(b, h, sq)]
    calls = {"torch": lambda: torch_peers.attention_dense(q, k, v)}
    return Case(tensors, _attention_dims(b, sq, sk, h, d), calls, calls["torch"], 3e-2, out=3)


def _padded(b: int, sq: int, sk: int, h: int, d: int) -> Case:
    q, k, v = _heads(b, sq, sk, h, d, torch.float32)
    tensors = [q, k, v, torch.full((b,), sk, dtype=torch.int32), torch.empty_like(q)]
    calls = {"torch": lambda: torch_peers.attention_dense(q, k, v)}
    return Case(tensors, _attention_dims(b, sq, sk, h, d), calls, calls["torch"])


def _heads(b: int, sq: int, sk: int, h: int, d: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(b, length, h, d).to(dtype) for length in (sq, sk, sk)]


def _attention_dims(b: int, sq: int, sk: int, h: int, d: int) -> dict[str, int]:
    pitches = {"q_batch": sq * h * d, "q_row": h * d, "kv_batch": sk * h * d, "kv_row": h * d}
    return {"B": b, "Sq": sq, "Sk": sk, "H": h, "Hkv": h, "D": d, **pitches}


#: Rows of a page of a cache.
_PAGE = 16


def _decoding(cache: torch.dtype, per: str = "") -> Callable[..., Case]:
    """One query for each sequence over pages in any order, beside torch's attention with a mask on what it
    gathers of them, and on a cache of bfloat16 that has no pages. ``per``: what scales are for."""

    def case(b: int, keys: int, heads: int, group: int, d: int, window: int) -> Case:
        pages, q = b * keys // _PAGE, torch.randn(b, heads, group, d).bfloat16()
        table = torch.randperm(pages, dtype=torch.int32).view(b, -1)
        lengths = torch.full((b,), keys - 5, dtype=torch.int32)
        kept = [_numbers((pages, _PAGE, heads, d), cache) for _ in range(2)]
        scales = [torch.rand((pages, _PAGE, heads) if per == "token" else heads) / 60 for _ in range(2)]
        scales, windows = (scales, [window]) if per else ([], [])
        gathered = partial(_gathered, kept, scales, table)
        k, v = (rows.contiguous() for rows in gathered())
        places = torch.arange(keys)
        mask = (places < lengths[:, None]) & (places >= lengths[:, None] - window)
        attend = partial(peers.attention, mask=mask[:, None, None])
        calls = {"torch": lambda: attend(q, *gathered()), "contiguous": lambda: attend(q, k, v)}
        dims = {"B": b, "Hkv": heads, "D": d, "pages": pages, "longest": keys // _PAGE, "group": group}
        pitches = {"page": _PAGE, "kv_page": _PAGE * heads * d, "kv_row": heads * d, "kv_head": d}
        args = [q, *kept, *scales, table, lengths, *windows, torch.empty_like(q)]
        return Case(args, dims | pitches, calls, calls["torch"], 1e-2)

    return case


def _numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.int8:
        return torch.randint(-127, 128, shape, dtype=dtype)
    return (torch.randn(shape) * (1 if dtype is torch.bfloat16 else 60)).to(dtype)


def _gathered(
    kept: list[torch.Tensor], scales: list[torch.Tensor], table: torch.Tensor
) -> list[torch.Tensor]:
    """The rows of each sequence as bfloat16 (B, heads, keys, D)."""
    places, found = table.long(), []
    for number, cache in enumerate(kept):
        rows = cache.view(torch.uint8)[places].view(cache.dtype)
        if scales:
            factors = scales[number] if scales[number].ndim == 1 else scales[number][places]
            rows = (rows.float() * factors[..., None]).bfloat16()
        found.append(rows.flatten(1, 2).transpose(1, 2))
    return found


def _varlen(causal: bool) -> Callable[..., Case]:
    """Sequences back to back beside torch's attention of one after the other, and of all with padding and a
    mask."""

    def case(lengths: tuple[int, ...], heads: int, kv_heads: int, d: int) -> Case:
        tokens, longest = sum(lengths), max(lengths)
        q, k, v = (torch.randn(tokens, count, d).bfloat16() for count in (heads, kv_heads, kv_heads))
        bounds = torch.tensor([0, *lengths]).cumsum(0).int()
        alone = partial(peers.attention_of_each, q, k, v, lengths, causal)
        padded = peers.Padded((q, k, v), lengths, causal)
        calls = {"torch": alone, "padded": padded.attention}
        dims = {"tokens": tokens, "keys": tokens, "H": heads, "Hkv": kv_heads, "D": d, "B": len(lengths)}
        args = [q, k, v, bounds, bounds, longest, torch.empty_like(q), torch.empty(heads, tokens)]
        return Case(args, dims, calls, alone, 3e-2, out=6)

    return case


def _softmax(m: int, n: int) -> Case:
    return _of_torch([torch.randn(m, n), torch.empty(m, n)], _row_dims(m, n), torch_peers.softmax)


def _rmsnorm(m: int, n: int) -> Case:
    return _of_torch(
        [torch.randn(m, n), torch.randn(n), torch.empty(m, n)], _row_dims(m, n), torch_peers.rmsnorm
    )


def _layernorm(m: int, n: int) -> Case:
    tensors = [torch.randn(m, n), torch.randn(n), torch.randn(n), torch.empty(m, n)]
    return _of_torch(tensors, _row_dims(m, n), torch_peers.layernorm)


def _row_dims(m: int, n: int) -> dict[str, int]:
    return {"M": m, "N": n, "ldx": n}


def _silu_mul(m: int, n: int) -> Case:
    tensors = [torch.randn(m, n), torch.randn(m, n), torch.empty(m, n)]
    return _of_torch(tensors, {"M": m, "N": n, "ldg": n, "ldu": n}, torch_peers.silu_mul)


def _rotary(tokens: int, heads: int, d: int) -> Case:
    x, angles = torch.randn(tokens, heads, d), torch.randn(tokens, d // 2)
    cos, sin, places = angles.cos(), angles.sin(), torch.arange(tokens, dtype=torch.int32)
    dims = {"tokens": tokens, "H": heads, "D": d, "S": tokens, "ldx": heads * d, "ldy": heads * d}
    calls = {"torch": lambda: peers.rotary(x, cos, sin, places)}
    return Case([x, cos, sin, places, torch.empty_like(x)], dims, calls, calls["torch"])


def _cumsum(m: int, n: int) -> Case:
    return _of_torch([torch.randn(m, n), torch.empty(m, n)], _row_dims(m, n), lambda x: torch.cumsum(x, 1))


def _gating(tokens: int, experts: int) -> Case:
    """The eight largest, as manifests/llm.toml has it."""
    scores, weights = torch.randn(tokens, experts), torch.empty(tokens, 8)
    tensors = [scores, weights, torch.empty(tokens, 8, dtype=torch.int32)]
    calls = {"torch": lambda: peers.gating(scores, 8)}
    return Case(tensors, {"M": tokens, "E": experts}, calls, calls["torch"], out=1)


def _embedding(tokens: int, rows: int, d: int) -> Case:
    ids = torch.randint(0, rows, (tokens,), dtype=torch.int32)
    tensors = [ids, torch.randn(rows, d), torch.empty(tokens, d)]
    return _of_torch(tensors, {"tokens": tokens, "V": rows, "D": d}, torch_peers.embedding)


def _argmax(m: int, n: int) -> Case:
    tensors = [torch.randn(m, n), torch.empty(m, dtype=torch.int32)]
    return _of_torch(tensors, _row_dims(m, n), lambda x: torch.argmax(x, 1))


def _of_torch(
    tensors: list[torch.Tensor],
    dims: dict[str, int],
    twin: Callable[..., torch.Tensor],
    tolerance: float = 1e-3,
) -> Case:
    """Beside a function of torch on the same inputs."""
    calls = {"torch": lambda: twin(*tensors[:-1])}
    return Case(tensors, dims, calls, calls["torch"], tolerance)


_CASES: Mapping[str, Callable[..., Case]] = {
    "matmul_float32": _matmul,
    "linear_bfloat16": _linear_bfloat16,
    "linear_int8": _linear_int8,
    "linear_packed_w4a16": _packed(4),
    "linear_packed_w8a16": _packed(8),
    "linear_w4a8_g32": _groups(32),
    "linear_w4a8_g128": _groups(128),
    "linear_w4a16_g32": _groups(32),
    "linear_q4_0": _gguf(32, 18, 1),
    "linear_q4_k": _gguf(256, 144, 2),
    "attention_dense_bfloat16": _dense,
    "attention_float32": _padded,
    "decode_paged_bfloat16": _decoding(torch.bfloat16),
    "decode_paged_int8_token": _decoding(torch.int8, "token"),
    "decode_paged_int8_head": _decoding(torch.int8, "head"),
    "decode_paged_float8_e4m3fn_token": _decoding(torch.float8_e4m3fn, "token"),
    "attention_varlen_bfloat16": _varlen(causal=False),
    "attention_varlen_causal_bfloat16": _varlen(causal=True),
    "softmax_float32": _softmax,
    "rmsnorm_float32": _rmsnorm,
    "layernorm": _layernorm,
    "silu_mul_float32": _silu_mul,
    "linear_gelu_float32": _linear_gelu,
    "rotary_float32": _rotary,
    "cumsum": _cumsum,
    "topk_gating": _gating,
    "embedding_float32": _embedding,
    "argmax": _argmax,
}
