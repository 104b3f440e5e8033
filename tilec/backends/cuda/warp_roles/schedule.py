"""How a launch asks to be carried out: the schedule keys of its config and the hints of its author."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilec.ir.nodes import Launch


@dataclass(frozen=True)
class Schedule:
    """The keys of a config (`tilec.language.frontend.schedules`); None where a default counts.

    ``cluster``: blocks of a cluster along each grid axis. ``swap``: the product is computed transposed.
    ``split_k``: blocks of a cluster that share the steps along K of one tile. ``pingpong``: consumer
    warpgroups take tiles of their own, in turns. ``group`` and ``group_order``: tiles of a band, and whether
    it runs along rows or columns of the grid. ``unroll``: 1 keeps the compiler from unrolling the loop along
    K. ``promote_k``: sums of 8-bit products leave the tensor core after so many steps of K. ``evict``: by
    tensor, "first" or "last" to leave the L2 cache. ``constant``: tensors that a launch which
    begins before the one in front of it has ended may read by then. ``scale_sums``: scales of groups of
    weights multiply sums of products."""

    persistent: bool
    cluster: tuple[int, ...] | None
    swap: bool
    split_k: int
    pingpong: bool
    group: int | None
    group_order: str | None
    unroll: int | None
    promote_k: int | None
    evict: dict[str, str]
    constant: tuple[str, ...]
    scale_sums: bool


def schedule_of(launch: Launch) -> Schedule:
    """What ``launch`` asks for: its config before the author's ``use_swizzle`` and ``cluster_dims``."""
    hints: dict[str, Any] = dict(launch.hints)
    panel, order = hints.get("use_swizzle", (None, None))
    cluster = hints.get("cluster", hints.get("cluster_dims"))
    if cluster is not None:
        cluster = (cluster,) if isinstance(cluster, int) else tuple(cluster)
    evict = {name: when for when in ("first", "last") for name in hints.get(f"evict_{when}", ())}
    return Schedule(
        persistent=hints.get("persistent", True),
        cluster=cluster,
        swap=hints.get("swap", False),
        split_k=hints.get("split_k", 1),
        pingpong=hints.get("pingpong", False),
        group=hints.get("group", panel),
        group_order=hints.get("group_order", order),
        unroll=hints.get("unroll"),
        promote_k=hints.get("promote_k"),
        evict=evict,
        constant=hints.get("constant", ()),
        scale_sums=hints.get("scale_sums", False),
    )
