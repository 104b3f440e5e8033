"""A folder to run gpu.py in on a machine that has torch and a GPU, but neither tilec nor the model.

It holds the library, the engine and, to be small, a part of the model: its first two layers, which stand for
all six in turn, and the words of the sentences; other words are random.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from batches import tokenize
from engine import HERE, build_engine, build_library

PART = "part.npz"
KEPT_LAYERS = 2
WORDS = "embeddings.word_embeddings.weight"
FILES = ("gpu.py", "gpu_folder.py", "run.py", "assets.py", "batches.py", "engine.py", "peers.py")


def write_folder(folder: Path, sentences: Path) -> None:
    """Builds library and engine into ``folder``, beside scripts, tokens and the part of the weights."""
    from assets import find_assets

    assets = find_assets()
    build_library(folder / "package")
    build_engine(folder / "package", folder / "minilm", rpath="$ORIGIN")
    shutil.copy(folder / "package" / "lib" / "libminilm_kernels.so", folder / "libminilm_kernels.so.1")
    shutil.rmtree(folder / "package")
    tokens = tokenize(read_lines(sentences), assets.tokenizer)
    (folder / "tokens.json").write_text(json.dumps(tokens))
    np.savez_compressed(folder / PART, **part_of(assets.weights, tokens))
    for name in FILES:
        shutil.copy(HERE / name, folder / name)


def part_of(weights: Path, tokens: list[list[int]]) -> dict[str, np.ndarray]:
    """The tensors that the folder carries, in float16; words of ``tokens`` alone, under their ids."""
    from safetensors.numpy import load_file

    stored = load_file(str(weights))
    words = np.unique(np.concatenate([np.array(line) for line in tokens]))
    kept = {name: value for name, value in stored.items() if _is_kept(name) and name != WORDS}
    kept["word ids"], kept["word rows"] = words, stored[WORDS][words]
    return {
        name: each.astype(np.float16) if each.dtype == np.float32 else each for name, each in kept.items()
    }


def _is_kept(name: str) -> bool:
    layer = name.split("encoder.layer.")[-1].split(".")[0]
    return (
        "pooler" not in name
        and "position_ids" not in name
        and (not layer.isdigit() or int(layer) < KEPT_LAYERS)
    )


def whole_model(file: Path) -> dict[str, np.ndarray]:
    """Six layers and all words in float32. Weights get low bits at random for those that float16 took from
    them, so that the engine has something to round."""
    part, rng = dict(np.load(file)), np.random.default_rng(0)
    rows = part["word rows"].astype(np.float32)
    words = rng.normal(rows.mean(), rows.std(), (30522, rows.shape[1])).astype(np.float32)
    words[part["word ids"]] = rows
    made = {WORDS: words}
    for name, value in part.items():
        if name.startswith("word "):
            continue
        wide = value.astype(np.float32) * (1 + rng.uniform(-(2**-12), 2**-12, value.shape)).astype(np.float32)
        head, found, tail = name.partition("encoder.layer.")
        number, _, leaf = tail.partition(".")
        layers = range(int(number), 6, KEPT_LAYERS) if found else [None]
        made |= {name if layer is None else f"{head}{found}{layer}.{leaf}": wide for layer in layers}
    return made


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """A file as the engine maps it, of float32 tensors."""
    header: dict[str, Any] = {}
    at = 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64 + 56)  # the data starts at a multiple of 64 bytes
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value).tobytes())


def read_lines(file: Path) -> list[str]:
    """One sentence a line."""
    return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
