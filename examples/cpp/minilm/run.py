"""Builds the engine, checks it against torch on a file of sentences, times it beside torch and onnxruntime.

One clock for all: the wall clock of this process, around a call that takes token ids and returns vectors; for
the engine that includes the pipe to its process and back.

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
PEERS = ("torch", "torch, frozen for oneDNN", "onnxruntime", "onnxruntime, optimised for transformers")
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
    """Prints sentences per second of engine and peers for each case and number of threads."""
    import onnx_peers
    from peers import frozen_peer, load_model, torch_peer

    model = load_model(assets.weights)
    exported = onnx_peers.export(assets.weights, cache)
    optimised = onnx_peers.export_optimised(assets.weights, cache)
    print(f"\n{machine()}\nsentences per second, and the ratio to the best peer (all of them run in float32)")
    print("| batch x length | threads |", " | ".join((*PEERS, *_columns(PRECISIONS))), "|")
    print("|---" * (2 + len(PEERS) + 2 * len(PRECISIONS)) + "|")
    for threads in THREADS:
        with ExitStack() as stack:
            engines = [stack.enter_context(Engine(binary, assets.weights, threads, p)) for p in PRECISIONS]
            peers = (
                torch_peer(model, threads),
                frozen_peer(model, threads),
                onnx_peers.peer(exported, threads),
                onnx_peers.peer(optimised, threads),
            )
            contestants = [wall_clock(each) for each in (*peers, *(engine.encode for engine in engines))]
            for name, batch in cases.items():
                rates = [len(batch.lengths) / median for median in interleaved(contestants, batch, seconds)]
                print(f"| {name} | {threads} | {' | '.join(_cells(rates))} |", flush=True)


def _columns(precisions: Sequence[str]) -> list[str]:
    return [column for precision in precisions for column in (f"tilec {precision}", "to the best")]


def _cells(rates: Sequence[float]) -> list[str]:
    """Peers' rates, then each of ours with its ratio to the best of them."""
    theirs, ours = rates[: len(PEERS)], rates[len(PEERS) :]
    pairs = [(f"{rate:.0f}", f"{rate / max(theirs):.2f}") for rate in ours]
    return [*(f"{rate:.0f}" for rate in theirs), *(cell for pair in pairs for cell in pair)]


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
