"""The calls that a transformer model makes of a plan's kernels, for a range of numbers of tokens."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilec.errors import InputError, Place
from tilec.manifest.expansion.variants import KernelPlan, Plan
from tilec.manifest.model import ModelLayers
from tilec.manifest.text.expressions import evaluate, fold
from tilec.manifest.transformers.families import KINDS
from tilec.manifest.transformers.layers import parts
from tilec.manifest.transformers.model_config import ModelConfig
from tilec.spelling import suggestion

_LARGEST = 2**31 - 1
#: A kernel, a table of it, and the layers that one call computes.
_Use: TypeAlias = tuple[KernelPlan, ModelLayers, str]


@dataclass(frozen=True, eq=False)
class LayerCall:
    """One layer computed by one kernel. ``dims``: an int64 array per dim, one entry for each number of
    tokens; ``texts``: the same for people, numbers where tokens play no part; ``count``: calls in a step."""

    kernel: KernelPlan
    layer: str
    dims: Mapping[str, np.ndarray]
    texts: Mapping[str, str]
    count: int


@dataclass(frozen=True)
class ModelCalls:
    """``layers``: how often a step computes each, in its order. ``calls`` in that order too, each at every
    number of ``tokens``."""

    config: ModelConfig
    layers: Mapping[str, int]
    tokens: np.ndarray
    calls: tuple[LayerCall, ...]


def model_calls(plan: Plan, config: ModelConfig, tokens: Sequence[int], context: int) -> ModelCalls:
    """What a model asks of a plan. ``context`` is the longest sequence.

    Raises:
        InputError: no kernel is for such a model, or a size cannot be computed.
    """
    layers = _layers(config, context)
    counts = np.asarray(tokens, np.int64)
    names: dict[str, Any] = {**config.sizes, "context": context, "tokens": counts}
    uses = list(_uses(plan, config, layers))
    found = [
        _call(plan, use, names, min(layers[part] for part in parts(use[2])))
        for use in uses
        if not any(_computes_more(other, use) for other in uses)
    ]
    if not found:
        raise InputError(
            f"no kernel of {plan.path} is for a {config.kind} model of {config.dtype}",
            place=Place(str(plan.path), key="kernel.model"),
            remedy="add [[kernel.model]] tables, or ask for another type with --dtype",
        )
    order = list(layers)
    found.sort(key=lambda call: order.index(parts(call.layer)[0]))
    return ModelCalls(config, layers, counts, tuple(found))


def _layers(config: ModelConfig, context: int) -> dict[str, int]:
    """How often a step computes each layer of a model."""
    try:
        return KINDS[config.kind].counts({**config.sizes, "context": context})
    except KeyError as error:
        key = str(error.args[0])
        what, place = f'the key "{key}" is missing', Place(str(config.path), key=key)
        raise InputError(what, place=place, remedy="it must be an integer") from error


def _uses(plan: Plan, config: ModelConfig, layers: Container[str]) -> Iterator[_Use]:
    """The tables of the manifest that are for this model, layer by layer."""
    for kernel in plan.kernels:
        for use in kernel.entry.model:
            kinds, dtypes = use.kinds or tuple(KINDS), use.dtypes or _own_dtypes(kernel)
            if config.kind in kinds and (not dtypes or config.dtype in dtypes):
                yield from (
                    (kernel, use, layer)
                    for layer in use.layers
                    if all(part in layers for part in parts(layer))
                )


def _computes_more(one: _Use, other: _Use) -> bool:
    """Whether one call computes what another does and more, wherever the other runs."""
    if not set(parts(one[2])) > set(parts(other[2])):
        return False
    targets = [{variant.target.name for variant in kernel.variants} for kernel, _, _ in (one, other)]
    return targets[0] >= targets[1]


def _own_dtypes(kernel: KernelPlan) -> tuple[str, ...]:
    dtype = kernel.args.get("dtype")
    return (dtype,) if isinstance(dtype, str) else ()


def _call(plan: Plan, call: _Use, names: Mapping[str, Any], count: int) -> LayerCall:
    kernel, use, layer = call
    dims, texts = {}, {}
    fixed = {name: value for name, value in names.items() if name != "tokens"}
    for name in kernel.entry.dims:
        values = _size(plan, kernel, layer, name, use.dims[name], names)
        dims[name] = np.broadcast_to(values, names["tokens"].shape)
        texts[name] = fold(use.dims[name], fixed)
    return LayerCall(kernel, layer, dims, texts, count)


def _size(
    plan: Plan, kernel: KernelPlan, layer: str, dim: str, text: str, names: Mapping[str, Any]
) -> np.ndarray:
    """One dim for every number of tokens."""
    place = Place(str(plan.path), key=f"kernel.model.dims.{dim} of {kernel.name}, layer {layer}")
    try:
        values = np.asarray(evaluate(text, names))
    except KeyError as error:
        name = str(error.args[0])
        raise InputError(
            f'the model has no "{name}"', place=place, why=f"{dim} = {text}", remedy=suggestion(name, names)
        ) from error
    except (ZeroDivisionError, OverflowError) as error:
        raise InputError(f"{dim} = {text} cannot be computed", place=place, why=str(error)) from error
    if values.dtype != np.int64 or values.min() < 1 or values.max() > _LARGEST:
        worst = values.min() if values.min() < 1 else values.max()
        raise InputError(f"{dim} = {text} is {worst}, no size of a dimension", place=place)
    return values
