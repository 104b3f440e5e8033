"""What an author asks of one copy or one loop (T.copy, T.Parallel), without meaning for results."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tilec.ir.layout import Layout

EVICTIONS = ("evict_normal", "evict_first", "evict_last")
INSTRUCTIONS = ("tma", "cp_async", "sync")


@dataclass(frozen=True)
class Hints:
    """None where nothing is asked.

    ``coalesced_width``: elements that a thread moves at once, at most; ``disable_tma``: no TMA;
    ``eviction_policy``: one of `EVICTIONS`, for the lines of global memory in the L2 cache;
    ``prefer_instruction``: one of `INSTRUCTIONS`; ``prefer_async``: ahead of what uses it;
    ``loop_layout``: which thread and register carry out an iteration; ``cluster_mask``: the ranks, a bit
    each, of the blocks of a cluster that bring the same tile, once for all."""

    coalesced_width: int | None = None
    disable_tma: bool | None = None
    eviction_policy: str | None = None
    prefer_instruction: str | None = None
    prefer_async: bool | None = None
    loop_layout: Layout | None = None
    cluster_mask: int | None = None

    @property
    def given(self) -> dict[str, Any]:
        """What is asked for, in the order of the fields."""
        pairs = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: value for name, value in pairs if value is not None}

    @property
    def unheard(self) -> tuple[str, ...]:
        """The names of those that a loop of one thread, element by element, does not obey."""
        kept = {
            "disable_tma": self.disable_tma,
            "coalesced_width": self.coalesced_width == 1,
            "prefer_instruction": self.prefer_instruction == "sync",
            "eviction_policy": self.eviction is None,
        }
        return tuple(name for name in self.given if not kept.get(name))

    @property
    def avoids_tma(self) -> bool:
        """Whether a copy is to go another way than TMA."""
        return bool(self.disable_tma) or self.prefer_instruction in ("cp_async", "sync")

    @property
    def eviction(self) -> str | None:
        """ "first" or "last" to leave the cache; None for the common order."""
        return {"evict_first": "first", "evict_last": "last"}.get(self.eviction_policy or "")


#: What a copy and a loop may ask for.
ASKED = tuple(item.name for item in fields(Hints))
