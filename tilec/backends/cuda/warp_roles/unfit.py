"""Why a strategy does not take a launch: a clause, the statement that is to blame, what to change.

Reasons are said twice: `tilec explain` shows that of a launch whose warps get no roles at all, and a schedule
key that cannot be obeyed is refused with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from tilec.backends.cuda.analysis.layouts.tiles import clears, is_whole
from tilec.errors import Kind, UnsupportedError
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Block, Fill, Gemm, Launch, Stmt, Unscaled, walk
from tilec.ir.places import place_of
from tilec.ir.roads import Loss, Road
from tilec.ir.traits import written
from tilec.lowering.analysis.roads import in_line_of, road_of

if TYPE_CHECKING:
    from tvm.ir import Var

_Load = TypeVar("_Load", bound=Stmt)
#: Where nothing more is known to help.
_REMEDY = "docs/cuda.md lists what the form takes"


class Unfit(Exception):
    """Why a launch is not carried out in some way: one clause, for `explain`; the statement that does not
    meet the condition, None for the launch; what to change."""

    def __init__(self, why: str, stmt: Stmt | None = None, remedy: str = "") -> None:
        super().__init__(why)
        self.stmt, self.remedy = stmt, remedy


class TooLarge(Exception):
    """The number and the limit that a config breaks: one clause, for the error that refuses it, and what
    there is too little of."""

    def __init__(self, why: str, kind: Kind) -> None:
        super().__init__(why)
        self.kind = kind


def need(holds: bool, reason: str, stmt: Stmt | None = None, remedy: str = "") -> None:
    """Unfit with the reason unless a condition holds."""
    if not holds:
        raise Unfit(reason, stmt, remedy)


@contextmanager
def about(stmt: Stmt, remedy: str = "") -> Iterator[None]:
    """What is unfit in the block without naming a statement is so for the sake of ``stmt``."""
    try:
        yield
    except Unfit as unfit:
        unfit.stmt, unfit.remedy = unfit.stmt or stmt, unfit.remedy or remedy
        raise


@dataclass
class Obeying:
    """``with Obeying("fold_k", launch): ...`` refuses a launch that is unfit for what a schedule ``key``
    asks: UnsupportedError at the statement that is to blame, else at its T.Kernel."""

    key: str
    launch: Launch
    why: str = ""

    def __enter__(self) -> None:
        """Nothing is changed."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Turns an Unfit into the error that people see."""
        if not isinstance(error, Unfit):
            return
        value = getattr(self.launch.schedule, self.key)
        raise UnsupportedError(
            f"{self.key if value is True else f'{self.key} = {value}'}: {error}",
            place=place_of(error.stmt or self.launch) or place_of(self.launch, "T.Kernel"),
            why=self.why,
            remedy=error.remedy or f"leave {self.key} out",
        ) from error


def check_cleared(gemms: Sequence[Gemm], before: Block) -> None:
    """The accumulators of products, and they alone, are 0 ``before`` their loop, which adds to them."""
    fills = [stmt for stmt in before if isinstance(stmt, Fill)]
    sums = {gemm.c.buffer for gemm in gemms}
    for gemm in gemms:
        need(
            int_value(gemm.clear) == 0,
            "the product clears its accumulator",
            gemm,
            "T.clear it before the loop",
        )
        c = gemm.c.buffer
        own = [fill for fill in fills if fill.dst.buffer.same_as(c)]
        need(
            len(own) == 1 and len(fills) == len(sums) and is_whole(own[0].dst) and clears(own[0]),
            f"its accumulator {c.name} does not start at zero",
            next(iter(own or fills), gemm),
            f"T.clear({c.name}) before the loop, and fill nothing else there",
        )


def load_of(tile: Var, loads: Sequence[_Load]) -> _Load:
    """The one of a loop's loads that fills a tile."""
    found = [load for load in loads if tile in written(load)]
    need(
        len(found) == 1,
        f"{tile.name} is not filled by one copy",
        next(iter(loads), None),
        f"fill {tile.name} by one T.copy in the loop",
    )
    return found[0]


def without_roles(launch: Launch, unfit: Unfit) -> Launch:
    """``launch`` whose roads say why its warps got no roles; one without products as it is."""
    if not any(isinstance(stmt, Unscaled) for stmt in walk(launch.body)):
        return launch
    loss = Loss("warp_roles", str(unfit), unfit.remedy or _REMEDY)
    road = road_of(unfit.stmt or launch, "threads", "keeps the launch from warp roles, TMA and wgmma", loss)
    return replace(launch, roads=(*without_refusals(launch.roads), in_line_of(road, launch)))


def without_refusals(roads: Iterable[Road]) -> tuple[Road, ...]:
    """The roads without the reasons why there are no warp roles."""
    return tuple(road for road in roads if road.loss is None or road.loss.road != "warp_roles")


def refusals(launch: Launch) -> list[Road]:
    """What strategies have said of a launch that they have not taken."""
    return [road for road in launch.roads if road not in without_refusals([road])]


def refusal_of(launch: Launch, load: Stmt) -> Loss | None:
    """What a strategy says that keeps a load from TMA, if it blames its line."""
    losses = {road.line: road.loss for road in refusals(launch)}
    known = None if load.loc is None else losses.get(load.loc.line)
    return None if known is None else replace(known, road="tma")
