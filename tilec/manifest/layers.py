"""The layers of transformer models: what a step computes, by kind of model."""

from __future__ import annotations

from dataclasses import dataclass

#: Joins the names of layers that one call computes: "mlp.up+mlp.act".
FUSED = "+"


@dataclass(frozen=True)
class Kind:
    """A kind of model. ``once``: layers that a step computes once, ``repeated``: those of every block."""

    once: tuple[str, ...]
    repeated: tuple[str, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """All of them, in the order of a step."""
        return (self.once[0], *self.repeated, *self.once[1:])


_ATTENTION = ("attn.norm", "attn.q", "attn.k", "attn.v")
_ROTARY = ("rope.q", "rope.k", "attention.prefill", "attention.decode", "attn.out")
_GATED = ("mlp.norm", "mlp.gate", "mlp.up", "mlp.act", "mlp.down")
_DECODER = Kind(("embed", "norm.final", "lm_head"), (*_ATTENTION, *_ROTARY, *_GATED))
_NORMED_HEADS = Kind(_DECODER.once, (*_ATTENTION, "attn.q_norm", "attn.k_norm", *_ROTARY, *_GATED))
_ENCODER = Kind(
    ("embed", "pool"),
    (
        *("attn.q", "attn.k", "attn.v", "attention", "attn.out", "attn.norm"),
        *("mlp.up", "mlp.act", "mlp.down", "mlp.norm"),
    ),
)
#: By the ``model_type`` of a configuration file.
KINDS = {
    "llama": _DECODER,
    "mistral": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _NORMED_HEADS,
    "bert": _ENCODER,
}
#: Every layer of any kind.
LAYERS = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.layers))


def parts(layer: str) -> tuple[str, ...]:
    """The layers that one call computes: more than one where they are joined by "+"."""
    return tuple(part.strip() for part in layer.split(FUSED))


def belongs(layer: str, kind: str) -> bool:
    """Whether a model of a kind has a layer: all of its parts."""
    return all(part in KINDS[kind].layers for part in parts(layer))


def is_repeated(layer: str, kind: str) -> bool:
    """Whether every block has it."""
    return parts(layer)[0] in KINDS[kind].repeated
