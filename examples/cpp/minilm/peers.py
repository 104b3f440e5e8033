"""The same model in torch, eager and as a frozen graph: what the engine is compared with."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from batches import Batch
from torch import nn

HIDDEN, INNER, HEADS, LAYERS = 384, 1536, 12, 6
EPS = 1e-12

Encode = Callable[[Batch], np.ndarray]
#: Queries, keys and values (sentences, heads, length, size), and the mask (sentences, 1, 1, length) or None.
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, "torch.Tensor | None"], torch.Tensor]


def one_call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Attention by torch's own function for it."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=None if mask is None else mask.bool())


def spelled_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Attention by products and a softmax: the form that optimisers of transformer graphs look for."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + (1.0 - mask.to(q.dtype)) * -10000.0
    return torch.softmax(scores, -1) @ v


class Layer(nn.Module):
    """One layer of BERT: attention, then the feed-forward pair, each with residual and LayerNorm."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend
        self.query, self.key, self.value, self.out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.inner, self.outer = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.out_norm, self.outer_norm = (nn.LayerNorm(HIDDEN, eps=EPS) for _ in range(2))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """x (sentences, length, HIDDEN); mask: (sentences, 1, 1, length), None when it is all ones."""
        shape = (*x.shape[:2], HEADS, HIDDEN // HEADS)
        q, k, v = (p(x).view(shape).transpose(1, 2) for p in (self.query, self.key, self.value))
        context = self.attend(q, k, v, mask).transpose(1, 2).reshape(x.shape)
        x = self.out_norm(x + self.out(context))
        return self.outer_norm(x + self.outer(F.gelu(self.inner(x))))


class Encoder(nn.Module):
    """all-MiniLM-L6-v2: token ids to unit sentence vectors."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(30522, HIDDEN), nn.Embedding(512, HIDDEN)
        self.kind = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, eps=EPS)
        self.layers = nn.ModuleList(Layer(attend) for _ in range(LAYERS))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, is_padded: bool = True) -> torch.Tensor:
        """ids and mask int64 (sentences, length); ``is_padded`` False says that the mask is all ones."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.word(ids) + self.kind.weight[0] + self.position(positions))
        seen = mask[:, None, None, :] if is_padded else None
        for layer in self.layers:
            x = layer(x, seen)
        weights = mask[:, :, None].to(x.dtype)
        return F.normalize((x * weights).sum(1) / weights.sum(1), dim=1)


#: Names in the file to names here; {} is the layer.
_NAMES = {
    "embeddings.word_embeddings": "word",
    "embeddings.position_embeddings": "position",
    "embeddings.token_type_embeddings": "kind",
    "embeddings.LayerNorm": "norm",
    "encoder.layer.{}.attention.self.query": "layers.{}.query",
    "encoder.layer.{}.attention.self.key": "layers.{}.key",
    "encoder.layer.{}.attention.self.value": "layers.{}.value",
    "encoder.layer.{}.attention.output.dense": "layers.{}.out",
    "encoder.layer.{}.attention.output.LayerNorm": "layers.{}.out_norm",
    "encoder.layer.{}.intermediate.dense": "layers.{}.inner",
    "encoder.layer.{}.output.dense": "layers.{}.outer",
    "encoder.layer.{}.output.LayerNorm": "layers.{}.outer_norm",
}


def load_model(weights: Path, attend: Attend = one_call) -> Encoder:
    """The torch module with the weights of the file; every parameter must be there."""
    from safetensors.torch import load_file

    return model_of(load_file(str(weights)), attend)


def model_of(stored: dict[str, torch.Tensor], attend: Attend = one_call) -> Encoder:
    """The torch module with these tensors, by their names in the file."""
    names = {there.format(i): here.format(i) for there, here in _NAMES.items() for i in range(LAYERS)}
    state = {f"{names[stem]}.{leaf}": tensor for stem, leaf, tensor in _split(stored) if stem in names}
    model = Encoder(attend)
    model.load_state_dict(state)
    return model.eval()


def _split(stored: dict[str, torch.Tensor]) -> list[tuple[str, str, torch.Tensor]]:
    return [(*name.rpartition(".")[::2], tensor) for name, tensor in stored.items()]


def torch_peer(model: Encoder, threads: int) -> Encode:
    """Eager torch in inference mode; an all-ones mask is left out, as frameworks do."""

    def encode(batch: Batch) -> np.ndarray:
        torch.set_num_threads(threads)
        is_padded = bool((batch.lengths < batch.ids.shape[1]).any())
        with torch.inference_mode():
            ids = torch.from_numpy(batch.ids.astype(np.int64))
            return model(ids, torch.from_numpy(batch.mask), is_padded).numpy()

    return encode


def frozen_peer(model: Encoder, threads: int) -> Encode:
    """torch's graph of the model with its weights frozen and packed for oneDNN: one for padded batches, one
    without a mask."""
    sample = torch.randint(1000, 30522, (3, 17))
    mask = torch.ones_like(sample)
    graphs = {padded: _frozen(model, sample, mask, padded) for padded in (True, False)}

    def encode(batch: Batch) -> np.ndarray:
        torch.set_num_threads(threads)
        graph = graphs[bool((batch.lengths < batch.ids.shape[1]).any())]
        with torch.inference_mode():
            return graph(torch.from_numpy(batch.ids.astype(np.int64)), torch.from_numpy(batch.mask)).numpy()

    return encode


class _WithMask(nn.Module):
    """The model with its last argument set, as a trace wants tensors alone."""

    def __init__(self, model: Encoder, is_padded: bool) -> None:
        super().__init__()
        self.model, self.is_padded = model, is_padded

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(ids, mask, self.is_padded)


def _frozen(model: Encoder, ids: torch.Tensor, mask: torch.Tensor, is_padded: bool) -> torch.nn.Module:
    with warnings.catch_warnings():  # of later releases, in which another way will be the only one
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(_WithMask(model, is_padded).eval(), (ids, mask))
        return torch.jit.optimize_for_inference(torch.jit.freeze(traced))
