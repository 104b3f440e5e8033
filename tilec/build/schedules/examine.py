"""What is known of a config before any compiler runs: whether its target can have it, and what it does.

Lowering refuses what a block cannot hold, with both numbers; two configs that come to the same code are one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilec.build.schedules.terms import Terms
from tilec.errors import TilecError
from tilec.manifest import Variant

if TYPE_CHECKING:
    from tilec.ir.nodes import Launch
    from tilec.package.model import Signature

_SYMBOL = "candidate"


@dataclass(frozen=True)
class LaunchShape:
    """One launch: ``grid`` as texts over dims; ``threads``, ``shared_bytes`` and ``cluster`` blocks;
    ``blocks_per_unit``: at most so many walk over the grid, 0 for one block a tile. ``bulk_copies``: whether
    a unit of the device brings tiles (TMA), and products have warp roles. ``words``: 32 bits of the largest
    fragment that a thread of the author's holds; ``parts``: blocks that share the K of a tile, as asked."""

    grid: tuple[str, ...]
    threads: int
    shared_bytes: int = 0
    cluster: int = 1
    blocks_per_unit: int = 0
    bulk_copies: bool = False
    words: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Examined:
    """A config that its target can have: ``code``: a digest of what is compiled; ``ir_text``: the tile IR;
    ``kinds``: those of the factory's parameters (`tilec.build.elaborated.value_kinds`)."""

    code: str
    work: Terms
    launches: tuple[LaunchShape, ...]
    signature: Signature
    ir_text: str = field(repr=False)
    kinds: Mapping[str, str] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """A config that is left out; ``kind`` is a `tilec.errors.Kind` or "same code", ``reason`` a sentence,
    ``error`` what refused it, where it was an error."""

    kind: str
    reason: str
    error: TilecError | None = field(default=None, compare=False, repr=False)


def examine(variant: Variant) -> Examined | Refused:
    """Lowers a variant, without compiling; runs in a compile process."""
    try:
        return _examined(variant)
    except TilecError as error:
        return Refused(error.kind.value, error.what, error)


def largest_fragment(launch: Launch) -> int:
    """The words of 32 bits that a thread holds of the largest fragment of a launch, whose columns the blocks
    of `split_row` share."""
    from tilec.dtypes import lookup
    from tilec.ir import nodes

    fragments = (
        stmt.buffer
        for stmt in nodes.walk(launch.body)
        if isinstance(stmt, nodes.Alloc) and stmt.buffer.scope() == "local.fragment"
    )
    bits = (
        math.prod(int(extent) for extent in buffer.shape) * lookup(str(buffer.dtype)).bits
        for buffer in fragments
    )
    return max(bits, default=0) // 32 // (math.prod(launch.threads) * (launch.schedule.split_row or 1))


def _examined(variant: Variant) -> Examined:
    from tilec.backends.base import backend_of
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir
    from tilec.build.elaborated.frontend import elaborate_variant, naming
    from tilec.build.schedules.terms import terms_of
    from tilec.ir.text.printer import format_kernel
    from tilec.package.model import signature

    kernel, _, _, kinds = elaborate_variant(variant)
    with naming(variant):
        lowered = to_tir(lower(kernel, variant.target), variant.target)
        backend = backend_of(variant.target)
        code = backend.text(backend.identity, lowered, variant.target, _SYMBOL)
    asked = [(largest_fragment(launch), launch.schedule.split_k or 1) for launch in kernel.launches]
    asked = [(0, 1)] * (len(lowered.launches) - len(asked)) + asked  # lowering may put launches in front
    launches = tuple(
        LaunchShape(
            one.grid,
            one.threads[0] * one.threads[1] * one.threads[2],
            one.shared_bytes,
            one.cluster[0] * one.cluster[1] * one.cluster[2],
            one.blocks_per_unit,
            one.has_bulk_copies,
            *known,
        )
        for one, known in zip(lowered.launches, asked, strict=True)
    )
    ways = [one.way for one in lowered.launches]
    digest = hashlib.sha256(f"{code}{ways}{lowered.options}".encode()).hexdigest()
    return Examined(digest, terms_of(kernel), launches, signature(kernel), format_kernel(kernel), kinds)
