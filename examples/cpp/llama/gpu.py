"""The engine on a GPU: checks it against torch, and times it beside torch on the same GPU.

    python examples/cpp/llama/gpu.py --folder DIR   # a folder for a machine with a GPU and torch
    python3 gpu.py [--json FILE] [--only check] [--model tiny] [--precision q4_0]   # there, in the folder
    python3 gpu.py --ranks 2                        # there, with as many GPUs: beside one of them

Exits with 1 where tokens or logits differ by more than rounding.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from checkpoint import GROUPED, LLAMA_8B, SMALL, write_checkpoint
from engine import (
    CACHE_TYPES,
    HERE,
    LIBRARY,
    PRECISIONS,
    Engine,
    EngineError,
    best_target,
    build_engine,
    build_library,
    prompt_of,
)

PARTS = ("check", "bench")
#: An NCCL whose sums do nothing, in a folder of that name: what a step takes without them.
WITHOUT_SUMS = "without_sums"
FILES = ("gpu.py", "gpu_peers.py", "engine.py", "checkpoint.py", "peers.py")
GPU = "sm_90a"
#: Models that are timed.
MODELS = {"8b": LLAMA_8B, "tiny": {**GROUPED["llama 128"], "max_position_embeddings": 32768}}
DECODES = tuple((count, context) for context in (1000, 8000) for count in (1, 8, 64))
PREFILLS = (128, 2048, 16384)
#: New tokens that are timed behind each context, and how often a prompt is.
STEPS, REPEATS = 48, 5
#: Steps in front and behind that do not count: graphs are made, sequences end.
WARM = 4
#: Tokens of prompts in one step where a context is made.
CHUNK = 8192
#: bfloat16 beside float32: so far apart are logits of the small models, whose deviation is about 1.
NOISE = 0.15
#: Or so many times torch's own error, where that is more, as with 8-bit activations.
NOISY = 5
#: And of routers, whose logits a median token has 0.02 to 0.1 off in torch, too; or twice torch's
#: error, where that is more: the margin is a difference of two.
ROUTING_NOISE = 0.02
#: Of a weight that is stored in less than the type of activations: 32 of 4 bits have a step of 16 bits; the
#: scale of a row of 8-bit floats is left out.
BYTES = {"q4_0": 18 / 32, "fp8": 1.0}


def write_folder(folder: Path) -> None:
    """Library, engine and scripts, for any machine with a GPU of that target and this processor."""
    package = folder / "package"
    build_library(package, targets=[GPU, best_target()])
    build_engine(package, folder / "llama", rpath="$ORIGIN", portable=True)
    build_without_sums(folder / WITHOUT_SUMS)
    shutil.copy(package / "lib" / f"lib{LIBRARY}.so", folder / f"lib{LIBRARY}.so.1")
    shutil.rmtree(package)
    for name in FILES:
        shutil.copy(HERE / name, folder / name)


def build_without_sums(folder: Path) -> None:
    """The stand-in of `WITHOUT_SUMS` by the compiler of the engine's portable binary."""
    from native import portable_compiler

    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-x", "c", "-O2", "-shared", "-fPIC"]
    source, library = HERE / f"{WITHOUT_SUMS}.c", folder / "libnccl.so.2"
    subprocess.run([*portable_compiler(), *flags, str(source), "-o", str(library)], check=True)


def nccl_folder() -> str:
    """Of the NCCL that torch has; "" where it is the system's."""
    from importlib.util import find_spec

    found = find_spec("nvidia.nccl")
    folders = found.submodule_search_locations if found else None
    return str(Path(next(iter(folders))) / "lib") if folders else ""


# ---- tokens and logits ----


def error(ours: np.ndarray, exact: np.ndarray) -> float:
    """Root of the mean square of a difference, of the median token: one with another expert by rounding is
    far off in torch, too."""
    return float(np.median(np.sqrt(((ours - exact) ** 2).mean(axis=1))))


def check_model(engine: Engine, vocabulary: int) -> dict[str, Any]:
    """Logits of a prompt in chunks, beside torch in both precisions; greedy tokens of a batch and of a prompt
    alone, until they are enough or one stops it; draws. "failures" says what is wrong."""
    from peers import disagreements, load_pair, logits_of

    exact, rounded = load_pair(engine.folder, engine.precision, engine.cache_type)
    ids = prompt_of(256, vocabulary)
    wanted = logits_of(exact, ids)
    theirs, ours = (
        error(x, wanted) for x in (logits_of(rounded, ids), engine.logits(ids, vocabulary, chunk=100))
    )
    prompts = [prompt_of(length, vocabulary, length) for length in (3, 70, 1, 33, 17)]
    answers = engine.generate(prompts, 24)
    pieces = engine.generate(prompts, 24, chunk=16, cache=160)
    likeliest = engine.generate(prompts, 24, temperature=1, top_k=1)  # or others that are as likely
    alone = engine.generate(prompts[:1], 24)  # whose products have another schedule than those of a batch
    stopped = engine.generate(prompts[:1], 24, stop=alone[0][4])
    pairs = [pair for way in (answers, pieces, likeliest, alone) for pair in zip(prompts, way, strict=False)]
    routing = max(ROUTING_NOISE, 2 * theirs) if hasattr(exact.config, "num_experts_per_tok") else 0.0
    noise = max(NOISE, NOISY * theirs)
    far = [disagreements(exact, prompt, answer, noise, routing) for prompt, answer in pairs]
    drawn = [
        engine.generate(prompts, 24, temperature=1, top_k=50, top_p=0.9, seed=seed) for seed in (1, 1, 2)
    ]
    failures = {
        "logits": not ours < 1.5 * theirs,
        "tokens": any(far),
        "lengths": any(len(answer) != 24 for _, answer in pairs),
        "draws": drawn[0] != drawn[1] or drawn[0] == drawn[2],
        "stop": stopped[0] != _until(alone[0], alone[0][4]),
    }
    return {
        "error": ours,
        "torch's": theirs,
        "far": far,
        "answers": answers,
        "failures": [name for name, is_wrong in failures.items() if is_wrong],
    }


