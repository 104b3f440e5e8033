"""torch on a GPU: the model of transformers in bfloat16, prefilled by sdpa, and a compiled step that
decodes over a static cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM, StaticCache

WARM, REPEATS, STEPS = 3, 5, 20


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def milliseconds(run: Callable[[], Any], device: str, repeats: int) -> float:
    """Median of calls that are waited for."""
    times = []
    for _ in range(repeats):
        _wait(device)
        begin = time.perf_counter()
        run()
        _wait(device)
        times.append(1e3 * (time.perf_counter() - begin))
    return median(times)


def copy_rate(device: str) -> float:
    """Bytes read and written a second by the faster of torch's two ways to copy 2 GiB."""
    source = torch.ones(1 << 30 if device == "cuda" else 1 << 24, dtype=torch.bfloat16, device=device)
    target = torch.empty_like(source)
    ways = (lambda: target.copy_(source), lambda: torch.mul(source, 1, out=target))
    best = min(milliseconds(way, device, 12) for way in ways)
    return 2e3 * source.nbytes / best


class TorchPeer:
    """A checkpoint on the device."""

    def __init__(self, folder: Path, device: str) -> None:
        self.device = device
        place = {"device_map": device} if device != "cpu" else {}
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, attn_implementation="sdpa", **place
        ).eval()
        self.compiled = torch.compile(self.model.forward, mode="reduce-overhead", dynamic=False)

    @torch.inference_mode()
    def prefill(self, length: int) -> dict[str, float]:
        """Of one prompt, its last token's logits and a cache that grows."""
        ids = torch.randint(0, self.model.config.vocab_size, (1, length), device=self.device)

        def run() -> Any:
            return self.model(ids, use_cache=True, logits_to_keep=1).logits.argmax(-1)

        milliseconds(run, self.device, 2)
        return {"ms": milliseconds(run, self.device, REPEATS)}

    @torch.inference_mode()
    def decode(self, count: int, context: int) -> dict[str, float]:
        """Of a step of ``count`` sequences behind ``context`` tokens, with a cache of random numbers."""
        torch._dynamo.reset()
        cache = self._filled(count, context)
        ids = torch.randint(0, self.model.config.vocab_size, (count, 1), device=self.device)

        def run() -> None:
            made = self.compiled(ids, past_key_values=cache, use_cache=True)
            ids.copy_(made.logits[:, -1:].argmax(-1))

        milliseconds(run, self.device, WARM)
        return {"ms": milliseconds(run, self.device, STEPS)}

    def _filled(self, count: int, context: int) -> StaticCache:
        """A static cache whose contents count as those of ``context`` tokens, with room for the steps."""
        config = self.model.config
        cache = StaticCache(config=config, max_cache_len=context + WARM + STEPS + 1)
        shape = (count, config.num_key_value_heads, context, config.head_dim)
        some = torch.randn(shape, dtype=torch.bfloat16, device=self.device)
        for layer in range(config.num_hidden_layers):
            cache.update(some, some, layer)
        return cache
