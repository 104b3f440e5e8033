"""Builds the engine, writes small checkpoints, and shows its greedy tokens beside torch's.

    python examples/cpp/llama/run.py [--out DIR] [--bench] [--tokens N] [--prompt N]

``--bench`` also writes a model of the shape of Qwen2.5-0.5B and prints tokens a second beside torch. Exits
with 1 where tokens differ by more than noise.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from checkpoint import QWEN_HALF_B, SMALL, write_checkpoint
from engine import ROOT, Engine, best_target, build_engine, build_library, prompt_of

#: So far apart logits of the small models may be, whose deviation is about 1: a few hundred roundings.
NOISE = 1e-4
PROMPT, NEW = 48, 24


def check(binary: Path, folder: Path) -> bool:
    """Prints a greedy answer of each small model with what torch says; whether all agree."""
    from peers import disagreements, load_model

    agree = True
    for name, config in SMALL.items():
        write_checkpoint(config, folder / name)
        prompt = prompt_of(PROMPT, config["vocab_size"])
        answer = Engine(binary, folder / name, "float32").generate([prompt], NEW)[0]
        others = disagreements(load_model(folder / name), prompt, answer, NOISE)
        print(f"{name}: {' '.join(map(str, answer))}")
        print(f"  torch has {'other tokens at ' + str(others) if others else 'the same tokens'}", flush=True)
        agree = agree and not others
    return agree


def bench(binary: Path, folder: Path, prompt: int, tokens: int) -> None:
    """Prints tokens a second of the engine and torch in bfloat16 with one thread and two."""
    import torch
    from peers import load_model, times

    if not (folder / "config.json").exists():
        write_checkpoint(QWEN_HALF_B, folder, dtype="bfloat16")
    ids = prompt_of(prompt, QWEN_HALF_B["vocab_size"])
    model = load_model(folder, "bfloat16")
    print(f"Qwen2.5-0.5B's shape, {prompt} tokens of prompt, {tokens} new ones; tokens a second")
    print(
        "| threads | phase | torch bfloat16 | engine bfloat16 | ratio | engine q4_0 | ratio |\n"
        + "|---" * 7
        + "|"
    )
    for threads in (1, 2):
        torch.set_num_threads(threads)
        times(model, ids[:8], 2)  # what torch makes at its first call
        theirs = times(model, ids, tokens)
        ours = [
            Engine(binary, folder, name, threads).times([ids], tokens + 1, chunk=prompt)
            for name in ("bfloat16", "q4_0")
        ]
        for phase in ("prefill", "decode"):
            cells = [f"{x[phase]['rate']:.1f} | {x[phase]['rate'] / theirs[phase]:.2f}" for x in ours]
            print(f"| {threads} | {phase} | {theirs[phase]:.1f} | {' | '.join(cells)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "llama", help="where everything goes")
    parser.add_argument("--bench", action="store_true", help="tokens a second beside torch")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt that is timed")
    parser.add_argument("--tokens", type=int, default=32, help="new tokens that are timed")
    options = parser.parse_args()
    binary = options.out / "bin" / "llama"
    try:
        build_library(options.out, targets=[best_target()])
        build_engine(options.out, binary)
    except subprocess.CalledProcessError as error:  # the tool has said why
        return error.returncode
    if not check(binary, options.out / "checkpoints"):
        return 1
    if options.bench:
        bench(binary, options.out / "checkpoints" / "qwen2.5-0.5b", options.prompt, options.tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main())
