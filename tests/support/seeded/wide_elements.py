"""Steps of wide random programs that make elements one by one."""

from __future__ import annotations

from wide_values import Value, resting
from wide_writer import Writer


class Elements(Writer):
    """Loops over the elements of a tile."""

    def _elements(self, level: int) -> None:
        """A loop that makes the elements of a tile."""
        draw, tile = self.random, self.random.choice(self.tiles)
        names = self._over(level, tile)
        place = self._moved(names, tile.shape)
        value = self._value(2, names, tile, tile.dtype, own=place == names).text
        target = f"{tile.name}[{', '.join(place)}]"
        if draw.random() < 0.25:
            self._line(level + 1, f"value = {value}")
            value = "value"
        if draw.random() < 0.3:
            self._line(level + 1, f"if {self._test(names)}:")
            self._line(level + 2, f"{target} = {value}")
            if draw.random() < 0.4:
                other = self._value(1, names, tile, tile.dtype, own=place == names).text
                self._line(level + 1, "else:")
                self._line(level + 2, f"{target} = {other}")
        else:
            self._line(level + 1, f"{target} = {value}")

    def _nibbles(self, level: int) -> None:
        """Halves of bytes: of a tensor, or of a tile that has them."""
        draw = self.random
        tiles = [tile for tile in self.own if tile.shape == (self.bM, self.bN)]
        tile = draw.choice(tiles)
        col = f"bx * {self.bN} + j"
        source = f"P[by * {self.bM} + i, ({col}) // 2]"
        if draw.random() < 0.5 and self.bN % 2 == 0:
            self.fresh += 1
            kind = draw.choice(["shared", "fragment"])
            self._line(
                level, f'p{self.fresh} = T.alloc_{kind}(({self.bM}, {self.bN // 2}), "{self.dtypes["p"]}")'
            )
            self._line(level, f"T.copy(P[by * {self.bM}, bx * {self.bN // 2}], p{self.fresh})")
            source = f"p{self.fresh}[i, j // 2]"
        self._line(level, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        nibble = draw.choice(
            [
                f"(({source} >> (j % 2 * 4)) & 15)",
                f'(({source} >> T.cast(j % 2 * 4, "{self.dtypes["p"]}")) & T.cast(15, "{self.dtypes["p"]}"))',
            ]
        )
        value = resting(Value(f'(T.cast({nibble}, "int32") - 8)', "int32", 8), tile.dtype)
        self._line(level + 1, f"{tile.name}[i, j] = {value.text}")

    def _array(self, level: int) -> None:
        """An array of each iteration, written in a loop and read at places that data tell."""
        draw, tile = self.random, self.random.choice(self.tiles)
        self.fresh += 1
        name, size = f"a{self.fresh}", draw.randrange(2, 5)
        names = self._over(level, tile)
        self._line(level + 1, f'{name} = T.alloc_local(({size},), "int32")')
        self._line(level + 1, f"for q in T.{draw.choice(['serial', 'unroll'])}({size}):")
        self._line(level + 2, f"{name}[q] = q * {names[0]} + {self._value(1, names, tile, 'int32').text}")
        total = Value(f"({name}[0] + {name}[({names[-1]} + n) % {size}])", "int32", 1000)
        if draw.random() < 0.5:
            self._line(level + 1, f"sum{self.fresh} = T.alloc_var('int32', init=1)")
            self._line(level + 1, f"for q in T.serial({draw.choice(['n', str(size), f'{names[0]} % 3'])}):")
            self._line(level + 2, f"sum{self.fresh} += {name}[q % {size}] * (q + 1)")
            total = Value(f"sum{self.fresh}", "int32", 1000)
        self._line(level + 1, f"{tile.name}[{', '.join(names)}] = {resting(total, tile.dtype).text}")
