"""Configuration files of published models, of each family one or more: what decides layers and sizes."""

from __future__ import annotations

from typing import Any


def config(
    kind: str,
    hidden_size: int,
    intermediate_size: int,
    heads: tuple[int, int],
    layers: int,
    vocab_size: int,
    longest: int,
    **others: Any,
) -> dict[str, Any]:
    """``heads``: of queries, and of keys and values; ``longest``: the most positions."""
    return {
        "model_type": kind,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "num_hidden_layers": layers,
        "vocab_size": vocab_size,
        "max_position_embeddings": longest,
        "torch_dtype": "bfloat16",
        **others,
    }


_FLOAT16 = {"torch_dtype": "float16"}
_TIED = {"tie_word_embeddings": True}
_GEMMA_2 = {
    "head_dim": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
_GPT_OSS = {
    "head_dim": 64,
    "attention_bias": True,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
}
_FALCON = {
    "model_type": "falcon",
    "bias": False,
    "parallel_attn": True,
    "multi_query": True,
    "vocab_size": 65024,
    "torch_dtype": "bfloat16",
}
_GEMMA_3_TEXT = {
    "model_type": "gemma3_text",
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_hidden_layers": 34,
    "sliding_window": 1024,
}

MODELS: dict[str, dict[str, Any]] = {
    "Llama-2-7b": config("llama", 4096, 11008, (32, 32), 32, 32000, 4096, **_FLOAT16),
    "Llama-2-70b": config("llama", 8192, 28672, (64, 8), 80, 32000, 4096, **_FLOAT16),
    "Llama-3.1-8B": config("llama", 4096, 14336, (32, 8), 32, 128256, 131072),
    "Llama-3.2-1B": config("llama", 2048, 8192, (32, 8), 16, 128256, 131072, head_dim=64, **_TIED),
    "Yi-1.5-9B": config("llama", 4096, 11008, (32, 4), 48, 64000, 4096),
    "SmolLM2-1.7B": config("llama", 2048, 8192, (32, 32), 24, 49152, 8192, **_TIED),
    "SmolLM3-3B": config(
        "smollm3", 2048, 11008, (16, 4), 36, 128256, 65536, no_rope_layer_interval=4, attention_bias=False
    ),
    "Qwen2.5-7B": config(
        "qwen2", 3584, 18944, (28, 4), 28, 152064, 131072,
        use_sliding_window=False, sliding_window=131072, max_window_layers=28,
    ),
    "Qwen3-8B": config("qwen3", 4096, 12288, (32, 8), 36, 151936, 40960, head_dim=128, attention_bias=False),
    "Qwen3-30B-A3B": config(
        "qwen3_moe", 2048, 6144, (32, 4), 48, 151936, 40960, head_dim=128, num_experts=128,
        num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[],
    ),
    "Mistral-7B-v0.1": config("mistral", 4096, 14336, (32, 8), 32, 32000, 32768, sliding_window=4096),
    "Mistral-7B-v0.3": config("mistral", 4096, 14336, (32, 8), 32, 32768, 32768, sliding_window=None),
    "Mixtral-8x7B": config(
        "mixtral", 4096, 14336, (32, 8), 32, 32000, 32768,
        sliding_window=None, num_local_experts=8, num_experts_per_tok=2,
    ),
    "gemma-2-9b": config("gemma2", 3584, 14336, (16, 8), 42, 256000, 8192, **_GEMMA_2),
    "gemma-3-4b": {"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": _GEMMA_3_TEXT},
    "Phi-3-mini-4k": config("phi3", 3072, 8192, (32, 32), 32, 32064, 4096, sliding_window=2047),
    "phi-4": config("phi3", 5120, 17920, (40, 10), 40, 100352, 16384, sliding_window=None),
    "DeepSeek-V2-Lite": config(
        "deepseek_v2", 2048, 10944, (16, 16), 27, 102400, 163840, **_LATENT, q_lora_rank=None,
        moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
        first_k_dense_replace=1,
    ),
    "DeepSeek-V3": config(
        "deepseek_v3", 7168, 18432, (128, 128), 61, 129280, 163840, **_LATENT, q_lora_rank=1536,
        moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
        first_k_dense_replace=3, n_group=8, topk_group=4,
    ),
    "gpt-oss-20b": config(
        "gpt_oss", 2880, 2880, (64, 8), 24, 201088, 131072, **_GPT_OSS, num_local_experts=32,
        layer_types=["sliding_attention", "full_attention"] * 12,
    ),
    "OLMo-2-1124-7B-Instruct": config("olmo2", 4096, 11008, (32, 32), 32, 100352, 4096),
    "falcon-7b": {
        **_FALCON, "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32,
        "new_decoder_architecture": False,
    },
    "falcon-40b": {
        **_FALCON, "hidden_size": 8192, "num_attention_heads": 128, "num_hidden_layers": 60,
        "new_decoder_architecture": True, "num_kv_heads": 8,
    },
    "stablelm-2-1_6b": config(
        "stablelm", 2048, 5632, (32, 32), 24, 100352, 4096,
        use_qkv_bias=True, partial_rotary_factor=0.25, torch_dtype="float16",
    ),
    "MiniCPM-2B": config("minicpm", 2304, 5760, (36, 36), 40, 122753, 4096),
    "glm-4-9b-hf": config(
        "glm", 4096, 13696, (32, 2), 40, 151552, 131072, head_dim=128, attention_bias=True
    ),
    "GLM-4-9B-0414": config(
        "glm4", 4096, 13696, (32, 2), 40, 151552, 32768, head_dim=128,
        rope_parameters={"partial_rotary_factor": 0.5},
    ),
    "granite-3.0-8b": config("granite", 4096, 12800, (32, 8), 40, 49155, 4096, **_TIED),
    "internlm2-7b": config("internlm2", 4096, 14336, (32, 8), 32, 92544, 32768, bias=False),
    "c4ai-command-r-v01": config(
        "cohere", 8192, 22528, (64, 64), 40, 256000, 8192, use_qk_norm=False, **_FLOAT16
    ),
}  # fmt: skip
