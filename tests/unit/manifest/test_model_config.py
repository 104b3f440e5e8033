"""Configuration files of transformers, and what they ask of the manifests that ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from breadth import parametrized

from tilec.build.answers.coverage import Run, answers, runs, runs_text, sample_calls, unserved_layers
from tilec.errors import InputError, ManifestError
from tilec.manifest import load_manifest
from tilec.manifest.shapes import read_shapes
from tilec.manifest.transformers.model_calls import model_calls
from tilec.manifest.transformers.model_config import read_model_config

MANIFESTS = Path(__file__).parents[3] / "manifests"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 8192,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "rope_theta": 5e5,
}
MISTRAL = {**LLAMA, "model_type": "mistral", "head_dim": None, "vocab_size": 32768, "torch_dtype": "float16"}
QWEN = {
    **LLAMA,
    "model_type": "qwen3",
    "intermediate_size": 12288,
    "head_dim": 128,
    "num_hidden_layers": 36,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
MINILM = {
    "model_type": "bert",
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_attention_heads": 12,
    "num_hidden_layers": 6,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}


def written(folder: Path, config: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_sizes_that_files_leave_out(tmp_path: Path) -> None:
    found = read_model_config(written(tmp_path, MISTRAL))
    assert (found.kind, found.dtype, found.sizes["head_dim"]) == ("mistral", "float16", 128)
    found = read_model_config(written(tmp_path, MINILM))
    assert (found.dtype, found.sizes["num_key_value_heads"], found.sizes["head_dim"]) == ("float32", 12, 32)
    assert read_model_config(written(tmp_path, QWEN)).sizes["tie_word_embeddings"] == 1


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ([], "no model's configuration"),
        ({"hidden_size": 1}, "no model's configuration"),
        ({**LLAMA, "model_type": "mamba"}, 'a model of the type "mamba" is not known'),
        ({**LLAMA, "hidden_size": None}, '"hidden_size" is None'),
        ({**LLAMA, "vocab_size": 0}, '"vocab_size" is 0'),
        ({key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}, "is missing"),
        ({**LLAMA, "num_key_value_heads": 5}, "32 heads cannot share 5"),
        ({**LLAMA, "hidden_act": "relu"}, 'llama model with the activation "relu" is not known'),
        ({**LLAMA, "partial_rotary_factor": float("nan")}, '"partial_rotary_factor" cannot be computed'),
        ({**LLAMA, "torch_dtype": "float12"}, '"float12" is not known'),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, config: object, what: str) -> None:
    with pytest.raises(InputError, match="(?i)" + what):
        read_model_config(written(tmp_path, config))


MODELS = [
    ("llm.toml", LLAMA, (), ()),
    ("llm.toml", {**LLAMA, "torch_dtype": "float32"}, ("attention.decode",), ()),
    ("llm.toml", QWEN, (), ()),
    ("llm.toml", MINILM, (), ()),
    ("minilm.toml", MINILM, (), ()),
    ("minilm.toml", {**MINILM, "torch_dtype": "float16"}, (), ()),
]


@parametrized(("name", "config", "without", "missed"), MODELS, fast=[MODELS[0], *MODELS[2:]])
def test_manifests_that_ship_serve_models(
    tmp_path: Path, name: str, config: dict[str, Any], without: tuple[str, ...], missed: tuple[str, ...]
) -> None:
    plan = load_manifest(MANIFESTS / name)
    model = model_calls(plan, read_model_config(written(tmp_path, config)), range(1, 4097), 4096)
    misses = {each.call.layer for each in answers(model) if each.service.kind == "miss"}
    assert misses == set(missed)
    device = "sm_90a" if name == "llm.toml" or "torch_dtype" in config else "x86-64-v4"
    assert unserved_layers(plan, model)[device] == without


def test_calls_of_a_model(tmp_path: Path) -> None:
    plan = load_manifest(MANIFESTS / "llm.toml")
    model = model_calls(plan, read_model_config(written(tmp_path, LLAMA)), [1, 16, 17, 100], 1000)
    calls = {call.layer: call for call in model.calls}
    down, decode = calls["mlp.down"], calls["attention.decode"]
    assert (down.kernel.name, down.count, calls["lm_head"].count) == ("matmul_bfloat16", 32, 1)
    assert [values.tolist() for values in down.dims.values()] == [[1, 16, 17, 100], [4096] * 4, [14336] * 4]
    assert decode.texts["pages"] == "tokens * 63"
    assert decode.dims["group"].tolist() == [4] * 4
    assert "attention.decode" in unserved_layers(plan, model)["x86-64-v2"]
    of_down = [each for each in answers(model) if each.call is down and each.target == "sm_80"]
    assert [(str(each.tokens[0]), each.service.kind) for each in of_down] == [
        ("1", "hit"),
        ("17", "hit"),
    ]


def test_a_model_makes_a_shapes_file(tmp_path: Path) -> None:
    plan = load_manifest(MANIFESTS / "llm.toml")
    model = model_calls(plan, read_model_config(written(tmp_path, LLAMA)), range(1, 301), 1024)
    file = tmp_path / "shapes.json"
    file.write_text(json.dumps({"calls": sample_calls(model)}))
    calls = read_shapes(file, plan)
    square = {
        call.dims["M"]: call.count
        for call in calls
        if call.dims == {"M": call.dims.get("M"), "N": 4096, "K": 4096}
    }
    assert sorted(square) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert set(square.values()) == {64}, "attn.q and attn.out of 32 blocks"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([5], "5"),
        ([1, 2, 3, 4], "1..4"),
        ([8, 16, 24], "8..24 by 8"),
        ([1, 9], "1, 9"),
        ([1, 2, 3, 5, 6, 7, 9], "1..3, 5..7, 9"),
        ([1, 5, 6, 7], "1, 5..7"),
        ([value for value in range(1, 33) if value % 8], "1..7, 9..15, 17..23, ... (28 in all)"),
    ],
)
def test_numbers_of_tokens_are_summed_up(values: list[int], text: str) -> None:
    found = runs(values)
    assert runs_text(found) == text
    assert [value for run in found for value in range(run.first, run.last + 1, run.step)] == values
    assert sum(map(len, found)) == len(values)
    assert Run(3, 3) == runs([3])[0]


PLAN = """
edition = 1
[package]
name = "small"
[targets]
cpu = ["x86-64-v2"]
host = "x86_64-linux-gnu.2.17"
[[kernel]]
name = "act"
source = "json:loads"
dims = { n = "dynamic" }
[[kernel.model]]
layers = ["mlp.act"]
dims = { n = "tokens" }
"""


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"mlp.act"', '"mlp.act+mlp.upp"', '"mlp.upp" is no layer'),
        ('"mlp.act"', '"mlp.act", "mlp.act"', "same value twice"),
        ('n = "tokens"', 'm = "tokens"', 'unknown dimension "m"'),
        ('{ n = "tokens" }', "{}", "give no n"),
        ('"tokens"', '"tokens ** 2"', "an expression is made of"),
        ('"tokens"', "1.5", "neither an integer nor an expression"),
        ('dims = { n = "tokens" }', 'kinds = ["gpt"]\ndims = { n = 1 }', '"gpt" is no kind of model'),
    ],
)
def test_tables_of_layers_are_checked(tmp_path: Path, old: str, new: str, what: str) -> None:
    path = tmp_path / "small.toml"
    path.write_text(PLAN.replace(old, new))
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert what in f"{caught.value.what} {caught.value.why}"
    assert caught.value.place is not None
    assert caught.value.place.line


@pytest.mark.parametrize(
    ("size", "what"),
    [
        ("experts * tokens", 'the model has no "experts"'),
        ("tokens - 1", "n = tokens - 1 is 0"),
        ("tokens // (hidden_size - 4096)", "cannot be computed"),
        ("vocab_size * vocab_size * tokens", "no size of a dimension"),
    ],
)
def test_sizes_that_cannot_be(tmp_path: Path, size: str, what: str) -> None:
    path = tmp_path / "small.toml"
    path.write_text(PLAN.replace('"tokens"', f'"{size}"'))
    config = read_model_config(written(tmp_path, LLAMA))
    with pytest.raises(InputError, match=".*".join(what.replace("(", r"\(").split("*"))):
        model_calls(load_manifest(path), config, [1, 2], 4096)


def test_a_manifest_for_no_such_model(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(PLAN.replace('dims = { n = "tokens" }', 'dtypes = ["float16"]\ndims = { n = "tokens" }'))
    with pytest.raises(InputError, match="is for a llama model of bfloat16"):
        model_calls(load_manifest(path), read_model_config(written(tmp_path, LLAMA)), [1], 4096)
