"""The same checkpoints in torch, through transformers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM, DynamicCache

#: Types of activations, where a precision is none.
COMPUTED = {"q4_0": "bfloat16", "fp8": "bfloat16"}


def load_model(folder: Path, dtype: str = "float32") -> Any:
    """The model of a checkpoint, for inference."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()


def load_pair(folder: Path, precision: str, cache_type: str = "same") -> tuple[Any, Any]:
    """The model in float32, and in the type in which an engine of ``precision`` computes; both with weights,
    keys and values as the engine stores them, where it has fewer bits for them than for activations."""
    exact, rounded = load_model(folder), load_model(folder, COMPUTED.get(precision, precision))
    if precision in COMPUTED:
        for model in (exact, rounded):
            (quantise if precision == "q4_0" else round_to_float8)(model)
        rounded.load_state_dict(exact.state_dict())
    if cache_type == "fp8":
        for model in (exact, rounded):
            round_cache(model)
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
    for weight in _weights(model):
        rounded = dequantize(quantize(weight.detach().float().numpy(), kind), kind)
        weight.data = torch.from_numpy(rounded).to(weight.dtype)


def round_to_float8(model: Any) -> None:
    """Rounds weights of the model's products, and activations that these take, to float8_e4m3fn with a scale
    a row."""
    for weight in _weights(model):
        weight.data = _rounded_rows(weight.detach())
    for module in _products(model):
        module.register_forward_pre_hook(lambda _, given: (_rounded_rows(given[0]), *given[1:]))
    for experts in _experts(model):
        experts.forward = partial(_mix_rounded, experts)


def _mix_rounded(
    experts: Any, rows: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor
) -> torch.Tensor:
    """What ``experts`` make of ``rows``, with both activations that their products take rounded."""
    made, rounded = torch.zeros_like(rows), _rounded_rows(rows)
    for number in range(experts.num_experts):
        row, place = torch.where(chosen == number)
        gate, up = linear(rounded[row], experts.gate_up_proj[number]).chunk(2, dim=-1)
        down = linear(_rounded_rows(experts.act_fn(gate) * up), experts.down_proj[number])
        made.index_add_(0, row, (down * shares[row, place, None]).to(made.dtype))
    return made


def _rounded_rows(rows: torch.Tensor) -> torch.Tensor:
    """Rows whose largest numbers become 448, rounded to float8_e4m3fn, and back."""
    scale = rows.float().abs().amax(-1, keepdim=True).clamp(min=1e-30) / 448
    return ((rows.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(rows.dtype)


class Float8Cache(DynamicCache):
    """Keys, with their angles, and values as float8_e4m3fn, which has nothing beyond 448."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *rest: Any, **more: Any) -> Any:
        rounded = (
            x.float().clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) for x in (key_states, value_states)
        )
        return super().update(*rounded, *rest, **more)


def round_cache(model: Any) -> None:
    """Has the model attend to keys and values of a `Float8Cache`."""

    def with_cache(_: Any, given: Any, named: dict[str, Any]) -> Any:
        return given, {**named, "past_key_values": Float8Cache(config=model.config), "use_cache": True}

    model.register_forward_pre_hook(with_cache, with_kwargs=True)


def _products(model: Any) -> list[torch.nn.Linear]:
    """The model's products but those of experts; how much of a shared one counts is none."""
    named = model.named_modules()
    return [made for name, made in named if isinstance(made, torch.nn.Linear) and "expert_gate" not in name]


def _experts(model: Any) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "gate_up_proj")]


def _weights(model: Any) -> list[torch.nn.Parameter]:
    """Those of all products; the last one gets weights of its own, which are not those of the embeddings."""
    model.get_output_embeddings().weight = torch.nn.Parameter(model.get_output_embeddings().weight.clone())
    mixed = [weight for made in _experts(model) for weight in (made.gate_up_proj, made.down_proj)]
    return [made.weight for made in _products(model)] + mixed


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
