"""NumPy that the references of several families share: any float type in, float32 out."""

from __future__ import annotations

import numpy as np

LOG2_E = 1.44269504


def wide(array):
    """The array in float32."""
    return np.asarray(array).astype(np.float32)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def visible(queries, keys, causal=False, window=None):
    """Which key a query sees: (queries, keys) of bool. The last query sees the last key; ``window`` is the
    number of latest keys."""
    distance = np.arange(queries)[:, None] + (keys - queries) - np.arange(keys)[None, :]
    seen = np.ones((queries, keys), bool)
    if causal:
        seen &= distance >= 0
    if window is not None:
        seen &= distance < window
    return seen


def attend(q, k, v, seen=None, scale=None, sink=None):
    """Output, natural log-sum-exp and weights of one head: q (M, D), k (N, D), v (N, Dv). ``sink`` is a logit
    that takes weight and gives nothing; rows that see nothing give zeros."""
    q, k, v = wide(q), wide(k), wide(v)
    scores = q @ k.T * (q.shape[-1] ** -0.5 if scale is None else scale)
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink)
    top = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True) + (np.exp(sink - top) if sink is not None else 0.0)
    safe = np.where(total > 0, total, 1.0)
    with np.errstate(divide="ignore"):
        return weights @ v / safe, (top + np.log(total))[:, 0], weights / safe


def attend_backward(q, k, v, do, seen=None, scale=None):
    """dq, dk, dv of one head."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out, _, p = attend(q, k, v, seen, scale)
    q, k, v, do = wide(q), wide(k), wide(v), wide(do)
    ds = p * (do @ v.T - (do * out).sum(-1, keepdims=True)) * scale
    return ds @ k, ds.T @ q, p.T @ do
