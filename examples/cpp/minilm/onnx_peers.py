"""The model in onnxruntime: as torch exports it, and with what onnxruntime offers for transformers."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from batches import Batch
from peers import HEADS, HIDDEN, Encode, load_model, spelled_out

_NAMES = {"input_names": ["ids", "mask"], "output_names": ["vectors"]}
#: What the optimiser has to make of six layers, so that it is no other model that is timed.
_FUSED = {"Attention": 6, "SkipLayerNormalization": 12, "BiasGelu": 6}


def export(weights: Path, folder: Path) -> Path:
    """The module as torch's exporter writes it, with free batch and length; once per torch and weights."""
    path = folder / f"minilm-{_key(weights)}.onnx"
    if path.exists():
        return path
    sentences, length = torch.export.Dim("sentences", min=1), torch.export.Dim("length", min=1, max=512)
    shape = {0: sentences, 1: length}
    with _aside(path) as partial:
        program = torch.onnx.export(
            load_model(weights),
            _sample(),
            dynamo=True,
            dynamic_shapes={"ids": shape, "mask": shape},
            verbose=False,
            **_NAMES,
        )
        program.save(str(partial), external_data=False)
    return path


def export_optimised(weights: Path, folder: Path) -> Path:
    """The module after onnxruntime's optimiser of transformers: attention, residuals with norms and GELU with
    bias are one operator each. RuntimeError where it does not find them."""
    from onnxruntime.transformers import optimizer

    path = folder / f"minilm-optimised-{_key(weights)}.onnx"
    if path.exists():
        return path
    free = {0: "sentences", 1: "length"}
    with _aside(path) as partial:
        torch.onnx.export(
            load_model(weights, spelled_out),
            _sample(),
            str(partial),
            dynamo=False,
            opset_version=17,
            dynamic_axes={"ids": free, "mask": free, "vectors": {0: "sentences"}},
            **_NAMES,
        )
        model = optimizer.optimize_model(str(partial), "bert", num_heads=HEADS, hidden_size=HIDDEN)
        found = model.get_fused_operator_statistics()
        if any(found.get(name) != count for name, count in _FUSED.items()):
            raise RuntimeError(f"onnxruntime's optimiser made {found} of the model, not {_FUSED}")
        model.save_model_to_file(str(partial))
    return path


def peer(path: Path, threads: int) -> Encode:
    """onnxruntime on the CPU with all graph optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def encode(batch: Batch) -> np.ndarray:
        return session.run(None, {"ids": batch.ids.astype(np.int64), "mask": batch.mask})[0]

    return encode


def _key(weights: Path) -> str:
    parts = (weights.read_bytes(), Path(__file__).read_bytes(), torch.__version__.encode())
    return sha256(b"\0".join(parts)).hexdigest()[:16]


def _sample() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(1000, 30522, (3, 17))
    return ids, torch.ones_like(ids)


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """A file that becomes ``path`` when it is whole; without the exporters' remarks on packages that this
    model does not use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.onnx")
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxruntime.transformers", "fusion_base")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield partial
        partial.rename(path)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
