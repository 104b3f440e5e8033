"""Kinds of transformer models by the ``model_type`` of their configuration files, a row each."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.manifest.transformers import step
from tilec.manifest.transformers.layers import BLOCKS, Kind, Layer

#: Sizes that files may leave out. ``..._row``: so many elements lie between rows of queries, keys, gates.
_SIZES = {
    "num_key_value_heads": "num_attention_heads",
    "head_dim": "hidden_size // num_attention_heads",
    "v_head_dim": "head_dim",
    "partial_rotary_factor": "1",
    "rotary_dim": "head_dim * partial_rotary_factor",
    "rotary_layers": BLOCKS,
    "query_row": "num_attention_heads * head_dim",
    "key_row": "num_key_value_heads * head_dim",
    "gate_row": "intermediate_size",
    "tie_word_embeddings": "0",
    "attention_bias": "0",
    "qkv_bias": "attention_bias",
    "out_bias": "attention_bias",
    "mlp_bias": "0",
    "sliding_window": "0",
    "sliding_layers": "0",
    "moe_layers": "0",
}
_FUSED = "(num_attention_heads + 2 * num_key_value_heads) * head_dim"
_FUSED_ROWS = {"query_row": _FUSED, "key_row": _FUSED}
_FUSED_GATES = {"gate_row": "2 * intermediate_size"}
_QWEN_EXPERTS = {
    "mlp_only_layers": "0",
    "decoder_sparse_step": "1",
    "moe_layers": f"{BLOCKS} // decoder_sparse_step - mlp_only_layers",
}
_LOCAL_EXPERTS = {
    "num_experts": "num_local_experts",
    "moe_intermediate_size": "intermediate_size",
    "moe_layers": BLOCKS,
}
_LATENT = {
    "q_lora_rank": "0",
    "head_dim": "qk_nope_head_dim + qk_rope_head_dim",
    "num_experts": "n_routed_experts",
    "n_shared_experts": "0",
    "shared_intermediate_size": "n_shared_experts * moe_intermediate_size",
    "moe_layers": f"{BLOCKS} - first_k_dense_replace",
}
_FALCON = {
    "intermediate_size": "4 * hidden_size",
    "max_position_embeddings": "2048",
    "new_decoder_architecture": "0",
    "multi_query": "1",
    "parallel_attn": "1",
    "bias": "0",
    "num_kv_heads": "num_attention_heads",
    "num_key_value_heads": "num_kv_heads if new_decoder_architecture else "
    "1 if multi_query else num_attention_heads",
    "tie_word_embeddings": "1",
    "alibi": "0",
    "rotary_layers": f"0 if alibi else {BLOCKS}",
    "attention_bias": "bias",
    "mlp_bias": "bias",
    "second_norm": "new_decoder_architecture or not parallel_attn",
}
_STABLE = {
    "qkv_bias": "use_qkv_bias",
    "use_qkv_bias": "0",
    "qk_layernorm": "0",
    "use_parallel_residual": "0",
    "second_norm": "not use_parallel_residual",
    "partial_rotary_factor": "0.25",
}
_COHERE = {
    "tie_word_embeddings": "1",
    "use_qk_norm": "0",
    "qk_layernorm": "use_qk_norm",
    "second_norm": "0",
}
_QWEN_WINDOWS = {
    "use_sliding_window": "0",
    "max_window_layers": BLOCKS,
    "sliding_layers": f"max({BLOCKS} - max_window_layers, 0) if use_sliding_window else 0",
}
#: Those of the classes, which files of these models leave out.
_GEMMA_3 = {
    "tie_word_embeddings": "1",
    "num_attention_heads": "8",
    "num_key_value_heads": "4",
    "head_dim": "256",
    "vocab_size": "262208",
    "max_position_embeddings": "131072",
    "sliding_window_pattern": "6",
    "sliding_layers": f"{BLOCKS} - {BLOCKS} // sliding_window_pattern",
}
_SMOL_3 = {
    "tie_word_embeddings": "1",
    "no_rope_layer_interval": "4",
    "rotary_layers": f"{BLOCKS} - {BLOCKS} // no_rope_layer_interval",
}
_EVERY_SECOND = f"{BLOCKS} - {BLOCKS} // 2"


def _kind(layers: tuple[Layer, ...], **sizes: str) -> Kind:
    return Kind(layers, {**_SIZES, **sizes})


_LLAMA = step.pre_normed(step.attention(), step.MLP)
_NORMED_HEADS = step.attention(step.HEAD_NORMS)
_LAYER_NORMED = step.layer_normed(step.attention(step.OPTIONAL_LAYER_NORMS), step.MLP)
#: By the ``model_type`` of a configuration file.
KINDS: Mapping[str, Kind] = {
    "llama": _kind(_LLAMA),
    "granite": _kind(_LLAMA),
    "minicpm": _kind(_LLAMA, tie_word_embeddings="1"),
    "mistral": _kind(_LLAMA, sliding_layers=BLOCKS),
    "smollm3": _kind(_LLAMA, **_SMOL_3),
    "qwen2": _kind(_LLAMA, qkv_bias="1", **_QWEN_WINDOWS),
    "qwen3": _kind(step.pre_normed(_NORMED_HEADS, step.MLP), **_QWEN_WINDOWS),
    "qwen3_moe": _kind(
        step.pre_normed(_NORMED_HEADS, step.MLP + step.EXPERTS), **_QWEN_WINDOWS, **_QWEN_EXPERTS
    ),
    "mixtral": _kind(
        step.pre_normed(step.attention(), step.EXPERTS), sliding_layers=BLOCKS, **_LOCAL_EXPERTS
    ),
    "gpt_oss": _kind(
        step.pre_normed(step.attention(form=".sinks"), step.BIASED_EXPERTS),
        sliding_layers=_EVERY_SECOND,
        **_LOCAL_EXPERTS,
    ),
    "deepseek_v2": _kind(
        step.pre_normed(step.LATENT_ATTENTION, step.MLP + step.EXPERTS + step.SHARED_EXPERTS), **_LATENT
    ),
    "deepseek_v3": _kind(
        step.pre_normed(step.LATENT_ATTENTION, step.MLP + step.GROUPED_EXPERTS + step.SHARED_EXPERTS),
        **_LATENT,
    ),
    "phi3": _kind(
        step.pre_normed(step.FUSED_ATTENTION, step.FUSED_MLP),
        sliding_layers=BLOCKS,
        **_FUSED_ROWS,
        **_FUSED_GATES,
    ),
    "internlm2": _kind(step.pre_normed(step.FUSED_ATTENTION, step.MLP), attention_bias="bias", **_FUSED_ROWS),
    "glm": _kind(
        step.pre_normed(step.attention(), step.FUSED_MLP),
        partial_rotary_factor="0.5",
        out_bias="0",
        **_FUSED_GATES,
    ),
    "glm4": _kind(
        step.pre_normed(step.attention(), step.FUSED_MLP, post_norms=True),
        partial_rotary_factor="0.5",
        out_bias="0",
        **_FUSED_GATES,
    ),
    "gemma2": _kind(
        step.pre_normed(step.attention(form=".softcap"), step.GEGLU, post_norms=True) + step.SOFTCAPPED,
        tie_word_embeddings="1",
        sliding_layers=_EVERY_SECOND,
    ),
    "gemma3_text": _kind(step.pre_normed(_NORMED_HEADS, step.GEGLU, post_norms=True), **_GEMMA_3),
    "olmo2": _kind(step.post_normed(step.attention(step.ROW_NORMS), step.MLP)),
    "stablelm": _kind(_LAYER_NORMED, **_STABLE),
    "cohere": _kind(_LAYER_NORMED, **_COHERE),
    "falcon": _kind(step.layer_normed(step.MAYBE_ALIBI, step.GELU_MLP), **_FALCON, **_FUSED_ROWS),
    "bert": _kind(step.encoder(), attention_bias="1", mlp_bias="1"),
}
#: Every layer of any kind.
LAYERS = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.names))
#: What each of these layers computes, as ``hidden_act`` names it.
ACTIVATIONS = {
    "mlp.act": "silu",
    "moe.act": "silu",
    "moe.act.clamped": "silu",
    "mlp.geglu": "gelu_pytorch_tanh",
    "mlp.gelu": "gelu",
}
