"""T.Persistent: the tiles that one block of a persistent grid walks over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilec.errors import SourceValueError
from tilec.language.control.branches import Branch
from tilec.language.control.loops import Nest
from tilec.language.values.functions.intrinsics import FUNCTIONS
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.annotations import known_annotations, unheeded
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import expression, wrap
from tilec.language.values.value import Value, resolve


@dataclass
class _Walk(Nest):
    """A serial loop over waves; each decodes the block's tile and skips those outside of the domain.

    Tiles are numbered with groups of ``group`` neighbours along the last axis fastest, then the other axes
    from last to first, then the groups."""

    domain: tuple[Value, ...] = ()
    wave_size: Value | None = None
    index: Value | None = None
    group: Value | None = None

    def open(self) -> Any:
        """Open the loop and the test; the coordinates of the tile."""
        builder = sessions.builder(self.construct)
        names, self.names = self.names, ("wave",)
        wave = super().open()
        found = [
            builder.bind(names[axis] if axis < len(names) else f"tile{axis}", place)
            for axis, place in enumerate(self._decoded(wave))
        ]
        self.branch = Branch(builder, found[-1] < self.domain[-1])
        self.branch.then()
        return found[0] if len(found) == 1 else tuple(found)

    def close(self) -> None:
        """Close the test and the loop."""
        self.branch.close()
        super().close()

    def _decoded(self, wave: Value) -> list[Value]:
        rest = wave * self.wave_size + self.index
        inside, rest = rest % self.group, rest // self.group
        places: list[Value] = []
        for extent in reversed(self.domain[:-1]):
            places.insert(0, rest % extent)
            rest = rest // extent
        return [*places, rest * self.group + inside]


def Persistent(
    domain: Sequence[Any],
    wave_size: Any,
    index: Any,
    group_size: int = 8,
    num_stages: int = 0,
    *,
    annotations: Any = None,
) -> Nest:
    """``for i, j in T.Persistent([M, N], blocks, block)``: the tiles of ``domain`` that block ``index`` of
    ``wave_size`` takes; over all blocks every tile comes once. ``group_size`` tiles along the last axis
    are neighbours in time; ``num_stages`` is a hint. Raises `SourceValueError` for an empty domain."""
    if not domain or group_size < 1:
        raise source_error(
            SourceValueError,
            f"T.Persistent over {list(domain)} in groups of {group_size}",
            construct="T.Persistent",
            remedy="give one extent per loop variable and a positive group size",
        )
    known_annotations("T.Persistent", annotations)
    if num_stages:
        remedy = "put T.Pipelined(..., num_stages=...) around the loads of a tile"
        unheeded("T.Persistent", f"num_stages={num_stages} keeps no loads of other tiles ahead", remedy)
    sizes = tuple(wrap(resolve(extent)) for extent in domain)
    blocks, block = wrap(wave_size), wrap(index)
    group = FUNCTIONS["max"](FUNCTIONS["min"](sizes[-1], group_size), 1)
    tiles = FUNCTIONS["ceildiv"](sizes[-1], group) * group
    for extent in sizes[:-1]:
        tiles = tiles * extent
    waves = sessions.simplify(FUNCTIONS["ceildiv"](tiles, blocks).expr)
    zero, one = expression(0), expression(1)
    return _Walk(
        "T.Persistent", "serial", (zero,), (waves,), (one,),
        domain=sizes, wave_size=blocks, index=block, group=group,
    )  # fmt: skip