def _until(answer: list[int], stop: int) -> list[int]:
    return answer[: answer.index(stop) + 1]


def make_engine(binary: Path, folder: Path, options: argparse.Namespace) -> Engine:
    """The engine of the options; its sums are those of torch's NCCL."""
    return Engine(
        binary,
        folder,
        options.precision,
        device=options.device,
        cache_type=options.cache_type,
        ranks=options.ranks,
        libraries=nccl_folder() if options.ranks > 1 else "",
    )


def check(binary: Path, scratch: Path, options: argparse.Namespace) -> dict[str, Any]:
    """`check_model` of each small model; an engine that ends with an error says why."""
    found = {}
    for name, config in {**SMALL, **GROUPED}.items():
        folder = scratch / name.replace(" ", "-")
        write_checkpoint(config, folder)
        try:
            engine = make_engine(binary, folder, options)
            found[name] = check_model(engine, config["vocab_size"])
        except EngineError as failure:
            found[name] = {"failures": [str(failure)]}
        shown = {key: value for key, value in found[name].items() if key != "answers"}
        print(f"{name}: {json.dumps(shown)}", flush=True)
    return found


# ---- times ----


def ours_decode(engine: Engine, vocabulary: int, count: int, context: int) -> dict[str, float]:
    """Of a step with ``count`` sequences behind prompts of about ``context`` tokens, which are prefilled. The
    first ones decode meanwhile, so that all of them get more tokens than are timed."""
    prompts = [prompt_of(context, vocabulary, seed) for seed in range(count)]
    tokens = STEPS + -(-count * context // CHUNK)
    made = engine.times(prompts, tokens, cache=count * (context + tokens + 16), chunk=CHUNK)["decode"]
    steps, gaps = (made[key][WARM : STEPS - WARM] for key in ("steps", "gaps"))
    return {"ms": 1e3 * median(steps), "gap": median(gaps) / median(steps)}


def ours_prefill(engine: Engine, vocabulary: int, length: int) -> dict[str, float]:
    """Of a step with one prompt; the first of several sizes the memory."""
    prompts = [prompt_of(length, vocabulary, seed) for seed in range(REPEATS)]
    made = engine.times(prompts, 1, cache=length + 32, chunk=length)["prefill"]
    return {"ms": 1e3 * median(made["steps"][1:])}


def bytes_read(
    config: dict[str, Any], count: int, context: int, precision: str, cache_type: str = "same"
) -> float:
    """Weights of all products in the bytes of ``precision``, keys and values of ``count`` sequences in
    those of ``cache_type``."""
    hidden, heads, shared = (
        config[f"{name}"] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    dim = config["head_dim"]
    layer = hidden * dim * (2 * heads + 2 * shared) + 3 * hidden * config["intermediate_size"]
    cache = count * context * 2 * shared * dim * config["num_hidden_layers"]
    weights = layer * config["num_hidden_layers"] + hidden * config["vocab_size"]
    number = 4.0 if precision == "float32" else 2.0
    return BYTES.get(precision, number) * weights + (1.0 if cache_type == "fp8" else number) * cache


def attempt(name: str, run: Any) -> Any:
    """What ``run`` gives, or its error as a text: a row that fails costs itself alone."""
    try:
        made = run()
    except Exception as failure:
        made = {"error": f"{type(failure).__name__}: {failure}"[:600]}
    print(f"{name}: {json.dumps(made)}", flush=True)
    return made


def bench(binary: Path, scratch: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of engine and torch for each row; the engine first, whose memory is free again then."""
    from gpu_peers import TorchPeer, copy_rate

    config, folder = MODELS[options.model], scratch / options.model
    attempt(
        "checkpoint", lambda: write_checkpoint(config, folder, dtype="bfloat16", device=options.torch_device)
    )
    engine = make_engine(binary, folder, options)
    words = config["vocab_size"]
    rows: dict[str, Any] = {"bytes per second": attempt("copy", lambda: copy_rate(options.torch_device))}
    decodes = [case for case in DECODES if case[0] * case[1] <= options.most]
    for count, context in decodes:
        name = f"decode {count} x {context}"
        rows[name] = {"ours": attempt(name, lambda c=count, n=context: ours_decode(engine, words, c, n))}
        rows[name]["bytes"] = bytes_read(config, count, context, options.precision, options.cache_type)
    for length in PREFILLS:
        name = f"prefill {length}"
        rows[name] = {"ours": attempt(name, lambda n=length: ours_prefill(engine, words, n))}
    peer = TorchPeer(folder, options.torch_device)
    for length in PREFILLS:
        rows[f"prefill {length}"]["torch"] = attempt(f"torch {length}", lambda n=length: peer.prefill(n))
    for count, context in decodes:
        row = rows[f"decode {count} x {context}"]
        row["torch"] = attempt(f"torch {count} x {context}", lambda c=count, n=context: peer.decode(c, n))
    return rows


def bench_ranks(binary: Path, scratch: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a step on one GPU, on all ranks, and on these without their sums, for each row."""
    config, folder = MODELS[options.model], scratch / options.model
    attempt(
        "checkpoint", lambda: write_checkpoint(config, folder, dtype="bfloat16", device=options.torch_device)
    )
    split = make_engine(binary, folder, options)
    engines = {
        "one": replace(split, ranks=1),
        "ranks": split,
        "without sums": replace(split, libraries=str(HERE / WITHOUT_SUMS)),
    }
    words = config["vocab_size"]
    rows: dict[str, Any] = {}
    for count, context in DECODES:
        if count * context <= options.most:
            name = f"decode {count} x {context}"
            rows[name] = {
                key: attempt(f"{name}, {key}", lambda e=e, c=count, n=context: ours_decode(e, words, c, n))
                for key, e in engines.items()
            }
    for length in PREFILLS:
        name = f"prefill {length}"
        rows[name] = {
            key: attempt(f"{name}, {key}", lambda e=e, n=length: ours_prefill(e, words, n))
            for key, e in engines.items()
        }
    return rows


def table_of_ranks(rows: dict[str, Any]) -> str:
    """The rows for docs: milliseconds, one GPU over all, the share that sums take."""
    lines = ["| step | one GPU ms | ranks ms | one / ranks | sums |", "|---" * 5 + "|"]
    for name, row in rows.items():
        one, ranks, without = (row[key].get("ms") for key in ("one", "ranks", "without sums"))
        if one and ranks and without:
            cells = f"{one:.2f} | {ranks:.2f} | {one / ranks:.2f} | {1 - without / ranks:.0%}"
            lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def table(rows: dict[str, Any]) -> str:
    """The rows for docs/engine.md: milliseconds, ratios to torch and to reading, the share between steps."""
    rate = rows["bytes per second"]
    lines = [
        "| step | engine ms | torch ms | torch / engine | reading / engine | between steps |",
        "|---" * 6 + "|",
    ]
    for name, row in rows.items():
        if not isinstance(row, dict) or "ms" not in row.get("ours", {}):
            continue
        ours, theirs = row["ours"], row.get("torch", {}).get("ms")
        reading = (
            f"{1e3 * row['bytes'] / rate / ours['ms']:.2f}"
            if "bytes" in row and isinstance(rate, float)
            else ""
        )
        peer = f"{theirs:.2f} | {theirs / ours['ms']:.2f}" if theirs else " | "
        idle = f"{ours['gap']:.1%}" if "gap" in ours else ""
        lines.append(f"| {name} | {ours['ms']:.2f} | {peer} | {reading} | {idle} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="write the folder instead of running")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone; repeatable")
    parser.add_argument("--model", choices=sorted(MODELS), default="8b", help="what is timed")
    parser.add_argument(
        "--most", type=int, default=1 << 20, help="leave out rows with more tokens in the cache"
    )
    parser.add_argument("--precision", choices=PRECISIONS, default="bfloat16", help="of the engine")
    parser.add_argument("--cache-type", choices=CACHE_TYPES, default="same", help="of the engine")
    parser.add_argument("--device", default="cuda", help="of the engine")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs that a model is split among")
    parser.add_argument("--torch-device", default="cuda", help="of torch, where it is timed")
    parser.add_argument("--scratch", type=Path, help="where checkpoints go")
    parser.add_argument("--json", type=Path, help="write everything there")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    if options.folder is not None:
        try:
            write_folder(options.folder)
        except subprocess.CalledProcessError as failure:  # the tool has said why
            return failure.returncode
        return 0
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        if "check" in (options.only or PARTS):
            found["check"] = check(HERE / "llama", Path(scratch), options)
        if "bench" in (options.only or PARTS):
            measure, shown = (bench, table) if options.ranks == 1 else (bench_ranks, table_of_ranks)
            found["bench"] = measure(HERE / "llama", Path(scratch), options)
            print(shown(found["bench"]))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return int(any(model["failures"] for model in found.get("check", {}).values()))


if __name__ == "__main__":
    sys.exit(main())
