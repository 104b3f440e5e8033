"""The decoder-only engine: its logits and tokens beside torch, alone and batched, and its errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from example_modules import importable

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "examples" / "cpp" / "llama"
IN_RUST = ROOT / "examples" / "rust" / "llama"
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe")
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", *MIXTURES)
MODULES = ("engine", "checkpoint", "peers", "native")
IN_FLOAT16 = "embedding|rmsnorm_e5|add_rmsnorm_e5|linear|silu_mul|rotary_to_cache|attention_paged|sample"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("transformers"), reason="transformers, the reference, is not installed"),
]


@pytest.fixture(scope="module")
def helpers() -> Iterator[None]:
    """The example's own modules, importable while the tests run."""
    with importable(ENGINE, MODULES):
        yield


def small_manifest(folder: Path) -> Path:
    """The engine's manifest for heads of 64 channels alone, without schedules to choose among, and in float16
    for one kind of model."""
    text = (ENGINE / "llama.toml").read_text(encoding="utf-8").replace("D = [64, 128]", "D = 64")
    kernels = [
        kernel
        if re.search(rf'name = "({IN_FLOAT16})_{{dtype}}(_fp8)?"', kernel)
        else kernel.replace(', "float16"]', "]")
        for kernel in re.split(r"\n(?=\[\[kernel\]\])", text)
    ]
    tables = re.split(r"\n(?=\[\[)", "\n".join(kernels))
    gone = ("schedules", "dims = { D = 128")
    kept = "\n".join(table for table in tables if not any(word in table for word in gone))
    made = folder / "llama.toml"
    made.write_text(kept.replace("../../kernels", str(ROOT / "examples" / "kernels")), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def binary(helpers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from engine import best_target, build_engine, build_library

    prefix = tmp_path_factory.mktemp("llama")
    build_library(prefix, small_manifest(prefix), [best_target()])
    build_engine(prefix, prefix / "bin" / "llama")
    return prefix / "bin" / "llama"


@pytest.fixture(scope="module")
def checkpoints(helpers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from checkpoint import SMALL, write_checkpoint

    folder = tmp_path_factory.mktemp("checkpoints")
    for name in FAMILIES:
        write_checkpoint({**SMALL[name], "head_dim": 64}, folder / name)
    return folder


def prompt(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 512, length).tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_greedy_tokens_are_those_of_torch(binary: Path, checkpoints: Path, family: str) -> None:
    from engine import Engine
    from peers import disagreements, load_model, logits_of

    ids, model = prompt(256), load_model(checkpoints / family)
    engine = Engine(binary, checkpoints / family, "float32")
    np.testing.assert_allclose(engine.logits(ids, 512, chunk=100), logits_of(model, ids), atol=1e-4)
    answer = engine.generate([ids[:48]], 24)[0]
    assert len(answer) == 24
    assert not disagreements(model, ids[:48], answer, noise=1e-4)


@pytest.mark.parametrize(
    ("family", "precision"),
    [("llama", "float16"), *((family, "bfloat16") for family in ("qwen3", *MIXTURES))],
)
def test_logits_in_16_bits_are_no_further_from_float32_than_those_of_torch(
    binary: Path, checkpoints: Path, family: str, precision: str
) -> None:
    """The error of the median token: one that takes another expert by rounding is far off in torch, too."""
    from engine import Engine
    from peers import load_model, logits_of

    ids, folder = prompt(256), checkpoints / family
    exact = logits_of(load_model(folder), ids)
    theirs = logits_of(load_model(folder, precision), ids)
    ours = Engine(binary, folder, precision).logits(ids, 512)
    error, others = (np.median(np.sqrt(((x - exact) ** 2).mean(axis=1))) for x in (ours, theirs))
    assert 0 < error < 1.25 * others


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe"])
def test_experts_of_4_bits_are_those_of_gguf(binary: Path, checkpoints: Path, family: str) -> None:
    """Prefilled together and a few tokens at a time, whose products have other tiles."""
    pytest.importorskip("gguf", reason="quantises the reference")
    from engine import Engine
    from peers import load_pair, logits_of

    ids, folder = prompt(64), checkpoints / family
    exact, rounded = load_pair(folder, "q4_0")
    wanted, engine = logits_of(exact, ids), Engine(binary, folder, "q4_0")
    found = [logits_of(rounded, ids), *(engine.logits(ids, 512, chunk=size) for size in (64, 5))]
    theirs, *ours = (np.median(np.sqrt(((x - wanted) ** 2).mean(axis=1))) for x in found)
    assert 0 < max(ours) < 1.5 * theirs


def test_weights_of_4_bits_are_those_of_gguf(binary: Path, checkpoints: Path) -> None:
    pytest.importorskip("gguf", reason="quantises the reference")
    from engine import Engine
    from peers import load_model, logits_of, quantise

    ids, folder = prompt(64), checkpoints / "qwen2"
    model = load_model(folder)
    plain = logits_of(model, ids)
    quantise(model)
    wanted = logits_of(model, ids)
    found = Engine(binary, folder, "q4_0").logits(ids, 512)
    rounding, error = (np.sqrt(((x - wanted) ** 2).mean()) for x in (plain, found))
    assert error < 0.1 * rounding


@pytest.mark.parametrize(
    ("family", "precision"), [("llama", "float16"), ("qwen3", "bfloat16"), ("qwen2", "q4_0")]
)
def test_keys_and_values_of_8_bits_are_those_of_torch(
    binary: Path, checkpoints: Path, family: str, precision: str
) -> None:
    """Logits as near to float32 over keys and values rounded alike as torch's, and further over others;
    tokens of prompts in chunks that begin alike."""
    from engine import Engine
    from peers import disagreements, load_pair, logits_of

    if precision == "q4_0":
        pytest.importorskip("gguf", reason="quantises the reference")
    ids, folder = prompt(256), checkpoints / family
    exact, rounded = load_pair(folder, precision, "fp8")
    engines = [Engine(binary, folder, precision, cache_type=name) for name in ("fp8", "same")]
    wanted = logits_of(exact, ids)
    found = [logits_of(rounded, ids), *(each.logits(ids, 512, chunk=100) for each in engines)]
    theirs, ours, others = (np.median(np.sqrt(((x - wanted) ** 2).mean(axis=1))) for x in found)
    assert 0 < ours < 1.1 * theirs < others
    prompts = [ids[:80], [*ids[:40], 7, *ids[41:80]], ids[:80], ids[:48]]
    answers = engines[0].generate(prompts, 6, chunk=33)
    assert engines[0].stats(prompts, 6, chunk=33)["reused"] == 32 + 64 + 32
    for given, answer in zip(prompts, answers, strict=True):
        assert not disagreements(exact, given, answer, noise=5 * theirs)


@pytest.mark.parametrize("family", ["mistral", "qwen2_moe"])
def test_batches_chunks_and_waiting_change_no_token(binary: Path, checkpoints: Path, family: str) -> None:
    from engine import Engine

    engine = Engine(binary, checkpoints / family, "float32")
    prompts = [prompt(length, seed) for seed, length in enumerate((3, 70, 1, 33, 17))]
    alone = [engine.generate([each], 12)[0] for each in prompts]
    assert engine.generate(prompts, 12) == alone
    assert engine.generate(prompts, 12, chunk=7, cache=96) == alone


def test_known_beginnings_of_prompts_are_not_computed_again(binary: Path, checkpoints: Path) -> None:
    """Neither those of sequences that have begun in the same step nor those of sequences that are gone."""
    from engine import Engine

    engine, base, new = Engine(binary, checkpoints / "qwen3", "float32"), prompt(80), 6
    prompts = [base, [*base[:40], 7, *base[41:]], base, base[:48], base[:15], base[16:]]
    known = [0, 32, 64, 32, 0, 0]
    alone = [engine.generate([each], new)[0] for each in prompts]
    total = sum(map(len, prompts))
    computed = total - sum(known) + len(prompts) * (new - 1)
    assert engine.generate(prompts, new, cache=112) == alone
    for options in ({}, {"chunk": 33}):
        assert engine.generate(prompts, new, **options) == alone
        found = engine.stats(prompts, new, **options)
        assert found == {"prompts": total, "reused": sum(known), "computed": computed}


def test_pages_without_users_are_given_back_when_the_cache_is_full(binary: Path, checkpoints: Path) -> None:
    """Those of the prompt that was used last stay; of a prompt that has to leave, its beginning does."""
    from engine import Engine

    engine = Engine(binary, checkpoints / "qwen3", "float32")
    a, b, c, d = (prompt(33, seed) for seed in range(4))
    assert engine.stats([a, b, a, c, d, a], 2, chunk=1, cache=7 * 16)["reused"] == 64
    assert engine.stats([a, b, a, c, d, b], 2, chunk=1, cache=7 * 16)["reused"] == 32
    assert engine.stats([a, b, a], 2, chunk=1, cache=4 * 16)["reused"] == 16
    order = [a, b, a, c, d, a, b]
    alone = [engine.generate([each], 2)[0] for each in order]
    assert engine.generate(order, 2, chunk=1, cache=4 * 16) == alone


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_that_is_split_computes_what_it_does_whole(
    binary: Path, checkpoints: Path, family: str
) -> None:
    from engine import Engine

    engine, ids = Engine(binary, checkpoints / family, "float32"), prompt(100)
    whole, split = (engine.logits(ids, 512, ranks=ranks) for ranks in (1, 2))
    np.testing.assert_allclose(split, whole, atol=1e-4)
    assert (split != whole).any()
    prompts = [prompt(length, seed) for seed, length in enumerate((3, 70, 33))]
    assert engine.generate(prompts, 12, ranks=2, chunk=20) == engine.generate(prompts, 12)


def test_a_split_in_bfloat16_sums_what_is_rounded(binary: Path, checkpoints: Path) -> None:
    """No further from float32 than the whole model, whose products round once in place of three times."""
    from engine import Engine

    ids, folder = prompt(256), checkpoints / "llama"
    exact = Engine(binary, folder, "float32").logits(ids, 512)
    engine = Engine(binary, folder, "bfloat16")
    whole, split = (np.sqrt(((engine.logits(ids, 512, ranks=n) - exact) ** 2).mean()) for n in (1, 2))
    assert 0 < split < 1.5 * whole


@pytest.mark.parametrize(
    ("family", "precision", "ranks", "message"),
    [
        ("llama", "float32", 4, "its 6 heads are no multiple of --ranks"),
        ("llama", "float32", 3, "its 2 heads of keys are no multiple of --ranks"),
        ("llama", "q4_0", 2, "a multiple of 128 weights; model.layers.0.self_attn.o_proj.weight has 192"),
        ("llama", "float32", 0, "--ranks takes a number from 1"),
        ("llama", "fp8", 1, "--precision fp8: the library has no products of 8-bit floats for this device"),
    ],
)
def test_a_split_that_is_not_served_ends_all_ranks(
    binary: Path, checkpoints: Path, family: str, precision: str, ranks: int, message: str
) -> None:
    from engine import Engine, EngineError

    with pytest.raises(EngineError, match=re.escape(message)):
        Engine(binary, checkpoints / family, precision).generate([[1] * 40], 2, ranks=ranks)


def test_sampling_obeys_its_seed_and_its_limits(binary: Path, checkpoints: Path) -> None:
    from engine import Engine

    engine, ids = Engine(binary, checkpoints / "llama", "float32"), [prompt(20)]
    greedy = engine.generate(ids, 16)
    assert engine.generate(ids, 16, temperature=1, top_k=1) == greedy
    assert engine.generate(ids, 16, temperature=1, top_p=1e-6) == greedy
    drawn = [engine.generate(ids, 16, temperature=1, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert engine.generate(ids, 16, stop=greedy[0][4])[0] == greedy[0][: greedy[0].index(greedy[0][4]) + 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, 'model_type "gpt2" is none of llama'),
        ({"model_type": "mixtral"}, 'lacks "num_experts"'),
        ({"model_type": "mixtral", "num_experts": 2, "num_experts_per_tok": 3}, "exceeds the number of exp"),
        ({"num_hidden_layers": 4}, "no tensor model.layers.3."),
        ({"intermediate_size": 640}, "is (512, 384) where the model has (640, 384)"),
        ({"rms_norm_eps": 1e-4}, "rms_norm_eps is neither"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, 'rope scaling "yarn" is none of'),
    ],
)
def test_a_config_that_is_not_served_is_refused(
    binary: Path, checkpoints: Path, tmp_path: Path, change: dict, message: str
) -> None:
    from engine import Engine, EngineError

    shutil.copytree(checkpoints / "llama", tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(EngineError, match=re.escape(message)):
        Engine(binary, tmp_path / "model").generate([[1]], 1)


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([512], {}, "token 512 is not in the vocabulary"),
        ([], {}, "a prompt has no tokens"),
        ([1] * 500, {}, "exceed the 512"),
        ([1] * 20, {"cache": 16}, "exceed the 16"),
        ([1], {"chunk": 0}, "--chunk takes a number from 1"),
        ([1], {"cache_type": "int8"}, "--cache-type takes same or, but for float32, fp8, not int8"),
        ([1], {"cache_type": "fp8", "precision": "float32"}, "but for float32, fp8, not fp8"),
        ([1], {"precision": "int3"}, "--precision takes float32, bfloat16, float16, q4_0 or fp8, not int3"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(
    binary: Path, checkpoints: Path, ids: list[int], options: dict, message: str
) -> None:
    from engine import Engine, EngineError

    with pytest.raises(EngineError, match=re.escape(message)):
        Engine(binary, checkpoints / "llama").generate([ids], 16, **options)


def test_a_file_that_is_cut_off_is_refused(binary: Path, checkpoints: Path, tmp_path: Path) -> None:
    from engine import Engine, EngineError

    shutil.copytree(checkpoints / "llama", tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    whole = file.read_bytes()
    for size, message in (
        (len(whole) // 2, "leaves the file"),
        (40, "not a safetensors file"),
        (0, "cannot map"),
    ):
        file.write_bytes(whole[:size])
        with pytest.raises(EngineError, match=message):
            Engine(binary, tmp_path / "model").generate([[1]], 1)


@pytest.fixture(scope="module")
def rust_binary(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in Rust, on the same library."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    folder = tmp_path_factory.mktemp("rust") / "llama"
    shutil.copytree(IN_RUST, folder, ignore=shutil.ignore_patterns("target"))
    manifest = folder / "Cargo.toml"
    manifest.write_text(manifest.read_text().replace("../../../dist/llama", str(binary.parents[1])))
    settings = {**os.environ, "RUSTFLAGS": "-D warnings", "CARGO_TARGET_DIR": str(folder / "target")}
    subprocess.run(["cargo", "build", "--release", "--offline"], cwd=folder, env=settings, check=True)
    return folder / "target" / "release" / "llama"


def run_rust(program: Path, *arguments: object, prompts: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, input=prompts, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_greedy_tokens_from_rust_are_those_of_torch(
    rust_binary: Path, checkpoints: Path, family: str
) -> None:
    from peers import disagreements, load_model

    prompts, model = [prompt(48), prompt(3, 1), prompt(90, 2)], load_model(checkpoints / family)
    lines = "".join(" ".join(map(str, each)) + "\n" for each in prompts)
    done = run_rust(rust_binary, checkpoints / family, "--tokens", 24, "--chunk", 40, prompts=lines)
    assert done.returncode == 0, done.stderr
    answers = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert [len(answer) for answer in answers] == [24] * 3
    for given, answer in zip(prompts, answers, strict=True):
        assert not disagreements(model, given, answer, noise=1e-4)


def test_draws_from_rust_are_those_of_the_other_engine(
    binary: Path, rust_binary: Path, checkpoints: Path
) -> None:
    from engine import Engine

    drawn = Engine(binary, checkpoints / "qwen2", "float32").generate([prompt(9)], 24, temperature=1, seed=5)
    options = ("--tokens", 24, "--temperature", 1, "--seed", 5)
    done = run_rust(rust_binary, checkpoints / "qwen2", *options, prompts=" ".join(map(str, prompt(9))))
    assert done.stdout.split() == [str(token) for token in drawn[0]]


@pytest.mark.parametrize(
    ("arguments", "prompts", "status", "message"),
    [
        ([], "", 2, "usage: llama FOLDER"),
        (["/nowhere"], "", 1, "/nowhere/config.json"),
        (["llama", "--tokens", "x"], "", 2, '--tokens does not take "x"'),
        (["llama"], "1 2 9999", 1, "the model has no token 9999"),
        (["llama", "--cache", "16"], "1 " * 17, 1, "a sequence may have 16 tokens"),
        (["mixtral"], "1", 1, "models of type mixtral are not supported"),
    ],
)
def test_errors_from_rust(
    rust_binary: Path, checkpoints: Path, arguments: list[str], prompts: str, status: int, message: str
) -> None:
    folders = [checkpoints / word if word in FAMILIES else word for word in arguments]
    done = run_rust(rust_binary, *folders, prompts=prompts)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr
