"""Steps of wide random programs that multiply."""

from __future__ import annotations

from wide_values import FLOATS, REST, UNSIGNED, Drawing, Value, resting
from wide_writer import Tile, Writer


class Products(Writer):
    """Products of tiles of operands, whose sums go to a tile of the program."""

    operand: str
    trans_a: bool
    trans_b: bool
    a_tile: Tile
    b_tile: Tile
    acc: Tile

    def _product(self, level: int) -> None:
        """acc plus a product over K."""
        draw = self.random
        if draw.random() < 0.7:
            self._line(level, "T.clear(acc)")
        clears = draw.choice(["", "", ", clear_accum=(ko == 0)"])
        ahead = [f"T.Pipelined({{n}}, num_stages={stages})" for stages in range(5)]
        kinds = [*ahead, "T.serial({n})", "range({n})"]
        self._line(level, f"for ko in {draw.choice(kinds).format(n=f'T.ceildiv(K, {self.bK})')}:")
        self._operand(level + 1, "A", self.a_tile, self.trans_a)
        self._operand(level + 1, "B", self.b_tile, self.trans_b)
        self._gemm(level + 1, clears)
        self._take(level)

    def _gemm(self, level: int, more: str = "") -> None:
        policy = self.random.choice(
            ["", "", ", policy=T.GemmWarpPolicy.FullRow", ", policy=T.GemmWarpPolicy.FullCol"]
        )
        turned = f"transpose_A={self.trans_a}, transpose_B={self.trans_b}"
        self._line(level, f"T.gemm(As, Bs, acc, {turned}{more}{policy})")

    def _operand(self, level: int, tensor: str, tile: Tile, turned: bool) -> None:
        """A tile of an operand, copied or made element by element."""
        outer = f"by * {self.bM}" if tensor == "A" else f"bx * {self.bN}"
        k_first = turned if tensor == "A" else not turned
        starts = (f"ko * {self.bK}", outer) if k_first else (outer, f"ko * {self.bK}")
        dtype = self.dtypes[tensor.lower()]
        if tensor == "B" and self.operand not in UNSIGNED and self.random.random() < 0.15:
            self._packed(level, tile, turned)
        elif (dtype not in FLOATS and self.operand in UNSIGNED) or self.random.random() < 0.35:
            names = self._over(level, tile)
            places = [f"{start} + {name}" for start, name in zip(starts, names, strict=True)]
            read = Value(f"{tensor}[{', '.join(places)}]", dtype, REST)
            made = Drawing(
                self.random, lambda: read, lambda: f"{places[0]} < {self.random.choice('MNK')}"
            ).value(1)
            self._line(level + 1, f"{tile.name}[{', '.join(names)}] = {resting(made, tile.dtype).text}")
        elif dtype not in UNSIGNED and self.operand in UNSIGNED:
            self._line(level, f"T.fill({tile.name}, 1)")
        else:
            self._line(level, f"T.copy({tensor}[{', '.join(starts)}], {tile.name})")

    def _packed(self, level: int, tile: Tile, turned: bool) -> None:
        """A tile of the second operand from halves of bytes."""
        names = self._over(level, tile)
        depth, column = reversed(names) if turned else names
        col = f"(bx * {self.bN} + {column})"
        byte = f"T.cast(P[ko * {self.bK} + {depth}, {col} // 2], 'int32')"
        value = Value(f"(({byte} >> ({col} % 2 * 4)) & 7) - 4", "int32", REST)
        self._line(level + 1, f"{tile.name}[{', '.join(names)}] = {resting(value, tile.dtype).text}")

    def _gathered_product(self, level: int) -> None:
        """One product of an operand whose rows are gathered, or of what a tile holds."""
        for tile in (self.a_tile, self.b_tile):
            names = self._over(level, tile)
            self._line(
                level + 1, f"{tile.name}[{', '.join(names)}] = {self._value(1, names, tile, tile.dtype).text}"
            )
        self._line(level, "T.clear(acc)")
        self._gemm(level)
        self._take(level)

    def _take(self, level: int) -> None:
        """What a product gave, brought back to small numbers, maybe to a tile of another type."""
        draw = self.random
        self._rest(level, self.acc)
        targets = [
            tile for tile in self.own if tile.shape == (self.bM, self.bN) and tile.dtype not in UNSIGNED
        ]
        if targets:
            target = draw.choice(targets)
            if draw.random() < 0.5:
                self._line(level, f"T.copy(acc, {target.name})")
            else:
                self._line(level, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
                self._line(level + 1, f"{target.name}[i, j] = acc[i, j]")
