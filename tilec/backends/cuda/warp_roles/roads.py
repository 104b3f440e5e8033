"""The roads of a launch whose warps have roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.pipelines.asked_hints import roads_of_roles
from tilec.backends.cuda.warp_roles.asked_layouts import layouts_of_roles
from tilec.backends.cuda.warp_roles.nodes import TileStore, TmaLoad
from tilec.ir.nodes import Block, Launch, Stmt, walk
from tilec.ir.roads import Loss, Road, in_order
from tilec.lowering.analysis.roads import in_line_of, road_of

if TYPE_CHECKING:
    from tvm.ir import Var


def roads_of(launch: Launch, body: Block, how: str, others: Iterable[Road]) -> tuple[Road, ...]:
    """The roads of a launch that is carried out as ``how`` says and of the statements in ``body``; ``others``
    are those that emission found."""
    own = in_line_of(Road("T.Kernel", "warp_roles", how), launch)
    found = [*(road for stmt in walk(body) for road in roads(stmt)), *others]
    asked = (*layouts_of_roles(launch), *roads_of_roles(launch, found))
    return in_order((own, *launch.roads, *found, *asked))


@singledispatch
def roads(stmt: Stmt) -> Iterator[Road]:
    """The roads of a statement; strategies register those of their own."""
    yield from ()


@roads.register(TmaLoad)
def _of_load(stmt: TmaLoad) -> Iterator[Road]:
    image = " of image columns (im2col)" if stmt.offsets else ""
    shared = ", multicast to a pair of blocks" if stmt.shared else ""
    kind = "multicast" if stmt.shared else "tma"
    yield moved(stmt, stmt.map.buffer, stmt.dst.buffer, kind, f"TMA{image}{shared}")


@roads.register(TileStore)
def _of_store(stmt: TileStore) -> Iterator[Road]:
    yield road_of(stmt, "registers" if stmt.map is None else "tma", how_stored(stmt), stmt.loss)


def how_stored(stmt: TileStore) -> str:
    """How the elements of a tile leave."""
    if stmt.map is not None:
        return "TMA stores"
    return "stores of staged rows by threads" if stmt.columns else "stores from registers"


def moved(stmt: Stmt, source: Var, target: Var, kind: str, how: str, loss: Loss | None = None) -> Road:
    """The road of what moves elements."""
    return in_line_of(Road(f"{source.name} -> {target.name}", kind, how, loss=loss), stmt)
