"""The engine on a GPU: checks it against torch in float32, times it beside torch in float16 on the same GPU.

    python examples/cpp/minilm/gpu.py                  # on a machine with tilec and a GPU
    python examples/cpp/minilm/gpu.py --folder DIR     # a folder for a machine that has torch alone

Exits with 1 when a sentence misses the cosine of 0.9995. gpu_folder.py says what the folder holds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from batches import Batch, in_batches, made_up, prefixes, tokenize
from engine import HERE, Engine, build_engine, build_library
from gpu_folder import PART, read_lines, whole_model, write_folder, write_safetensors
from run import LENGTHS, _worst_cosine, interleaved, wall_clock

COSINE = 0.9995
SHAPES = ((1, 16), (1, 128), (32, 32), (32, 128), (128, 128), (8, 256), (256, 256))


def check(sentences: list[list[int]], engine: Engine, reference: Callable[[Batch], np.ndarray]) -> float:
    """The smallest cosine over mixed batches of sentences and prefixes."""
    longest = max(sentences, key=len)
    batches = [*in_batches(sentences, 8), *in_batches(prefixes(longest, LENGTHS), 16)]
    return min(_worst_cosine(engine.encode(batch)[1], reference(batch)) for batch in batches)


def cuda_peer(model: Any, dtype: Any, graphs: bool = False) -> Callable[[Batch], np.ndarray]:
    """torch on the GPU, from token ids in host memory to vectors in host memory; ``graphs``: one CUDA graph
    for each shape of batches without padding."""
    import torch

    model = model.to("cuda", dtype)
    known: dict[tuple[int, int], tuple[Any, Any, Any]] = {}

    def eager(ids: Any, mask: Any, is_padded: bool) -> Any:
        with torch.inference_mode():
            return model(ids, mask, is_padded)

    def captured(ids: Any, mask: Any) -> Any:
        shape = tuple(ids.shape)
        if shape not in known:
            for _ in range(3):
                eager(ids, mask, False)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = eager(ids, mask, False)
            known[shape] = (graph, ids, out)
        graph, place, out = known[shape]
        place.copy_(ids)
        graph.replay()
        return out

    def encode(batch: Batch) -> np.ndarray:
        is_padded = bool((batch.lengths < batch.ids.shape[1]).any())
        ids = torch.from_numpy(batch.ids.astype(np.int64)).cuda()
        mask = torch.from_numpy(batch.mask).cuda()
        out = captured(ids, mask) if graphs and not is_padded else eager(ids, mask, is_padded)
        return out.float().cpu().numpy()

    return encode


def bench(
    cases: dict[str, Batch], engine: Engine, model: Callable[[], Any], seconds: float
) -> list[dict[str, Any]]:
    """Prints and returns milliseconds, and sentences per second, of engine and torch for each case."""
    import torch

    peers = {
        "torch": cuda_peer(model(), torch.float16),
        "torch, graphs": cuda_peer(model(), torch.float16, graphs=True),
    }
    contestants = [wall_clock(each) for each in (*peers.values(), engine.encode)]
    names = [*peers, "tilec"]
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, float16")
    print("milliseconds of a batch (sentences per second), and the ratio to the better of torch")
    print(f"{'batch x length':<16}" + "".join(f"{name:>24}" for name in names) + f"{'ratio':>8}")
    rows = []
    for name, batch in cases.items():
        times = interleaved(contestants, batch, seconds)
        count = len(batch.lengths)
        texts = "".join(f"{1e3 * time:>13.3f} ({count / time:>8.0f})" for time in times)
        print(f"{name:<16}{texts}{min(times[:-1]) / times[-1]:>7.2f}x", flush=True)
        rows.append({"case": name, "ms": dict(zip(names, (1e3 * time for time in times), strict=True))})
    return rows


def prepare(options: argparse.Namespace) -> tuple[Path, Path, dict[str, np.ndarray], list[list[int]]]:
    """Engine, weights as a file and as arrays, tokens: the folder's own, or built here."""
    if (HERE / PART).exists():
        weights, stored = HERE / "model.safetensors", whole_model(HERE / PART)
        write_safetensors(weights, stored)
        return HERE / "minilm", weights, stored, json.loads((HERE / "tokens.json").read_text())
    from assets import find_assets
    from safetensors.numpy import load_file

    assets, binary = find_assets(), options.out / "bin" / "minilm"
    build_library(options.out)
    build_engine(options.out, binary)
    tokens = tokenize(read_lines(options.sentences), assets.tokenizer)
    return binary, assets.weights, load_file(str(assets.weights)), tokens


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="write the folder instead of running")
    parser.add_argument("--sentences", type=Path, default=HERE / "sentences.txt", help="one sentence a line")
    parser.add_argument("--out", type=Path, default=Path("dist/minilm"), help="where library and engine go")
    parser.add_argument("--seconds", type=float, default=2.0, help="time per row of the table")
    parser.add_argument("--json", type=Path, help="write cosine and table there")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    if options.folder is not None:
        write_folder(options.folder, options.sentences)
        return 0
    binary, weights, arrays, sentences = prepare(options)
    import torch
    from peers import model_of

    stored = {name: torch.from_numpy(value) for name, value in arrays.items()}
    cases = {f"{count} x {length}": made_up(count, length) for count, length in SHAPES}
    cases["mixed lengths"] = in_batches(sentences, 32)[0]
    with Engine(binary, weights, 1, "float16", "cuda") as engine:
        worst = check(sentences, engine, cuda_peer(model_of(stored), torch.float32))
        print(f"smallest cosine to torch in float32: {worst:.7f} (wanted: {COSINE})")
        rows = bench(cases, engine, lambda: model_of(stored), options.seconds)
    if options.json:
        options.json.write_text(json.dumps({"cosine": worst, "rows": rows}, indent=1))
    return int(worst < COSINE)


if __name__ == "__main__":
    sys.exit(main())
