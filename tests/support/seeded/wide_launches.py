"""The first launch of a wide random program: its grid, its blocks' places, what it allocates and tells."""

from __future__ import annotations

from collections.abc import Callable

from wide_threads import GROUP
from wide_values import UNSIGNED
from wide_writer import Tile, Writer

#: How blocks know their tile: by the grid's axes, by one axis, or by running on from tile to tile.
GRIDS = ("axes", "axes", "axes", "row", "persistent", "running")


class Launches(Writer):
    """A launch over all tiles of Y. ``base``: how deep the statements of a tile stand."""

    base: int
    threads: int
    roles: bool
    operand: str
    sum_type: str
    trans_a: bool
    trans_b: bool
    a_tile: Tile
    b_tile: Tile
    acc: Tile
    _step: Callable[[int], None]
    _finish: Callable[[bool], None]
    _layouts: Callable[[], None]

    def _launch(self, workspace: bool) -> None:
        draw, bM, bN, bK = self.random, self.bM, self.bN, self.bK
        grid = draw.choice(GRIDS)
        self.threads = draw.choice([32, 64, 128, 128, 96, 256, 256])
        self.a_tile = Tile("As", (bK, bM) if self.trans_a else (bM, bK), self.operand, draw.random() < 0.8)
        self.b_tile = Tile("Bs", (bN, bK) if self.trans_b else (bK, bN), self.operand, draw.random() < 0.9)
        self.acc = Tile("acc", (bM, bN), self.sum_type, False)
        #: Whether there are two groups, and operands that both may reach.
        self.roles = (
            self.threads == 2 * GROUP and self.a_tile.shared and self.b_tile.shared and grid == "axes"
        )
        self._open(grid)
        self._define_all()
        for _ in range(draw.randrange(3, 7)):
            self._step(self.base)
        self._finish(workspace)
        if grid == "running":
            self._line(self.base, "tile += 3")

    def _open(self, grid: str) -> None:
        """The head of the launch and of a loop over tiles, with all that stands in front of that."""
        down, across = f"T.ceildiv(M, {self.bM})", f"T.ceildiv(N, {self.bN})"
        heads = {"axes": (f"{across}, {down}", "(bx, by)"), "row": (f"{across} * {down}", "tile")}
        extents, names = heads.get(grid, ("3", "pid"))
        self._line(2, f"with T.Kernel({extents}, threads={self.threads}) as {names}:")
        if grid == "axes" and self.random.random() < 0.3:
            panel, order = self.random.choice([1, 2, 3, 10]), self.random.choice(["row", "column"])
            self._line(3, f'T.use_swizzle({panel}, order="{order}")')
        for tile in (self.a_tile, self.b_tile, self.acc, *self.own):
            self._allocate(tile)
        self._layouts()
        self._line(3, "count = T.alloc_var('int32')")
        self.base = 3 + (grid in ("persistent", "running"))
        if grid == "persistent":
            self._line(3, f"for by, bx in T.Persistent([{down}, {across}], 3, pid):")
        if grid == "running":
            self._line(3, 'tile = T.alloc_var("int32")')
            self._line(3, "tile = pid")
            self._line(3, f"while tile < {across} * {down}:")
        if grid in ("row", "running"):
            self._line(self.base, f"by, bx = tile // {across}, tile % {across}")

    def _define_all(self) -> None:
        self._line(self.base, f"T.fill(acc, {self.random.randrange(3)})")
        for tile in self.tiles:
            self._define(tile)

    def _define(self, tile: Tile) -> None:
        draw = self.random
        if tile.of:
            form = draw.choice(["reshape", "view"])
            self._line(self.base, f"{tile.name} = T.{form}({tile.of}, {tile.shape})")
        elif tile.shape == (self.bM, self.bN) and draw.random() < 0.5 and tile.dtype not in UNSIGNED:
            self._line(self.base, f"T.copy(X[by * {self.bM}, bx * {self.bN}], {tile.name})")
        else:
            self._line(self.base, f"T.fill({tile.name}, {draw.randrange(4)})")
