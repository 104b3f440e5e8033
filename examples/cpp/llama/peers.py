"""The same checkpoints in torch, through transformers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

#: Types of activations, where a precision is none.
COMPUTED = {"q4_0": "bfloat16"}


def load_model(folder: Path, dtype: str = "float32") -> Any:
    """The model of a checkpoint, for inference."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()


def load_pair(folder: Path, precision: str) -> tuple[Any, Any]:
    """The model in float32, and in the type in which an engine of ``precision`` computes; both with weights
    as the engine stores them, where it has fewer bits for them than for activations."""
    exact, rounded = load_model(folder), load_model(folder, COMPUTED.get(precision, precision))
    if precision == "q4_0":
        for model in (exact, rounded):
            quantise(model)
        rounded.load_state_dict(exact.state_dict())
    return exact, rounded


def logits_of(model: Any, ids: Sequence[int]) -> np.ndarray:
    """The logits of each token of one sequence, float32 (tokens, vocabulary)."""
    with torch.inference_mode():
        return model(torch.tensor([list(ids)])).logits[0].float().numpy()


def disagreements(
    model: Any, prompt: Sequence[int], answer: Sequence[int], noise: float, routing_noise: float = 0.0
) -> list[int]:
    """Where a greedy answer is not what the model says of the tokens before, with logits of the two more than
    ``noise`` apart, and no router's logits of the expert that it takes last and of the next one within
    ``routing_noise``: a token that rounding sends to another expert says nothing."""
    behind = slice(len(prompt) - 1, -1)
    with torch.inference_mode():
        routed = {"output_router_logits": True} if routing_noise else {}
        made = model(torch.tensor([[*prompt, *answer]]), **routed)
    logits = made.logits[0].float().numpy()[behind]
    short = logits.max(axis=1) - logits[np.arange(len(answer)), list(answer)]
    far = short > noise
    for router in (made.router_logits or ()) if routing_noise else ():
        far &= _margin(router.float().numpy(), model.config.num_experts_per_tok)[behind] >= routing_noise
    return np.flatnonzero(far).tolist()


def _margin(router: np.ndarray, taken: int) -> np.ndarray:
    """How far the logit of the last expert that a token takes is above the next one's."""
    falling = -np.sort(-router, axis=1)
    return np.asarray(falling[:, taken - 1] - falling[:, taken])


def quantise(model: Any) -> None:
    """Rounds the weights of the model's products to Q4_0 and back."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    kind = GGMLQuantizationType.Q4_0
    tables = {id(model.get_input_embeddings().weight)}
    model.get_output_embeddings().weight = torch.nn.Parameter(model.get_output_embeddings().weight.clone())
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and id(module.weight) not in tables:
            rounded = dequantize(quantize(module.weight.detach().float().numpy(), kind), kind)
            module.weight.data = torch.from_numpy(rounded).to(module.weight.dtype)


def times(model: Any, prompt: Sequence[int], tokens: int) -> dict[str, float]:
    """Tokens a second of one prompt ("prefill"), and of ``tokens`` greedy ones behind it ("decode")."""
    with torch.inference_mode():
        begin = time.perf_counter()
        made = model(torch.tensor([list(prompt)]), use_cache=True, logits_to_keep=1)
        middle = time.perf_counter()
        for _ in range(tokens):
            following = made.logits[:, -1:].argmax(-1)
            made = model(following, past_key_values=made.past_key_values, use_cache=True)
        end = time.perf_counter()
    return {"prefill": len(prompt) / (middle - begin), "decode": tokens / (end - middle)}
