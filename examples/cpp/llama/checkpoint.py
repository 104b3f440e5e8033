"""Checkpoints of decoder-only models with seeded weights, as transformers saves them.

    python examples/cpp/llama/checkpoint.py CONFIG.json FOLDER [--seed N] [--dtype float32|bfloat16]

writes FOLDER/config.json and FOLDER/model.safetensors of the model that CONFIG.json describes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

#: Small models, one of each shape that the engine serves: grouped heads everywhere.
_SMALL = {
    "vocab_size": 512,
    "hidden_size": 384,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
}
_EXPERTS = {
    "num_experts": 12,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 256,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SMALL: dict[str, dict[str, Any]] = {
    "llama": {**_SMALL, "model_type": "llama", "rms_norm_eps": 1e-5, "rope_parameters": _LLAMA3},
    "qwen2": {**_SMALL, "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {**_SMALL, "model_type": "qwen3", "head_dim": 128},
    "mistral": {**_SMALL, "model_type": "mistral", "sliding_window": 40, "rms_norm_eps": 1e-5},
    "mixtral": {**_SMALL, "model_type": "mixtral", "intermediate_size": 256, "num_local_experts": 8},
    "qwen2_moe": {**_SMALL, **_EXPERTS, "model_type": "qwen2_moe", "decoder_sparse_step": 2},
    "qwen3_moe": {
        **_SMALL,
        **_EXPERTS,
        "model_type": "qwen3_moe",
        "norm_topk_prob": True,
        "mlp_only_layers": [1],
    },
}
#: As "llama", with as many query heads for a key head as kernels of GPUs are made for.
GROUPED: dict[str, dict[str, Any]] = {
    f"llama {channels}": {
        **SMALL["llama"],
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": channels,
    }
    for channels in (64, 128)
}
#: The shape of Llama-3.1-8B.
LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {**_LLAMA3, "original_max_position_embeddings": 8192},
}
#: The shape of Qwen2.5-0.5B.
QWEN_HALF_B: dict[str, Any] = {
    "model_type": "qwen2",
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    "tie_word_embeddings": True,
}


def write_checkpoint(
    config: dict[str, Any], folder: Path, seed: int = 0, dtype: str = "float32", device: str = "cpu"
) -> None:
    """Writes a model of ``config`` to ``folder``: normal weights whose products keep the size of what they
    take, gains about 1 and biases about 0, all of them from ``seed`` and made on ``device``."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    made = AutoConfig.for_model(**config)
    torch.manual_seed(seed)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(made, dtype=getattr(torch, dtype))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("norm.weight"):
                weight.uniform_(0.5, 1.5)
            elif weight.dim() == 1:
                weight.normal_(0, 0.5)
            else:
                weight.normal_(0, weight.shape[-1] ** -0.5)
    model.save_pretrained(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, help="a config.json")
    parser.add_argument("folder", type=Path, help="where the checkpoint goes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    options = parser.parse_args()
    try:
        config = json.loads(options.config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"error: {options.config} is no config.json: {error}", file=sys.stderr)
        return 2
    write_checkpoint(config, options.folder, options.seed, options.dtype)
    return 0


if __name__ == "__main__":
    sys.exit(main())
