"""What torch does of the same work: each function takes a kernel's arguments by name and gives calls to time;
what can be prepared is done before. ``torch_forward`` is taken off the time of ``torch``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensors = dict[str, Any]
Calls = dict[str, Callable[[], Any]]


def matmul_nn(t: Tensors) -> Calls:
    """C = A B."""
    return {"torch": lambda: t["A"] @ t["B"]}


def matmul_nt(t: Tensors) -> Calls:
    """C = A B^T."""
    return {"torch": lambda: t["A"] @ t["B"].T}


def matmul_tn(t: Tensors) -> Calls:
    """C = A^T B."""
    return {"torch": lambda: t["A"].T @ t["B"]}


def matmul_tt(t: Tensors) -> Calls:
    """C = A^T B^T."""
    return {"torch": lambda: t["A"].T @ t["B"].T}


def int8_nt(t: Tensors) -> Calls:
    """int32 sums."""
    return {"torch": lambda: torch._int_mm(t["A"], t["B"].T)}


def fp8_nt(t: Tensors) -> Calls:
    """One scale for each operand."""
    one = torch.ones((), device=t["A"].device)
    return {
        "torch": lambda: torch._scaled_mm(
            t["A"], t["B"].T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    }


def gated(t: Tensors) -> Calls:
    """Two products, then silu and a multiplication."""
    return {"torch": lambda: F.silu(t["A"] @ t["G"].T) * (t["A"] @ t["U"].T)}


def three_heads(t: Tensors) -> Calls:
    """Three products."""
    return {"torch": lambda: [t["X"] @ t[name] for name in ("Wq", "Wk", "Wv")]}


def chained(t: Tensors) -> Calls:
    """Two products, the middle in memory."""
    return {"torch": lambda: F.relu(t["A"] @ t["B"]) @ t["D"]}


def batched(t: Tensors) -> Calls:
    """By batch."""
    return {"torch": lambda: torch.bmm(t["A"], t["B"].transpose(1, 2))}


# ---- groups ----


def _ends_of(groups: torch.Tensor, count: int) -> torch.Tensor:
    """Where the rows of each group end, rows being in blocks of 128."""
    return (torch.bincount(groups.long(), minlength=count).cumsum(0) * 128).int()


def gathered_rows(t: Tensors) -> Calls:
    """Gathers, two grouped products, silu; rows of the last block that are not there count as well."""
    ends, rows = _ends_of(t["expert_of"], len(t["Gate"])), t["token_of"].long()
    gate, up = (t[name].transpose(1, 2) for name in ("Gate", "Up"))

    def call() -> torch.Tensor:
        picked = t["X"][rows]
        return F.silu(torch._grouped_mm(picked, gate, offs=ends)) * torch._grouped_mm(picked, up, offs=ends)

    return {"torch": call}


def scattered_rows(t: Tensors) -> Calls:
    """A grouped product, weights, an addition by rows."""
    ends, rows, weights = (
        _ends_of(t["expert_of"], len(t["Down"])),
        t["token_of"].long(),
        t["weights"][:, None],
    )
    down = t["Down"].transpose(1, 2)
    return {"torch": lambda: t["Y"].index_add_(0, rows, torch._grouped_mm(t["X"], down, offs=ends) * weights)}


def grouped_by_table(t: Tensors) -> Calls:
    """Where groups end is looked up before."""
    groups, ends = t["table"][:, 0].long(), t["table"][:, 2]
    last = torch.stack([ends[groups == group].max() for group in range(len(t["B"]))]).int()
    return {"torch": lambda: torch._grouped_mm(t["A"], t["B"], offs=last)}


def grouped_by_search(t: Tensors) -> Calls:
    """The table of ends is what torch wants."""
    return {"torch": lambda: torch._grouped_mm(t["A"], t["B"].transpose(1, 2), offs=t["ends"])}


def grouped_gradient(t: Tensors) -> Calls:
    """Rows of A and dC are the summed axis."""
    return {"torch": lambda: torch._grouped_mm(t["A"].T, t["dC"], offs=t["starts"][1:].contiguous())}


def convolution(t: Tensors) -> Calls:
    """By cuDNN, channels last."""
    x = t["X"].permute(0, 3, 1, 2)
    weights = t["Wt"].permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return {"torch": lambda: F.conv2d(x, weights, padding=1).permute(0, 2, 3, 1)}


# ---- attention by cuDNN ----


def _operands(t: Tensors, order: str) -> list[torch.Tensor]:
    """Q, K, V as batch, heads, rows, numbers; float8 in float16."""
    found = [t[name] if t[name].element_size() > 1 else t[name].half() for name in "QKV"]
    return [each.transpose(1, 2) for each in found] if order == "bshd" else found


def _fastest(q: torch.Tensor) -> contextlib.AbstractContextManager[None]:
    """cuDNN on a GPU; on a CPU torch chooses."""
    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if q.is_cuda else contextlib.nullcontext()


def _attention(order: str, causal: bool) -> Callable[[Tensors], Calls]:
    def peer(t: Tensors) -> Calls:
        q, k, v = _operands(t, order)
        grouped = q.shape[1] != k.shape[1]

        def call() -> torch.Tensor:
            with _fastest(q):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

        return {"torch": call}

    return peer


def attention_backward(t: Tensors) -> Calls:
    """Forward and backward, and the forward alone, which is taken off."""
    q, k, v = (each.detach().requires_grad_() for each in _operands(t, "bshd"))
    given = torch.randn_like(q)
    grouped = q.shape[1] != k.shape[1]

    def forward() -> torch.Tensor:
        with _fastest(q):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)

    return {"torch": lambda: torch.autograd.grad(forward(), (q, k, v), given), "torch_forward": forward}


PEERS: dict[str, Callable[[Tensors], Calls]] = {
    **{
        peer.__name__: peer
        for peer in (
            *(
                matmul_nn,
                matmul_nt,
                matmul_tn,
                matmul_tt,
                int8_nt,
                fp8_nt,
                gated,
                three_heads,
                chained,
                batched,
            ),
            *(gathered_rows, scattered_rows, grouped_by_table, grouped_by_search, grouped_gradient),
            *(convolution, attention_backward),
        )
    },
    "attention_bshd": _attention("bshd", False),
    "attention_causal_bshd": _attention("bshd", True),
    "attention_bhsd": _attention("bhsd", False),
    "attention_causal_bhsd": _attention("bhsd", True),
}
