"""Which instructions carry out a statement, and what keeps it from faster ones: said by lowering as it
decides, carried by launches, images and libraries.

A library keeps the roads of a launch as one compact text (`encode`), equal ones once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilec.errors import Place

#: What a config may ask for (``road``), and what a kernel has that gets it; the gravest losses first.
ROADS = {
    "warp_roles": "every launch with products: warps that load by TMA, warpgroups that multiply by wgmma",
    "wgmma": "every product by wgmma",
    "tensor_cores": "every product on tensor cores, by wgmma, tcgen05 or mma.sync, or matrix cores",
    "microkernel": "every product by register blocks of the CPU, with its instruction for several K elements",
    "tma": "every load of a pipelined loop by TMA",
    "async_copy": "every load of a pipelined loop ahead of its trip, by TMA, cp.async or registers",
    "vectors": "no loop over memory element by element",
}
#: The kind of a load whose tile is held in registers until the trip that uses it.
HELD = "held ahead"
#: That of one that goes from global to shared memory beside what lanes of AMD GPUs do.
TO_SHARED = "global_load_lds"
#: By road, the kinds of statements that took it, and the losses that break it.
_TAKEN = {
    "tensor_cores": ("wgmma", "tcgen05", "mma.sync", "matrix cores"),
    "tma": ("tma", "multicast"),
    "async_copy": ("tma", "multicast", "cp.async", TO_SHARED, HELD),
    "vectors": ("vectors", "tma", "multicast", "cp.async", TO_SHARED),
}
_BROKEN = {"wgmma": ("warp_roles", "wgmma", "tensor_cores"), "tma": ("warp_roles", "tma")}
#: Losses that belong to no road above (spills, bank conflicts) come last.
_RANK = {name: rank for rank, name in enumerate(ROADS)}


@dataclass(frozen=True)
class Loss:
    """What a statement misses: the ``road``, one of `ROADS` or empty; the ``condition`` that it does not
    meet, a clause; the ``remedy``, what to change."""

    road: str
    condition: str
    remedy: str

    def __str__(self) -> str:
        """The condition, and behind a semicolon the remedy."""
        return f"{self.condition}; {self.remedy}" if self.remedy else self.condition


@dataclass(frozen=True)
class Road:
    """The ``statement`` (what it reads -> what it writes) in ``line`` of ``file`` is carried out by
    ``instruction``. ``kind`` is that in one word: "wgmma", "mma.sync", "tma", "cp.async", "vectors",
    "elements" and so on. Line 0: none is known. ``product`` is the instruction that multiplies, where the
    kind does not say it; libraries keep it by launch."""

    statement: str
    kind: str
    instruction: str
    file: str = ""
    line: int = 0
    loss: Loss | None = None
    product: str = field(default="", compare=False)

    @property
    def place(self) -> str:
        """`gemm.py:17`, or nothing."""
        return f"{PurePath(self.file).name}:{self.line}" if self.line else ""

    def __str__(self) -> str:
        """One line for people."""
        said = f"{self.statement}: {self.instruction}"
        text = said if self.loss is None else f"{said}: {self.loss}"
        return f"{self.place}: {text}" if self.place else text


def road_at(place: Place | None, kind: str, instruction: str, loss: Loss | None = None) -> Road:
    """The road of a launch as a whole, which the author wrote at ``place``."""
    if place is None:
        return Road("T.Kernel", kind, instruction, loss=loss)
    return Road("T.Kernel", kind, instruction, place.file or "", place.line or 0, loss)


def in_order(roads: Iterable[Road]) -> tuple[Road, ...]:
    """Each once, by line; those of one line as they were decided."""
    return tuple(sorted(dict.fromkeys(roads), key=lambda road: road.line))


def multipliers(roads: Iterable[Road]) -> tuple[str, ...]:
    """The instructions of products, each once, by name."""
    found = {road.kind if road.kind in _TAKEN["tensor_cores"] else road.product for road in roads}
    return tuple(sorted(found - {""}))


def trips_ahead(road: Road, stages: int) -> int:
    """The trips that a load stands before the one that uses it, in a loop of ``stages``."""
    if road.kind == HELD:
        return 1
    return stages - 1 if road.kind in _TAKEN["async_copy"] else 0


def without(kind: str, roads: Iterable[Road]) -> tuple[Road, ...]:
    """Those of other kinds."""
    return tuple(road for road in roads if road.kind != kind)


def losses(roads: Iterable[Road]) -> list[Road]:
    """Those with a loss, the gravest first."""
    lost = [road for road in roads if road.loss is not None]
    return sorted(lost, key=lambda road: (_RANK.get(road.loss.road, len(_RANK)), road.line))  # type: ignore[union-attr]


def missed(asked: str, roads: Sequence[Road]) -> list[Road]:
    """What keeps a kernel with these roads from the one that it asks for: nothing where it has it. A kernel
    that has no statement for it misses it, too."""
    broken, taken = _BROKEN.get(asked, (asked,)), _TAKEN.get(asked, (asked,))
    found = [road for road in losses(roads) if road.loss is not None and road.loss.road in broken]
    if found or any(road.kind in taken for road in roads):
        return found
    loss = Loss(asked, "no statement of it is one that could take it", "ask for another road, or for none")
    return [Road("the kernel", "", f"not by {asked}", loss=loss)]


# ---- in libraries ----


def encode(roads: Sequence[Road]) -> str:
    """As compact text: files by their names alone."""
    return json.dumps([*map(_row, roads)], ensure_ascii=False, separators=(",", ":")) if roads else ""


def decode(text: str) -> tuple[Road, ...]:
    """The inverse."""
    return tuple(_road(row) for row in json.loads(text)) if text else ()


def _row(road: Road) -> list[object]:
    lost = [] if road.loss is None else [road.loss.road, road.loss.condition, road.loss.remedy]
    return [road.line, road.statement, road.kind, road.instruction, PurePath(road.file).name, *lost]


def _road(row: list[object]) -> Road:
    line, statement, kind, instruction, file, *loss = row
    found = Loss(*map(str, loss)) if loss else None
    return Road(str(statement), str(kind), str(instruction), str(file), int(str(line)), found)
