"""`tilec check --model` on a manifest of one kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.cli.main import run

LAYERS = """
[[kernel.model]]
layers = ["mlp.act", "mlp.gate+mlp.up"]
dims = { n = "tokens * intermediate_size" }
[[kernel.model]]
layers = ["lm_head"]
kinds = ["llama"]
dims = { n = "vocab_size" }
"""
MANIFEST = """
edition = 1
[package]
name = "modelled"
[targets]
cpu = ["x86-64-v2", "x86-64-v3"]
host = "x86_64-linux-gnu.2.17"
[[kernel]]
name = "saxpy"
source = "kernels/saxpy.py:saxpy"
dims = { n = ["1..64", "%16"] }
fallback = "none"
"""
CONFIG = {
    "model_type": "llama",
    "torch_dtype": "float16",
    "hidden_size": 4,
    "intermediate_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 16,
    "vocab_size": 100,
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a manifest, modelled.toml, and of a model, config.json."""
    folder = tmp_path_factory.mktemp("modelled")
    assert run(["init", str(folder / "modelled")]) == 0
    (folder / "modelled" / "modelled.toml").write_text(MANIFEST + LAYERS)
    (folder / "modelled" / "config.json").write_text(json.dumps(CONFIG))
    return folder / "modelled"


def test_check_says_who_serves_a_model(
    tilec: Callable, project: Path, golden: Callable[..., None], tmp_path: Path
) -> None:
    command = ["check", project / "modelled.toml", "--model", project / "config.json", "-j", "1"]
    outcome = tilec(*command, "--tokens", "1..12,40")
    assert outcome.code == 0, "the kernel says that it refuses shapes"
    golden(outcome.out + outcome.err)
    strict = tilec(*command, "--tokens", "1..12,40", "--strict")
    assert strict.code == 1
    assert "mlp.act: saxpy on x86-64-v2 serves no tokens 9, 11" in strict.err
    out = tmp_path / "shapes.json"
    listed = json.loads(tilec(*command, "--tokens", "4..8", "--json", "--write-shapes", out).out)
    assert (listed["model"], listed["dtype"]) == ("llama", "float16")
    assert listed["answers"][0] == {
        "layer": "mlp.gate+mlp.up",
        "kernel": "saxpy",
        "dims": {"n": "tokens * 8"},
        "count": 3,
        "target": "x86-64-v2",
        "tokens": [[4, 8, 1]],
        "answer": "hit",
        "code": "x86-64-v2",
        "guards": {"n": "1..64"},
    }
    assert "attn.q" in listed["without_code"]["x86-64-v3"]
    calls = json.loads(out.read_text())["calls"]
    assert {call["dims"]["n"]: call["count"] for call in calls} == {32: 6, 64: 6, 100: 1}
    assert tilec("check", project / "modelled.toml", "--shapes", out, "-j", "1").code == 0


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_layers_without_a_kernel_are_errors_if_strict(
    tilec: Callable, project: Path, tmp_path: Path, options: list[str], code: int
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**CONFIG, "vocab_size": 96}))
    command = ["check", project / "modelled.toml", "--model", config, "-j", "1", "--tokens", "1..8"]
    outcome = tilec(*command, *options)
    assert (outcome.code, "float16: 0 of" in outcome.err) == (code, True)
    assert "no kernel that runs on x86-64-v2 is for embed, attn.norm" in outcome.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "config.json", "--shapes", "s.json"], "give one of them"),
        (["--context", "5"], "belong to --model"),
        (["--model", "config.json", "--dtype", "float17"], "float16"),
        (["--model", "config.json", "--tokens", "5..2"], "the lower number first"),
        (["--model", "config.json", "--tokens", "0"], "tokens are 1 to"),
        (["--model", "config.json", "--tokens", "many"], "not of the form"),
    ],
)
def test_wrong_questions_about_models_are_told(
    tilec: Callable, project: Path, options: list[str], said: str
) -> None:
    outcome = tilec("check", project / "modelled.toml", *options)
    assert outcome.code == 2
    assert said in outcome.err
