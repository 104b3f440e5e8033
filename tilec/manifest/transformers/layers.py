"""The layers of transformer models: what a step computes, and how often, by the keys of a configuration file.

What can be folded into weights as they are loaded is no layer: scales of queries, embeddings, residuals and
logits, the 1 that is added to weights of norms, the order of the pairs that a rotary embedding turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilec.manifest.text.conditions import evaluate

#: Joins the names of layers that one call computes: "mlp.up+mlp.act".
FUSED = "+"
#: How often a step computes what every block has.
BLOCKS = "num_hidden_layers"


@dataclass(frozen=True)
class Layer:
    """``count``: how often a step computes it, an expression of sizes (`tilec.manifest.text.conditions`).

    A model for which that is 0 does without it.
    """

    name: str
    count: str = BLOCKS


@dataclass(frozen=True)
class Kind:
    """A kind of model: its layers in the order of a step, and ``sizes`` that its files may leave out or know
    by other names, as expressions of what they have."""

    layers: tuple[Layer, ...]
    sizes: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all layers that such models may have."""
        return tuple(dict.fromkeys(layer.name for layer in self.layers))

    def counts(self, sizes: Mapping[str, Any]) -> dict[str, int]:
        """How often a step computes each layer of a model of given sizes. KeyError: one is missing."""
        found = {layer.name: int(evaluate(layer.count, sizes)) for layer in self.layers}
        return {name: count for name, count in found.items() if count > 0}


class Sizes(dict[str, Any]):
    """Numbers by name; those that are not there come of expressions of the others as they are asked for."""

    def __init__(self, given: Mapping[str, Any], others: Mapping[str, str]) -> None:
        super().__init__(given)
        self._others = others

    def __missing__(self, name: str) -> int:
        """Raises KeyError for a name that nobody gives."""
        self[name] = int(evaluate(self._others[name], self))
        return int(self[name])


def parts(layer: str) -> tuple[str, ...]:
    """The layers that one call computes: more than one where they are joined by "+"."""
    return tuple(part.strip() for part in layer.split(FUSED))
