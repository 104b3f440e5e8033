"""What steps of transformers are made of: layers of attention, of the rest of a block, of all."""

from __future__ import annotations

from collections.abc import Iterable

from tilec.manifest.transformers.layers import BLOCKS, Layer

Layers = tuple[Layer, ...]


def _each(names: str, count: str = BLOCKS) -> Layers:
    return tuple(Layer(name, count) for name in names.split())


def _if(condition: str, names: str, count: str = BLOCKS) -> Layers:
    """Layers of models for which a condition holds."""
    return _each(names, f"({count}) if {condition} else 0")


# ---- attention ----

_ROTARY = (
    *_if("rotary_dim == head_dim", "rope.q rope.k", "rotary_layers"),
    *_if("rotary_dim < head_dim", "rope.q.part rope.k.part", "rotary_layers"),
)
_OUT = (*_each("attn.out"), *_if("out_bias", "attn.out_bias"))
HEAD_NORMS = _each("attn.q_norm attn.k_norm")
#: Over the rows of all heads.
ROW_NORMS = _each("attn.q_norm.row attn.k_norm.row")
OPTIONAL_LAYER_NORMS = _if("qk_layernorm", "attn.q_layernorm attn.k_layernorm")


def _scores(form: str) -> Layers:
    """Attention of all tokens, and of the newest one of sequences, over a window alone in some blocks."""
    names = f"attention.prefill{{0}}{form} attention.decode{{0}}{form}"
    near = "(sliding_layers if sliding_window and context > sliding_window else 0)"
    return (*_each(names.format(""), f"{BLOCKS} - {near}"), *_each(names.format(".window"), near))


def attention(norms: Layers = (), form: str = "") -> Layers:
    """``norms``: of queries and keys; ``form``: what is unusual about their scores."""
    biases = _if("qkv_bias", "attn.q_bias attn.k_bias attn.v_bias")
    return (*_each("attn.q attn.k attn.v"), *biases, *norms, *_ROTARY, *_scores(form), *_OUT)


#: Weights of queries, keys and values are one tensor.
FUSED_ATTENTION = (*_each("attn.qkv"), *_if("qkv_bias", "attn.qkv_bias"), *_ROTARY, *_scores(""), *_OUT)
#: The same where scores get a bias by distance in place of a rotary embedding.
MAYBE_ALIBI = (*FUSED_ATTENTION, *_if("alibi", "attn.alibi"))
#: Keys and values come of a latent of few channels. Prefill makes them (attn.kv_b) and joins the parts of
#: each head; decoding attends to latents, to which it takes queries (attn.absorb_k), and takes results back.
LATENT_ATTENTION = (
    *_if("not q_lora_rank", "attn.q"),
    *_if("q_lora_rank", "attn.q_a attn.q_a_norm attn.q_b"),
    *_each("attn.kv_a attn.kv_a_norm rope.q.latent rope.k.latent"),
    *_if("attention_bias and q_lora_rank", "attn.q_a_bias"),
    *_if("attention_bias", "attn.kv_a_bias"),
    *_each("attn.kv_b attn.join attention.prefill.latent"),
    *_each("attn.absorb_k attention.decode.latent attn.absorb_v"),
    *_OUT,
)

# ---- the rest of a block ----

_DENSE = f"{BLOCKS} - moe_layers"
_GATED = (*_each("mlp.gate mlp.up", _DENSE), *_if("mlp_bias", "mlp.gate_bias mlp.up_bias"))
_DOWN = (*_each("mlp.down", _DENSE), *_if("mlp_bias", "mlp.down_bias"))
MLP = (*_GATED, *_each("mlp.act", _DENSE), *_DOWN)
GEGLU = (*_GATED, *_each("mlp.geglu"), *_DOWN)
#: Weights of the gate and of what it lets through are one tensor.
FUSED_MLP = (*_each("mlp.gate_up mlp.act"), *_DOWN)
GELU_MLP = (*_each("mlp.up"), *_if("mlp_bias", "mlp.up_bias"), *_each("mlp.gelu"), *_DOWN)


def _experts(routing: str, act: str = "moe.act", biases: str = "") -> Layers:
    names = f"moe.router {routing} moe.sort moe.gather moe.gate moe.up {act} moe.down {biases} moe.combine"
    return _each(names, "moe_layers")


EXPERTS = _experts("moe.gating")
#: Of groups of experts the best first, by sigmoids and a bias.
GROUPED_EXPERTS = _experts("moe.gating.groups")
#: Gates are clamped, and every product has a bias.
BIASED_EXPERTS = _experts(
    "moe.router_bias moe.gating", "moe.act.clamped", "moe.gate_bias moe.up_bias moe.down_bias"
)
SHARED_EXPERTS = _if(
    "n_shared_experts", "shared.gate shared.up shared.act shared.down shared.add", "moe_layers"
)

# ---- a step ----

_HEAD = (*_if("not tie_word_embeddings", "lm_head", "1"), *_if("tie_word_embeddings", "lm_head.tied", "1"))
SOFTCAPPED = _each("lm_head.softcap", "1")


def _step(blocks: Iterable[Layer], norm: str) -> Layers:
    return (*_each("embed", "1"), *blocks, *_each(norm, "1"), *_HEAD)


def pre_normed(attention: Layers, mlp: Layers, *, post_norms: bool = False) -> Layers:
    """Norms of what attention and the rest read; ``post_norms``: and of what they add."""
    after = [_each(name) if post_norms else () for name in ("attn.post_norm", "mlp.post_norm")]
    first = (*_each("attn.norm"), *attention, *after[0], *_each("attn.add"))
    return _step((*first, *_each("mlp.norm"), *mlp, *after[1], *_each("mlp.add")), "norm.final")


def post_normed(attention: Layers, mlp: Layers) -> Layers:
    """Norms of what attention and the rest add, and of nothing else."""
    first = (*attention, *_each("attn.post_norm attn.add"))
    return _step((*first, *mlp, *_each("mlp.post_norm mlp.add")), "norm.final")


def layer_normed(attention: Layers, mlp: Layers) -> Layers:
    """LayerNorm ahead of attention and of the rest, or of both where they read the same rows."""
    second = _if("second_norm", "mlp.layernorm")
    first = (*_each("attn.layernorm"), *attention, *_each("attn.add"))
    return _step((*first, *second, *mlp, *_each("mlp.add")), "layernorm.final")


def encoder() -> Layers:
    """Three tables of embeddings; LayerNorm behind attention, over all tokens, and behind the rest."""
    embedding = _each("embed embed.positions embed.types embed.layernorm", "1")
    biases = _if("qkv_bias", "attn.q_bias attn.k_bias attn.v_bias")
    first = (
        *_each("attn.q attn.k attn.v"),
        *biases,
        *_each("attention"),
        *_OUT,
        *_each("attn.add attn.layernorm"),
    )
    return (*embedding, *first, *GELU_MLP, *_each("mlp.add mlp.layernorm"), *_each("pool", "1"))
