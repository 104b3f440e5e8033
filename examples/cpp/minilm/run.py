"""Builds the engine, checks it against torch on a file of sentences, times it beside torch and onnxruntime.

    python examples/cpp/minilm/run.py [--sentences FILE] [--out DIR] [--seconds S] [--no-bench]

Exits with 1 when a sentence misses the cosine of 0.9999.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

import numpy as np
from assets import Assets, AssetsMissing, find_assets
from batches import LONGEST, Batch, in_batches, made_up, prefixes, tokenize
from engine import HERE, PRECISIONS, ROOT, Engine, build_engine, build_library

COSINE = 0.9999
SHAPES = ((1, 16), (1, 128), (32, 32), (32, 128), (8, 256))
THREADS = (1, 2)
#: Lengths of the prefix check: all short ones, then steps that are no multiple of a tile.
LENGTHS = (*range(1, 34), *range(40, LONGEST, 9), LONGEST)
#: Seconds between two runs: threads of onnxruntime and torch go on spinning after a call and would eat into
#: the next contestant's time (measured: 10 ms still cost torch a factor of two).
PAUSE = 0.05


def check(sentences: list[list[int]], assets: Assets, binary: Path) -> dict[str, float]:
    """By precision, the smallest cosine of engine and torch over mixed batches of sentences and prefixes."""
    from peers import load_model, torch_peer

    reference = torch_peer(load_model(assets.weights), max(THREADS))
    longest = max(sentences, key=len)
    batches = [*in_batches(sentences, 8), *in_batches(prefixes(longest, LENGTHS), 16)]
    wanted = [reference(batch) for batch in batches]
    worst = {}
    for precision, threads in zip(PRECISIONS, THREADS, strict=True):
        with Engine(binary, assets.weights, threads, precision) as engine:
            cosines = [_worst_cosine(engine.encode(b)[1], w) for b, w in zip(batches, wanted, strict=True)]
        worst[precision] = min(cosines)
    return worst


def _worst_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The smallest cosine over the sentences of a batch; NaN anywhere counts as -1."""
    dots = (ours.astype(np.float64) * theirs).sum(1)
    norms = np.linalg.norm(ours.astype(np.float64), axis=1) * np.linalg.norm(
        theirs.astype(np.float64), axis=1
    )
    return float(np.nan_to_num(dots / norms, nan=-1.0).min())


def wall_clock(encode: Callable[[Batch], object]) -> Callable[[Batch], float]:
    """Seconds of one call."""

    def timed(batch: Batch) -> float:
        begin = time.perf_counter()
        encode(batch)
        return time.perf_counter() - begin

    return timed


def own_clock(engine: Engine) -> Callable[[Batch], float]:
    """Seconds that the engine itself reports: from token ids to vectors, without the pipe."""
    return lambda batch: engine.encode(batch)[0]


def interleaved(contestants: Sequence[Callable[[Batch], float]], batch: Batch, seconds: float) -> list[float]:
    """Median seconds of each, taken in turns, for about ``seconds`` in all and at least five rounds.

    A turn is a pause, in which the threads of the one before go to sleep, a call that wakes its own, and the
    timed call.
    """
    first = sum(run(batch) for run in contestants)
    rounds = min(max(5, int(seconds / first / 2)), 200)
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds):
        for run, taken in zip(contestants, times, strict=True):
            time.sleep(PAUSE)
            run(batch)
            taken.append(run(batch))
    return [statistics.median(taken) for taken in times]


def machine() -> str:
    """The processor and the peers' versions: a figure without them means nothing."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    processor = next(
        (line.partition(":")[2].strip() for line in info if line.startswith("model name")), "unknown"
    )
    peers = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "onnxruntime"))
    return f"{processor}, {os.cpu_count()} cores; {peers}"


def bench(cases: dict[str, Batch], assets: Assets, binary: Path, cache: Path, seconds: float) -> None:
    """Prints sentences per second of engine, torch and onnxruntime for each case and number of threads."""
    from peers import export_onnx, load_model, onnxruntime_peer, torch_peer

    model = load_model(assets.weights)
    onnx = export_onnx(model, assets.weights, cache)
    heads = ("batch x length", "threads", "torch", "onnxruntime", "tilec float32", "tilec bfloat16")
    print(f"\n{machine()}\nsentences per second, and the ratio to the better peer (both run in float32)")
    print("{:<16}{:>8}{:>9}{:>13}{:>18}{:>18}".format(*heads))
    for threads in THREADS:
        with ExitStack() as stack:
            engines = [stack.enter_context(Engine(binary, assets.weights, threads, p)) for p in PRECISIONS]
            contestants = [
                wall_clock(torch_peer(model, threads)),
                wall_clock(onnxruntime_peer(onnx, threads)),
                *(own_clock(engine) for engine in engines),
            ]
            for name, batch in cases.items():
                rates = [len(batch.lengths) / median for median in interleaved(contestants, batch, seconds)]
                ours = "".join(f"{rate:>10.1f}{rate / max(rates[:2]):>7.2f}x" for rate in rates[2:])
                print(f"{name:<16}{threads:>8}{rates[0]:>9.1f}{rates[1]:>13.1f}{ours}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=Path, default=HERE / "sentences.txt", help="one sentence a line")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist" / "minilm", help="where library and engine go"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="time per row of the table")
    parser.add_argument("--no-bench", action="store_true", help="check only")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    try:
        assets = find_assets()
    except AssetsMissing as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    binary = options.out / "bin" / "minilm"
    try:
        build_library(options.out)
        build_engine(options.out, binary)
    except subprocess.CalledProcessError as error:  # the tool has said why
        return error.returncode
    lines = [line for line in options.sentences.read_text(encoding="utf-8").splitlines() if line.strip()]
    sentences = tokenize(lines, assets.tokenizer)
    worst = check(sentences, assets, binary)
    shortest, longest = min(map(len, sentences)), max(map(len, sentences))
    print(f"{len(sentences)} sentences of {shortest} to {longest} tokens, and prefixes of 1 to {LONGEST}")
    for precision, cosine in worst.items():
        print(f"  {precision}: smallest cosine to torch {cosine:.7f} (wanted: {COSINE})")
    if min(worst.values()) < COSINE:
        return 1
    if not options.no_bench:
        cases = {f"{sentences} x {length}": made_up(sentences, length) for sentences, length in SHAPES}
        mixed = in_batches(sentences, 32)[0]
        cases["mixed lengths"] = mixed
        bench(cases, assets, binary, options.out / "onnx", options.seconds)
        tokens, cells = int(mixed.lengths.sum()), mixed.ids.size
        print(f"mixed lengths: {tokens} tokens in a padded batch of {cells}; the engine skips the padding")
    return 0


if __name__ == "__main__":
    sys.exit(main())
