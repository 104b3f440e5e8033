"""What emission of a product knows beside its tile: the order of tiles, the pair of blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.warp_roles.emit.context import TileContext

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.matmul.nodes import TileOrder


@dataclass(eq=False, kw_only=True)
class MatmulContext(TileContext):
    """``loader`` is the number of a thread among those that load, ``is_last`` whether a block's tile is its
    last one, ``present`` whether it lies in the grid, None where all do, ``crossed`` whether the tiles of its
    pair lie along the other axis (`TileOrder`), ``band_bits`` the bits of a tile's number in its band, None
    where bands have the width that `TileOrder` says; ``begins_early``: the launch may begin before the one in
    front has ended."""

    order: TileOrder
    loader: Expr = field(default_factory=lambda: tirx.const(0, "int32"))
    is_last: Expr | None = None
    present: Expr | None = None
    crossed: Expr | None = None
    band_bits: Expr | None = None
    begins_early: bool = False
