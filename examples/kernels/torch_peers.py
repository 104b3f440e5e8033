"""What torch computes where kernels stand: measured beside them by `tilec bench --vs torch`."""

from __future__ import annotations

import torch
from torch.nn import functional


def matmul(A, B):
    """Twin of gemm.py:matmul."""
    return A @ B


def linear(A, W, bias):
    """Twin of gemm.py:linear without activation."""
    return functional.linear(A, W, bias)


def linear_int8(A, W, a_scale, w_scale):
    """Twin of gemm.py:linear_int8: oneDNN's quantised linear on a CPU, cuBLAS on a GPU; scales that they lack
    are multiplied behind them."""
    if A.is_cuda:
        return torch._int_mm(A, W.t()).float() * a_scale[:, None] * w_scale
    return linear_shifted(shifted(A), W, a_scale, w_scale)


def shifted(A):
    """int8 ``A`` as uint8 with zero at 128: oneDNN has fast code for that, for int8 only with AMX."""
    return A.view(torch.uint8) ^ 128


def linear_shifted(A, W, a_scale, w_scale):
    """:func:`linear_int8` on a CPU, of what :func:`shifted` gives."""
    zeros = torch.zeros(len(W), dtype=torch.int32)
    found = torch.ops.onednn.qlinear_pointwise(
        A, 1.0, 128, _packed_for_onednn(W), w_scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return found.mul_(a_scale[:, None])


def _packed_for_onednn(W):
    """The weights as oneDNN wants them, made once for each tensor, as engines do."""
    if W.data_ptr() not in _PACKED:
        _PACKED[W.data_ptr()] = (W, torch.ops.onednn.qlinear_prepack(W, None))
    return _PACKED[W.data_ptr()][1]


#: Packed weights by the address of the tensor, which is kept so that the address stays its own.
_PACKED = {}


def linear_gelu(A, W, bias):
    """Twin of gemm.py:linear with GELU."""
    return functional.gelu(functional.linear(A, W, bias))


def linear_silu(A, W, bias):
    """Twin of gemm.py:linear with SiLU."""
    return functional.silu(functional.linear(A, W, bias))


def linear_residual(A, W, bias, R):
    """Twin of gemm.py:linear_residual."""
    return functional.linear(A, W, bias) + R


def softmax(X):
    """Twin of softmax.py:softmax."""
    return torch.softmax(X, -1)


def rmsnorm(X, G):
    """Twin of norm.py:rmsnorm."""
    return functional.rms_norm(X, G.shape, G, 1e-6)


def rmsnorm_residual(X, R, G):
    """Twin of norm.py:rmsnorm_residual."""
    H = X + R
    return functional.rms_norm(H, G.shape, G, 1e-6), H


def layernorm(X, G, B):
    """Twin of norm.py:layernorm."""
    return functional.layer_norm(X, G.shape, G, B)


def layernorm_residual(X, R, G, B):
    """Twin of norm.py:layernorm_residual."""
    return functional.layer_norm(X + R, G.shape, G, B)


def silu_mul(gate, up):
    """Twin of elementwise.py:silu_mul."""
    return functional.silu(gate) * up


def attention_dense(Q, K, V, causal=False):
    """Twin of attention.py:attention_dense, without log-sum-exp."""
    heads_first = (x.transpose(1, 2) for x in (Q, K, V))
    found = functional.scaled_dot_product_attention(
        *heads_first, is_causal=causal, enable_gqa=Q.shape[2] != K.shape[2]
    )
    return found.transpose(1, 2)


def attention_dense_causal(Q, K, V):
    """Twin of attention.py:attention_dense with ``causal``."""
    return attention_dense(Q, K, V, causal=True)


def embedding(ids, table):
    """Twin of embedding.py:embedding."""
    return functional.embedding(ids, table)
