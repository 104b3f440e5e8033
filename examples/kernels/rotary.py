"""Rotary position embedding of queries or keys, in the eager form."""

from __future__ import annotations

import numpy as np
from tile_math import f32

import tilec
import tilec.language as T


@tilec.jit
def rotary(
    X,
    cos,
    sin,
    positions,
    Y,
    interleaved: bool = False,
    dtype: str = "float32",
    rows: int = 4,
    heads: int = 1,
    threads: int = 128,
):
    """Turns the pairs of each head by the angle of its token's position.

    X and Y are (tokens, heads, D) whose tokens are ldx and ldy elements apart, so that X can be the Q or K
    slice of a fused projection and Y a slot of a cache. ``cos`` and ``sin`` are tables (S, D // 2). A pair is
    (d, d + D // 2), or (2d, 2d + 1) when ``interleaved``. A block turns ``heads`` heads of ``rows`` tokens.
    """
    tokens, H, D, S, ldx, ldy = T.const("tokens H D S ldx ldy")
    X: T.StridedTensor[[tokens, H, D], [ldx, D, 1], dtype]
    cos: T.Tensor[[S, D // 2], T.float32]
    sin: T.Tensor[[S, D // 2], T.float32]
    positions: T.Tensor[[tokens], T.int32]
    Y: T.StridedTensor[[tokens, H, D], [ldy, D, 1], dtype]
    half = D // 2
    with T.Kernel(T.ceildiv(H, heads), T.ceildiv(tokens, rows), threads=threads) as (bh, bt):
        for i, g, d in T.Parallel(rows, heads, half):
            t, h = bt * rows + i, bh * heads + g
            first, second = (2 * d, 2 * d + 1) if interleaved else (d, d + half)
            c, s = cos[positions[t], d], sin[positions[t], d]
            x = T.cast(X[t, h, first], "float32")
            y = T.cast(X[t, h, second], "float32")
            Y[t, h, first] = x * c - y * s
            Y[t, h, second] = y * c + x * s


def rotary_reference(X, cos, sin, positions):
    """NumPy twin of :func:`rotary` with pairs half a head apart."""
    x = f32(X)
    half = x.shape[-1] // 2
    c, s = cos[positions][:, None, :], sin[positions][:, None, :]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def rotary_interleaved_reference(X, cos, sin, positions):
    """NumPy twin of :func:`rotary` with ``interleaved`` pairs."""
    D = X.shape[-1]
    order = np.concatenate([np.arange(0, D, 2), np.arange(1, D, 2)])
    turned = np.empty(X.shape, np.float32)
    turned[..., order] = rotary_reference(X[..., order], cos, sin, positions)
    return turned


def rotary_inputs(dims, rng, dtype="float32"):
    """Angles of base 10000 and random positions below S."""
    tokens, heads, D, S = (dims[name] for name in ("tokens", "H", "D", "S"))
    rates = 10000.0 ** (-np.arange(D // 2) / (D // 2))
    angles = np.arange(S)[:, None] * rates[None, :]
    X = rng.standard_normal((tokens, heads, D)).astype(dtype)
    positions = rng.integers(0, S, tokens).astype(np.int32)
    return [X, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), positions]
