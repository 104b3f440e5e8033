"""Work that device memory bounds, beside torch and a copy of as many bytes by the library itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from rows.row import Peer, Row, random

_EPS = 1e-6
_EXPERTS = 8  # of each token
Tensors = dict[str, torch.Tensor]


def rows() -> list[Row]:
    """Elementwise work, rows, lookups, scans."""
    return [
        *(scale_add(name, 1 << 26) for name in ("float32", "float16")),
        *(softmax(name, 8192, 8192) for name in ("float32", "float16")),
        softmax("float16", 1024, 50304),
        *(rmsnorm(name, 8192, 8192) for name in ("float32", "float16")),
        rmsnorm("bfloat16", 4096, 5120),
        rmsnorm_residual("float16", 8192, 8192),
        rmsnorm_residual("bfloat16", 4096, 5120),
        layernorm("float16", 8192, 8192),
        *(silu_mul(name, 8192, 14336) for name in ("float16", "bfloat16")),
        *(_rotary(name, 8192, 72, 128) for name in ("float16", "bfloat16")),
        _embedding("bfloat16", 16384, 32768, 4096),
        _mean_pool(4096, 128, 384),
        _gating(16384, 128),
        cumsum("float32", 4096, 8192),
    ]


def _row(
    kernel: str,
    dims: dict[str, int],
    make: Callable[[], dict[str, Any]],
    eager: Peer,
    moved: float,
    outputs: tuple[str, ...] = ("Y",),
    **others: Any,
) -> Row:
    """``eager`` is a peer as it is, and compiled."""
    peers = {"torch": eager, "torch.compile": torch.compile(eager, dynamic=False)}
    return Row(kernel, dims, make, outputs, peers, others.pop("flops", 0.0), moved, copied=True, **others)


def scale_add(name: str, n: int) -> Row:
    """a * X + B of n elements."""
    dtype = getattr(torch, name)

    def make() -> dict[str, Any]:
        return {"a": 1.5, **{key: random((n,), dtype) for key in ("X", "B", "Y")}}

    def eager(X: torch.Tensor, B: torch.Tensor, a: float, **_: Any) -> torch.Tensor:
        return torch.add(B, X, alpha=a)

    return _row(f"scale_add_{name}", {"n": n}, make, eager, 3.0 * n * dtype.itemsize, flops=2.0 * n)


def softmax(name: str, m: int, n: int) -> Row:
    """Of rows."""

    def eager(X: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.softmax(X, -1)

    make, moved = _matrices(name, m, n, ("X", "Y"))
    return _row(f"softmax_{name}", {"M": m, "N": n}, make, eager, moved)


def rmsnorm(name: str, m: int, n: int) -> Row:
    """Of rows, with a gain."""

    def eager(X: torch.Tensor, G: torch.Tensor, **_: Any) -> torch.Tensor:
        return F.rms_norm(X, (n,), G, _EPS)

    make, moved = _matrices(name, m, n, ("X", "Y"), ("G",))
    return _row(f"rmsnorm_{name}", {"M": m, "N": n}, make, eager, moved)


def rmsnorm_residual(name: str, m: int, n: int) -> Row:
    """Of a sum, which is stored, too."""

    def eager(X: torch.Tensor, R: torch.Tensor, G: torch.Tensor, **_: Any) -> tuple[torch.Tensor, ...]:
        total = X + R
        return F.rms_norm(total, (n,), G, _EPS), total

    make, moved = _matrices(name, m, n, ("X", "R", "Y", "H"), ("G",))
    return _row(f"rmsnorm_residual_{name}", {"M": m, "N": n}, make, eager, moved, ("Y", "H"))


def layernorm(name: str, m: int, n: int) -> Row:
    """Of rows, with gain and bias."""

    def eager(X: torch.Tensor, G: torch.Tensor, B: torch.Tensor, **_: Any) -> torch.Tensor:
        return F.layer_norm(X, (n,), G, B, 1e-5)

    make, moved = _matrices(name, m, n, ("X", "Y"), ("G", "B"))
    return _row(f"layernorm_{name}", {"M": m, "N": n}, make, eager, moved)


def _matrices(
    name: str, m: int, n: int, matrices: tuple[str, ...], vectors: tuple[str, ...] = ()
) -> tuple[Callable[[], Tensors], float]:
    """What makes matrices of m rows and vectors of n, and the bytes of both."""
    dtype = getattr(torch, name)

    def make() -> Tensors:
        made = {key: random((m, n), dtype) for key in matrices}
        return made | {key: random((n,), dtype) for key in vectors}

    return make, float((len(matrices) * m + len(vectors)) * n * dtype.itemsize)


def silu_mul(name: str, m: int, n: int) -> Row:
    """Both operands are halves of one fused product."""
    dtype = getattr(torch, name)

    def make() -> Tensors:
        fused = random((m, 2 * n), dtype)
        return {"gate": fused[:, :n], "up": fused[:, n:], "Y": random((m, n), dtype)}

    def eager(gate: torch.Tensor, up: torch.Tensor, **_: Any) -> torch.Tensor:
        return F.silu(gate) * up

    return _row(f"silu_mul_{name}", {"M": m, "N": n}, make, eager, 3.0 * m * n * dtype.itemsize)


def _rotary(name: str, tokens: int, heads: int, size: int) -> Row:
    dtype = getattr(torch, name)
    longest, half = 2 * tokens, size // 2

    def make() -> Tensors:
        rates = 10000.0 ** (-torch.arange(half, device="cuda") / half)
        angles = torch.arange(longest, device="cuda")[:, None] * rates
        shape = (tokens, heads, size)
        places = torch.randperm(longest, device="cuda")[:tokens].int()
        tables = {"cos": angles.cos(), "sin": angles.sin(), "positions": places}
        return {"X": random(shape, dtype), "Y": random(shape, dtype), **tables}

    def eager(
        X: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor, **_: Any
    ) -> Any:
        c, s = (table[positions.long()].unsqueeze(1) for table in (cos, sin))
        a, b = X[..., :half].float(), X[..., half:].float()
        return torch.cat([a * c - b * s, b * c + a * s], -1).to(X.dtype)

    dims = {"tokens": tokens, "H": heads, "D": size}
    return _row(f"rotary_{name}", dims, make, eager, 2.0 * tokens * heads * size * dtype.itemsize)


def _embedding(name: str, tokens: int, words: int, size: int) -> Row:
    dtype = getattr(torch, name)

    def make() -> Tensors:
        ids = torch.randint(0, words, (tokens,), device="cuda", dtype=torch.int32)
        return {"ids": ids, "table": random((words, size), dtype), "Y": random((tokens, size), dtype)}

    def eager(ids: torch.Tensor, table: torch.Tensor, **_: Any) -> torch.Tensor:
        return F.embedding(ids, table)

    dims = {"tokens": tokens, "V": words, "D": size}
    return _row(f"embedding_{name}", dims, make, eager, 2.0 * tokens * size * dtype.itemsize)


def _mean_pool(sentences: int, length: int, size: int) -> Row:
    tokens = sentences * length

    def make() -> Tensors:
        starts = torch.arange(0, tokens, length, device="cuda", dtype=torch.int32)
        made = {"X": random((tokens, size), torch.float32), "Y": random((sentences, size), torch.float32)}
        return {**made, "starts": starts, "lengths": torch.full_like(starts, length)}

    def eager(X: torch.Tensor, **_: Any) -> torch.Tensor:
        return F.normalize(X.view(sentences, length, size).mean(1))

    dims = {"tokens": tokens, "B": sentences, "D": size}
    return _row("mean_pool", dims, make, eager, 4.0 * tokens * size)


def _gating(tokens: int, experts: int) -> Row:
    def make() -> Tensors:
        chosen = torch.zeros((tokens, _EXPERTS), device="cuda", dtype=torch.int32)
        made = {"scores": random((tokens, experts), torch.float32), "experts": chosen}
        return {**made, "weights": random((tokens, _EXPERTS), torch.float32)}

    def eager(scores: torch.Tensor, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        best = torch.topk(torch.softmax(scores, -1), _EXPERTS)
        return best.values / best.values.sum(-1, keepdim=True), best.indices

    dims = {"M": tokens, "E": experts}
    return _row(
        "topk_gating", dims, make, eager, 4.0 * tokens * (experts + 2 * _EXPERTS), ("weights", "experts")
    )


def cumsum(name: str, m: int, n: int) -> Row:
    """Along rows."""

    def eager(X: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.cumsum(X, -1)

    make, moved = _matrices(name, m, n, ("X", "Y"))
    return _row(f"cumsum_{name}", {"M": m, "N": n}, make, eager, moved)
