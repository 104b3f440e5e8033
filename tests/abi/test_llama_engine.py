"""The decoder-only engine: its logits and tokens beside torch, alone and batched, and its errors."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "examples" / "cpp" / "llama"
FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
MODULES = ("engine", "checkpoint", "peers", "native")

pytestmark = pytest.mark.slow
pytest.importorskip("transformers", reason="writes the checkpoints and is the reference")


@pytest.fixture(scope="module")
def helpers() -> Iterator[None]:
    """The example's own modules, importable while the tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ENGINE))
        for name in MODULES:
            sys.modules.pop(name, None)
        yield
        for name in MODULES:
            sys.modules.pop(name, None)


def small_manifest(folder: Path) -> Path:
    """The engine's manifest for heads of 64 channels alone, without schedules to choose among."""
    text = (ENGINE / "llama.toml").read_text(encoding="utf-8")
    tables = re.split(r"\n(?=\[\[)", text.replace("D = [64, 128]", "D = 64"))
    kept = "\n".join(table for table in tables if "schedules" not in table)
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


def test_logits_in_bfloat16_are_no_further_from_float32_than_those_of_torch(
    binary: Path, checkpoints: Path
) -> None:
    from engine import Engine
    from peers import load_model, logits_of

    ids, folder = prompt(256), checkpoints / "qwen3"
    exact = logits_of(load_model(folder), ids)
    theirs = logits_of(load_model(folder, "bfloat16"), ids) - exact
    ours = Engine(binary, folder, "bfloat16").logits(ids, 512) - exact
    assert 0 < np.sqrt((ours**2).mean()) < 1.5 * np.sqrt((theirs**2).mean())


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


def test_batches_chunks_and_waiting_change_no_token(binary: Path, checkpoints: Path) -> None:
    from engine import Engine

    engine = Engine(binary, checkpoints / "mistral", "float32")
    prompts = [prompt(length, seed) for seed, length in enumerate((3, 70, 1, 33, 17))]
    alone = [engine.generate([each], 12)[0] for each in prompts]
    assert engine.generate(prompts, 12) == alone
    assert engine.generate(prompts, 12, chunk=7, cache=96) == alone


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
        ({"num_hidden_layers": 4}, "no tensor model.layers.3."),
        ({"intermediate_size": 640}, "is (512, 384) where config.json asks for (640, 384)"),
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
        ([1], {"precision": "int3"}, "--precision takes float32, bfloat16 or q4_0, not int3"),
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
