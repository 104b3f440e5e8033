"""Families of published models: what `manifests/llm.toml` serves of each, and what it is known to miss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from published_models import MODELS

from tilec.build.answers.coverage import answers, unserved_layers
from tilec.errors import InputError
from tilec.manifest import Plan, load_manifest
from tilec.manifest.transformers.families import KINDS
from tilec.manifest.transformers.layers import parts
from tilec.manifest.transformers.model_calls import ModelCalls, model_calls
from tilec.manifest.transformers.model_config import read_model_config

pytestmark = pytest.mark.slow

MANIFEST = Path(__file__).parents[3] / "manifests" / "llm.toml"
TARGETS = ("x86-64-v4", "sm_80", "sm_90a")
TOKENS = (1, 7, 16, 100, 2048)

#: Widths of heads, and numbers of them that share keys, for which no variant is made.
DECODE = "attention.decode"
ROPE = "rope.q rope.k"
#: No kernel is for these, or none of the model's type.
EXPERTS = "moe.gating moe.sort moe.combine"
WINDOW = "attention.prefill.window attention.decode.window"
LATENT = "attn.join attn.absorb_k attention.decode.latent attn.absorb_v moe.sort moe.combine"
SOFTCAP = (
    "attention.prefill.softcap attention.decode.softcap lm_head.softcap "
    "attention.prefill.window.softcap attention.decode.window.softcap"
)
SINKS = (
    "attention.prefill.sinks attention.decode.sinks "
    "attention.prefill.window.sinks attention.decode.window.sinks"
)
FLOAT16 = f"embed {ROPE} mlp.act"
PART = "rope.q.part rope.k.part"
LAYER_NORMS = "attn.layernorm layernorm.final"

#: What models miss. The list may only become shorter: take off what has come to be served.
KNOWN_MISSES = {
    "Llama-2-7b": f"{FLOAT16} attn.norm mlp.norm norm.final {DECODE}",
    "Llama-2-70b": f"{FLOAT16} attn.norm mlp.norm norm.final",
    "SmolLM2-1.7B": DECODE,
    "Qwen2.5-7B": DECODE,
    "Qwen3-30B-A3B": EXPERTS,
    "Mistral-7B-v0.1": WINDOW,
    "Mixtral-8x7B": EXPERTS,
    "gemma-2-9b": f"{ROPE} {SOFTCAP} mlp.geglu",
    "gemma-3-4b": f"{ROPE} {DECODE} {WINDOW} mlp.geglu",
    "Phi-3-mini-4k": f"{ROPE} {WINDOW}",
    "DeepSeek-V2-Lite": f"{LATENT} moe.gating",
    "DeepSeek-V3": f"{LATENT} moe.gating.groups",
    "gpt-oss-20b": f"{SINKS} {EXPERTS} moe.act.clamped moe.gate_bias moe.up_bias moe.down_bias",
    "OLMo-2-1124-7B-Instruct": DECODE,
    "falcon-7b": f"{LAYER_NORMS} {DECODE}",
    "falcon-40b": f"{LAYER_NORMS} mlp.layernorm {DECODE}",
    "stablelm-2-1_6b": (
        f"embed mlp.act {LAYER_NORMS} mlp.layernorm {PART} {DECODE} attn.q_bias attn.k_bias attn.v_bias"
    ),
    "MiniCPM-2B": DECODE,
    "glm-4-9b-hf": f"{PART} {DECODE}",
    "GLM-4-9B-0414": f"{PART} {DECODE}",
    "c4ai-command-r-v01": f"{FLOAT16} {LAYER_NORMS} {DECODE} lm_head.tied",
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load_manifest(MANIFEST)


def calls_of(plan: Plan, name: str, folder: Path, context: int | None = None) -> ModelCalls:
    path = folder / "config.json"
    path.write_text(json.dumps(MODELS[name]))
    config = read_model_config(path)
    return model_calls(plan, config, TOKENS, context or config.sizes["max_position_embeddings"])


def missed(plan: Plan, model: ModelCalls, target: str) -> set[str]:
    """The layers that nobody computes on a target at some numbers of tokens."""
    refused = (each for each in answers(model) if each.target == target and each.service.kind == "miss")
    return {
        *unserved_layers(plan, model)[target],
        *(part for each in refused for part in parts(each.call.layer)),
    }


@pytest.mark.parametrize("name", MODELS)
def test_what_is_served_of_a_model(plan: Plan, tmp_path: Path, name: str) -> None:
    model, known = calls_of(plan, name, tmp_path), set(KNOWN_MISSES.get(name, "").split())
    for target in TARGETS:
        found = missed(plan, model, target)
        assert not found - known, f"{name} on {target} has come to miss these"
        assert not known - found, f"{name} on {target} is served these: take them off the list"


def test_every_kind_has_a_published_model() -> None:
    of_texts = (model.get("text_config", model) for model in MODELS.values())
    assert {model["model_type"] for model in of_texts} == KINDS.keys() - {"bert"}
    assert KNOWN_MISSES.keys() <= MODELS.keys()


@pytest.mark.parametrize(
    ("name", "layer", "kernel", "dims"),
    [
        ("Qwen2.5-7B", "attn.q+attn.q_bias", "linear_bfloat16", {"N": "3584", "K": "3584"}),
        ("phi-4", "attn.qkv", "matmul_bfloat16", {"N": "7680", "K": "5120"}),
        ("phi-4", "mlp.act", "silu_mul_bfloat16", {"N": "17920", "ldg": "35840"}),
        ("Mixtral-8x7B", "moe.gate", "linear_grouped", {"tokens": "tokens * 2", "N": "14336", "G": "8"}),
        ("Qwen3-30B-A3B", "moe.down", "linear_grouped", {"N": "2048", "K": "768", "G": "128"}),
        ("gpt-oss-20b", "moe.router+moe.router_bias", "linear_bfloat16", {"N": "32", "K": "2880"}),
        ("DeepSeek-V3", "attn.q_b", "matmul_bfloat16", {"N": "24576", "K": "1536"}),
        ("DeepSeek-V3", "attn.kv_b", "matmul_bfloat16", {"N": "32768", "K": "512"}),
        ("DeepSeek-V3", "attn.out", "matmul_bfloat16", {"N": "7168", "K": "16384"}),
        (
            "DeepSeek-V2-Lite",
            "attention.prefill.latent",
            "attention_varlen_wide_keys_bfloat16",
            {"D": "192", "Dv": "128"},
        ),
        ("DeepSeek-V2-Lite", "shared.gate", "matmul_bfloat16", {"N": "2816"}),
        ("falcon-40b", "attn.qkv", "matmul_bfloat16", {"N": "9216"}),
        ("falcon-40b", "mlp.up+mlp.gelu", "linear_gelu_bfloat16", {"N": "32768"}),
        ("gemma-3-4b", "lm_head.tied", "linear_bfloat16", {"N": "262208", "K": "2560"}),
        ("OLMo-2-1124-7B-Instruct", "attn.q_norm.row", "rmsnorm_bfloat16", {"N": "4096"}),
        ("granite-3.0-8b", "attn.norm+mlp.add", "rmsnorm_residual_bfloat16", {"N": "4096"}),
    ],
)
def test_who_serves_a_layer(
    plan: Plan, tmp_path: Path, name: str, layer: str, kernel: str, dims: dict[str, str]
) -> None:
    calls = [call for call in calls_of(plan, name, tmp_path).calls if call.layer == layer]
    assert [call.kernel.name for call in calls] == [kernel]
    assert calls[0].texts.items() >= dims.items()


@pytest.mark.parametrize(
    ("name", "context", "counts"),
    [
        ("Phi-3-mini-4k", None, {"attention.prefill": 0, "attention.prefill.window": 32}),
        ("Phi-3-mini-4k", 2047, {"attention.prefill": 32, "attention.prefill.window": 0}),
        ("Qwen2.5-7B", None, {"attention.prefill": 28, "attention.prefill.window": 0, "attn.out_bias": 0}),
        ("gemma-2-9b", None, {"attention.decode.softcap": 21, "attention.decode.window.softcap": 21}),
        ("gemma-3-4b", None, {"attention.decode": 5, "attention.decode.window": 29, "lm_head": 0}),
        ("gpt-oss-20b", None, {"attention.decode.sinks": 12, "attention.decode.window.sinks": 12}),
        ("SmolLM3-3B", None, {"rope.q": 27, "attention.prefill": 36}),
        ("DeepSeek-V2-Lite", None, {"mlp.gate": 1, "moe.gate": 26, "shared.gate": 26, "attn.q_a": 0}),
        ("DeepSeek-V3", None, {"mlp.gate": 3, "moe.gate": 58, "attn.q": 0, "attn.q_a": 61}),
        ("Qwen3-30B-A3B", None, {"mlp.gate": 0, "moe.gate": 48, "attn.q_norm": 48}),
        ("falcon-7b", None, {"mlp.layernorm": 0, "attn.add": 32, "lm_head.tied": 1}),
    ],
)
def test_how_often_layers_are_computed(
    plan: Plan, tmp_path: Path, name: str, context: int | None, counts: dict[str, int]
) -> None:
    layers = calls_of(plan, name, tmp_path, context).layers
    assert {layer: layers.get(layer, 0) for layer in counts} == counts


def test_a_call_that_computes_more_stands_alone(plan: Plan, tmp_path: Path) -> None:
    of_queries = [
        call.layer for call in calls_of(plan, "Qwen2.5-7B", tmp_path).calls if "attn.q" in parts(call.layer)
    ]
    assert of_queries == ["attn.q+attn.q_bias"]


@pytest.mark.parametrize(("kind", "near"), [("qwen3_mo", "qwen3_moe"), ("gemma2_text", "gemma3_text")])
def test_the_nearest_known_kind_is_named(tmp_path: Path, kind: str, near: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**MODELS["phi-4"], "model_type": kind}))
    with pytest.raises(InputError) as caught:
        read_model_config(path)
    assert f'did you mean "{near}"?' in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("name", "without"), [("Mixtral-8x7B", "num_local_experts"), ("DeepSeek-V3", "first_k_dense_replace")]
)
def test_what_a_family_needs_is_asked_for(tmp_path: Path, name: str, without: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({key: value for key, value in MODELS[name].items() if key != without}))
    with pytest.raises(InputError, match=f'"{without}" is missing'):
        read_model_config(path)


def test_biases_by_distance_are_layers_of_their_own(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**MODELS["falcon-7b"], "alibi": True}))
    model = model_calls(plan, read_model_config(path), TOKENS, 2048)
    assert "attn.alibi" in missed(plan, model, "sm_90a")
    assert "rope.q" not in model.layers
