"""What steps of wide random programs share: tiles, lines, and random values of their elements."""

from __future__ import annotations

import random
from dataclasses import dataclass

from wide_values import REST, Drawing, Value, resting

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """A tile, or a view of the one that it is ``of``."""

    name: str
    shape: Shape
    dtype: str
    shared: bool
    of: str = ""

    @property
    def memory(self) -> str:
        """The tile whose elements it has."""
        return self.of or self.name


class Writer:
    """The lines of a program, and what draws its expressions. A block has a tile of bM x bN elements."""

    random: random.Random
    lines: list[str]
    bM: int
    bN: int
    bK: int
    #: Types of tensors, and the operations of the atomics on some, by their names.
    dtypes: dict[str, str]
    atomics: dict[str, str]
    own: list[Tile]
    tiles: list[Tile]
    #: Names of small numbers: of loops around a step, and of what has been kept.
    loops: list[str]
    fresh: int
    depth: int

    def _line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def _allocate(self, tile: Tile) -> None:
        kind = "shared" if tile.shared else "fragment"
        self._line(3, f'{tile.name} = T.alloc_{kind}({tile.shape}, "{tile.dtype}")')

    @staticmethod
    def _as(value: Value, dtype: str) -> str:
        """A value that is at rest in the type of an atomic."""
        return resting(value, dtype).cast(dtype).text

    def _row(self) -> str:
        return f"by * {self.bM} + i"

    def _col(self) -> str:
        return f"bx * {self.bN} + j"

    def _rest(self, level: int, tile: Tile) -> None:
        """Brings a tile back to small numbers."""
        names = self._over(level, tile)
        element = f"{tile.name}[{', '.join(names)}]"
        self._line(level + 1, f"{element} = {resting(Value(element, tile.dtype, 1000), tile.dtype).text}")

    def _over(self, level: int, tile: Tile) -> list[str]:
        """The head of a loop over all elements of a tile, and its variables."""
        names = list("ijk"[: len(tile.shape)])
        self._line(level, f"for {', '.join(names)} in T.Parallel({', '.join(map(str, tile.shape))}):")
        return names

    def _moved(self, names: list[str], shape: Shape) -> list[str]:
        """Where a loop stores: at its own places, turned or shifted along one axis."""
        draw, place, chance = self.random, list(names), self.random.random()
        axis = draw.randrange(len(names))
        if chance < 0.15:
            place[axis] = f"{shape[axis] - 1} - {names[axis]}"
        elif chance < 0.25:
            place[axis] = f"{names[axis]} + {draw.choice(['1', 'n'])}"
        elif chance < 0.32:
            place[axis] = f"({names[axis]} + n) % {shape[axis]}"
        return place

    def _value(self, depth: int, names: list[str], tile: Tile, dtype: str, own: bool = True) -> Value:
        """A value at rest for elements of ``tile``; ``own``: whether they may be read."""
        drawing = Drawing(self.random, lambda: self._leaf(names, tile, own), lambda: self._test(names))
        return resting(drawing.value(depth), dtype)

    def _leaf(self, names: list[str], tile: Tile, own: bool) -> Value:
        draw = self.random
        row, col = f"by * {self.bM} + {names[0]}", f"bx * {self.bN} + {names[-1]}"
        chance = draw.random()
        if chance < 0.2 and own and tile in self.tiles:
            return Value(f"{tile.name}[{', '.join(names)}]", tile.dtype, REST)
        others = [each for each in self.tiles if each.memory != tile.memory]
        if chance < 0.6 and others:
            other = draw.choice(others)
            places = [self._place(axis, size, other, names) for axis, size in enumerate(other.shape)]
            return Value(f"{other.name}[{', '.join(places)}]", other.dtype, REST)
        leaves = [
            Value(f"X[{row}, {col}]", self.dtypes["x"], REST),
            Value(f"X[L[{row}], {col}]", self.dtypes["x"], REST),
            Value(f"X[{row} - 1, {col} + 1]", self.dtypes["x"], REST),
            Value(f"U[{col}]", self.dtypes["u"], REST),
            Value(f"U[L[{row}]]", self.dtypes["u"], REST),
            Value(draw.choice(names), "int32", 64),
            Value(str(draw.randrange(1, 4)), "int32", 4),
            Value("n", "int32", 4),
            Value(f"T.float32({draw.randrange(3)})", "float32", 4),
            *(Value(name, "int32", 8) for name in self.loops),
        ]
        return draw.choice(leaves)

    def _place(self, axis: int, size: int, tile: Tile, names: list[str]) -> str:
        draw = self.random
        if draw.random() < 0.65:
            return (
                names[min(axis, len(names) - 1)]
                if len(tile.shape) > 1 or tile.shape[0] == self.bM
                else names[-1]
            )
        name = draw.choice(names)
        moved = [f"{name} % {size}", f"{name} + 1", f"{size - 1} - {name}", "0", f"{name} // 2", *self.loops]
        return draw.choice([*moved, f"L[by * {self.bM} + {name}] % {size}"])

    def _test(self, names: list[str]) -> str:
        row, col = f"by * {self.bM} + {names[0]}", f"bx * {self.bN} + {names[-1]}"
        tests = [
            f"{col} < N - 2",
            f"{row} < M",
            f"{names[0]} + {names[-1]} < 6",
            f"{names[-1]} <= L[{row}]",
            f"({names[0]} + {names[-1]}) % 3 == 0",
            f"({col} >= 3) & ({row} >= 1)",
            f"X[{row}, {col}] > 1",
            f"{names[-1]} != n",
            f"U[{col}] >= 1",
        ]
        return self.random.choice(tests)
