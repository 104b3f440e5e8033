"""The same model in torch, and its ONNX export in onnxruntime: what the engine is compared with."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from batches import Batch
from torch import nn

HIDDEN, INNER, HEADS, LAYERS = 384, 1536, 12, 6
EPS = 1e-12

Encode = Callable[[Batch], np.ndarray]


class Layer(nn.Module):
    """One layer of BERT: attention, then the feed-forward pair, each with residual and LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.inner, self.outer = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.out_norm, self.outer_norm = (nn.LayerNorm(HIDDEN, eps=EPS) for _ in range(2))

    def forward(self, x: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """x (sentences, length, HIDDEN); visible: bool (sentences, 1, 1, length), None when all are."""
        q, k, v = (
            p(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.query, self.key, self.value)
        )
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=visible).transpose(1, 2).flatten(2)
        x = self.out_norm(x + self.out(context))
        return self.outer_norm(x + self.outer(F.gelu(self.inner(x))))


class Encoder(nn.Module):
    """all-MiniLM-L6-v2: token ids to unit sentence vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(30522, HIDDEN), nn.Embedding(512, HIDDEN)
        self.kind = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, eps=EPS)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, is_padded: bool = True) -> torch.Tensor:
        """ids and mask int64 (sentences, length); ``is_padded`` False says that the mask is all ones."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.word(ids) + self.kind.weight[0] + self.position(positions))
        visible = mask[:, None, None, :].bool() if is_padded else None
        for layer in self.layers:
            x = layer(x, visible)
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


def load_model(weights: Path) -> Encoder:
    """The torch module with the weights of the file; every parameter must be there."""
    from safetensors.torch import load_file

    return model_of(load_file(str(weights)))


def model_of(stored: dict[str, torch.Tensor]) -> Encoder:
    """The torch module with these tensors, by their names in the file."""
    names = {there.format(i): here.format(i) for there, here in _NAMES.items() for i in range(LAYERS)}
    state = {f"{names[stem]}.{leaf}": tensor for stem, leaf, tensor in _split(stored) if stem in names}
    model = Encoder()
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


def export_onnx(model: Encoder, weights: Path, folder: Path) -> Path:
    """The module as an ONNX file with free batch and length; exported once per torch and weights."""
    parts = (weights.read_bytes(), Path(__file__).read_bytes(), torch.__version__.encode())
    key = sha256(b"\0".join(parts)).hexdigest()[:16]
    path = folder / f"minilm-{key}.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    sample = torch.randint(1000, 30522, (3, 17))
    sentences, length = torch.export.Dim("sentences", min=1), torch.export.Dim("length", min=1, max=512)
    shape = {0: sentences, 1: length}
    with _quietly():
        program = torch.onnx.export(
            model,
            (sample, torch.ones_like(sample)),
            dynamo=True,
            dynamic_shapes={"ids": shape, "mask": shape},
            input_names=["ids", "mask"],
            output_names=["vectors"],
            verbose=False,
        )
    partial = path.with_suffix(".partial")
    program.save(str(partial), external_data=False)
    partial.rename(path)
    return path


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's remarks on packages that this model does not use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def onnxruntime_peer(path: Path, threads: int) -> Encode:
    """onnxruntime on the CPU with all graph optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def encode(batch: Batch) -> np.ndarray:
        return session.run(None, {"ids": batch.ids.astype(np.int64), "mask": batch.mask})[0]

    return encode
