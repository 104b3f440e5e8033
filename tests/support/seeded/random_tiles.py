"""Random tile kernels of odd shapes: every choice comes from a seed.

A program is a list of steps over a few shared tiles, fragments and views of tiles, of one to three axes, many
of one element: copies of parts at places that the run tells, into tensors too, reductions of any axis, scans,
loops over elements that shift, turn and skip, sums that grow, loops of run-time trips and branches. Integers
alone, so that every road gives the same bits. What lies outside of a tile or a tensor is 0 and takes nothing.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from wide_writer import Shape, Tile

from tilec.errors import SourceIndexError
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate, load_entry

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 16)
MOST, THREADS = 512, (32, 32, 64, 96, 128)
TYPES = ("int32", "int32", "int16", "uint8")
TRIPS = (
    "range(3)", "T.serial(n)", "T.Pipelined(n, num_stages=2)", "T.Pipelined(3, num_stages=3)",
    "range(2, -1, -1)", "T.unroll(2)", "T.serial(n, n + 2)",
)  # fmt: skip
#: How deep loops and branches nest.
DEEPEST = 2

HEAD = """\
import tilec.language as T


@T.prim_func
def main(
    A: T.Tensor({a}, "{dtype}"),
    B: T.Tensor({b}, "int32"),
    n: T.int32,
    m: T.int32,
    Y: T.Tensor({a}, "{dtype}"),
    Z: T.Tensor({b}, "int32"),
    O: T.Tensor(({blocks}, {total}), "int32"),
):
    with T.Kernel({blocks}, threads={threads}) as bx:
"""


@dataclass
class TileProgram:
    """One kernel; ``source`` is a module whose ``main`` it is. ``attempt``: one of several of a seed."""

    seed: int
    attempt: int = 0
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = self.random = random.Random(f"{self.seed} {self.attempt}")
        self.dtype = draw.choice(TYPES)
        self.tensors: dict[str, Shape] = {
            "A": (draw.choice([5, 16, 33]), draw.choice([8, 17, 40])),
            "B": (draw.choice([3, 8]), draw.choice([4, 9]), draw.choice([1, 6, 16])),
        }
        self.own = [self._tile(f"t{number}") for number in range(draw.randrange(3, 6))]
        self.tiles = [*self.own, *self._views()]
        self.results = self.loops = self.depth = 0
        self.stores = False
        self.source = self._write()

    def arguments(self, n: int) -> list[np.ndarray | int]:
        """Arguments with ``n`` trips."""
        rng = np.random.default_rng(self.seed)
        a, b = (rng.integers(0, 6, shape) for shape in self.tensors.values())
        y, z = (np.zeros(shape, np.int32) for shape in self.tensors.values())
        total = sum(math.prod(tile.shape) for tile in self.own)
        out = np.zeros((self.blocks, total), np.int32)
        m = int(rng.integers(-1, 5))
        return [a.astype(self.dtype), b.astype(np.int32), n, m, y.astype(self.dtype), z, out]

    @property
    def blocks(self) -> int:
        """Blocks of the launch: one where it stores to tensors, at places that two may share."""
        return 1 if self.stores else 2

    # ---- what there is ----

    def _tile(self, name: str) -> Tile:
        draw = self.random
        while True:
            shape = tuple(draw.choice(SIZES) for _ in range(draw.choice([1, 2, 2, 3])))
            if math.prod(shape) <= MOST:
                return Tile(name, shape, draw.choice([self.dtype, "int32"]), draw.random() < 2 / 3)

    def _views(self) -> list[Tile]:
        draw, made = self.random, []
        for tile in self.own:
            if tile.shared and draw.random() < 0.3:
                total = math.prod(tile.shape)
                rows = draw.choice([size for size in range(1, total + 1) if total % size == 0])
                shape = (rows, total // rows) if draw.random() < 0.7 else (total,)
                made.append(Tile(f"w{tile.name}", shape, tile.dtype, True, tile.name))
        return made

    def _write(self) -> str:
        for tile in self.tiles:
            self._define(tile)
        for _ in range(self.random.randrange(3, 8)):
            self._step(2, ())
        start = 0
        for tile in self.own:
            names = "ijk"[: len(tile.shape)]
            place = "0"
            for name, size in zip(names, tile.shape, strict=True):
                place = f"({place}) * {size} + {name}"
            self._over(2, tile)
            self._line(3, f"O[bx, {start} + {place}] = {tile.name}[{', '.join(names)}]")
            start += math.prod(tile.shape)
        a, b = self.tensors.values()
        head = HEAD.format(
            a=a, b=b, dtype=self.dtype, total=start, blocks=self.blocks, threads=self.random.choice(THREADS)
        )
        return head + "\n".join(self.lines) + "\n"

    def _define(self, tile: Tile) -> None:
        draw = self.random
        if tile.of:
            self._line(2, f"{tile.name} = T.{draw.choice(['reshape', 'view'])}({tile.of}, {tile.shape})")
            return
        kind = "shared" if tile.shared else "fragment"
        self._line(2, f'{tile.name} = T.alloc_{kind}({tile.shape}, "{tile.dtype}")')
        self._line(2, f"T.fill({tile.name}, {draw.randrange(4)})")

    def _line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def _over(self, level: int, tile: Tile) -> None:
        """The head of a loop over all elements of a tile."""
        names = ", ".join("ijk"[: len(tile.shape)])
        self._line(level, f"for {names} in T.Parallel({', '.join(map(str, tile.shape))}):")

    # ---- steps ----

    def _step(self, level: int, loops: tuple[str, ...]) -> None:
        steps = [
            *[self._copy, self._bring, self._elements] * 3,
            *(self._fill, self._reduce, self._scan, self._accumulate, self._loop, self._branch),
        ]
        self.random.choice(steps)(level, loops)

    def _nested(self, level: int, loops: tuple[str, ...], count: int) -> None:
        self.depth += 1
        for _ in range(count):
            self._step(level, loops)
        self._line(level, "pass")
        self.depth -= 1

    def _copy(self, level: int, loops: tuple[str, ...]) -> None:
        """A part of a tile to one of another."""
        one, other = self.random.sample(self.tiles, 2)
        if one.memory != other.memory:
            source, target = self._alike((one.name, one.shape), (other.name, other.shape), loops)
            self._line(level, f"T.copy({source}, {target})")

    def _bring(self, level: int, loops: tuple[str, ...]) -> None:
        """A part of a tensor to one of a tile, or back to the tensor of results beside it."""
        draw = self.random
        name, tile = draw.choice("AB"), draw.choice(self.tiles)
        stores = draw.random() < 0.3
        tensor = {"A": "Y", "B": "Z"}[name] if stores else name
        self.stores |= stores
        there, here = self._alike((tensor, self.tensors[name]), (tile.name, tile.shape), loops)
        self._line(level, f"T.copy({here}, {there})" if stores else f"T.copy({there}, {here})")

    def _fill(self, level: int, loops: tuple[str, ...]) -> None:
        draw, tile = self.random, self.random.choice(self.tiles)
        extents = [draw.randrange(1, size + 1) for size in tile.shape]
        part = tile.name if draw.random() < 0.5 else self._part(tile.name, tile.shape, extents, loops)
        self._line(level, f"T.fill({part}, {draw.randrange(5)})")

    def _reduce(self, level: int, loops: tuple[str, ...]) -> None:
        """A reduction of any axis, whose result becomes one element of it."""
        draw, tile = self.random, self.random.choice(self.tiles)
        axis = draw.randrange(len(tile.shape))
        left = tuple(size for at, size in enumerate(tile.shape) if at != axis) or (1,)
        self.results += 1
        name, clear = f"r{self.results}", draw.random() < 0.5
        self._line(level, f'{name} = T.alloc_{draw.choice(["fragment", "shared"])}({left}, "{tile.dtype}")')
        if not clear:
            self._line(level, f"T.fill({name}, 2)")
        kind = draw.choice(["sum", "max", "min"])
        told = axis if draw.random() < 0.5 else axis - len(tile.shape)
        self._line(level, f"T.reduce_{kind}({tile.name}, {name}, dim={told}, clear={clear})")
        extents = [1 if at == axis else size for at, size in enumerate(tile.shape)]
        self._line(level, f"T.copy({name}, {self._part(tile.name, tile.shape, extents, ())})")

    def _scan(self, level: int, loops: tuple[str, ...]) -> None:
        draw, tile = self.random, self.random.choice(self.tiles)
        if len(tile.shape) < 3:
            kind, axis = draw.choice(["cumsum", "cummax"]), draw.randrange(len(tile.shape))
            self._line(level, f"T.{kind}({tile.name}, dim={axis}, reverse={draw.random() < 0.4})")

    def _elements(self, level: int, loops: tuple[str, ...]) -> None:
        """A loop that makes elements of a tile of those of another one, or of its own."""
        draw = self.random
        tile, read = draw.choice(self.tiles), draw.choice(self.tiles)
        if tile.memory == read.memory and tile is not read:
            return
        names = list("ijk"[: len(tile.shape)])
        own = f"{tile.name}[{', '.join(names)}]"
        value = own if read is tile else self._read(read, names, loops)
        place = self._moved(names, tile.shape)
        made = draw.choice(
            [
                f"{value} + 1",
                f"{own} + {value}",
                f"T.max({value}, {own})",
                f"T.if_then_else({names[0]} < n, {value}, {own})",
                f"A[{names[0]}, {names[-1]} + bx] + {value}",
            ]
        )
        if place != names:  # its own elements may be others' places
            made = "3" if read is tile else f"{value} + 1"
        self._over(level, tile)
        test = draw.random() < 0.2
        if test:
            compared = f"{draw.choice(['<', '>=', '!='])} {draw.choice(['n', '2', 'm'])}"
            self._line(level + 1, f"if {names[-1]} {compared}:")
        self._line(level + 1 + test, f"{tile.name}[{', '.join(place)}] = {made}")

    def _read(self, tile: Tile, names: list[str], loops: tuple[str, ...]) -> str:
        """An element of a tile at places of a loop over another one."""
        draw = self.random

        def place(axis: int, size: int) -> str:
            if loops and draw.random() < 0.25:
                return draw.choice(loops)
            if axis < len(names) and draw.random() < 0.6:
                return names[-len(tile.shape) :][axis] if len(tile.shape) <= len(names) else names[axis]
            name = draw.choice(names)
            moved = [f"{name} % {size}", f"{name} + 1", f"{size - 1} - {name}", "0", f"{name} // 2"]
            return draw.choice([name, name, name, *moved, draw.choice([*loops, "n", "bx", name])])

        return f"{tile.name}[{', '.join(place(axis, size) for axis, size in enumerate(tile.shape))}]"

    def _moved(self, names: list[str], shape: Shape) -> list[str]:
        """Where a loop stores: at its own places, or shifted or turned along one axis."""
        draw, place, chance = self.random, list(names), self.random.random()
        axis = draw.randrange(len(names))
        if chance < 0.2:
            place[axis] = f"{names[axis]} + {draw.choice(['1', 'n', 'bx'])}"
        elif chance < 0.35:
            place[axis] = f"{shape[axis] - 1} - {names[axis]}"
        return place

    def _accumulate(self, level: int, loops: tuple[str, ...]) -> None:
        """Elements of a tile added up along the axes that a fragment has not."""
        draw, tile = self.random, self.random.choice(self.tiles)
        for target in self.own:
            axes = itertools.combinations(range(len(tile.shape)), len(target.shape))
            fits = [each for each in axes if tuple(tile.shape[at] for at in each) == target.shape]
            if target.shared or not fits or len(target.shape) == len(tile.shape):
                continue
            names = "ijk"[: len(tile.shape)]
            place = ", ".join(names[at] for at in draw.choice(fits))
            self._over(level, tile)
            self._line(level + 1, f"{target.name}[{place}] += {tile.name}[{', '.join(names)}]")
            return

    def _loop(self, level: int, loops: tuple[str, ...]) -> None:
        if self.depth == DEEPEST:
            return
        self.loops += 1
        name = f"k{self.loops}"
        self._line(level, f"for {name} in {self.random.choice(TRIPS)}:")
        self._nested(level + 1, (*loops, name), self.random.randrange(1, 4))

    def _branch(self, level: int, loops: tuple[str, ...]) -> None:
        if self.depth == DEEPEST:
            return
        tests = ["bx == 0", "n > 1", "m < 3", *(f"{name} == 1" for name in loops)]
        self._line(level, f"if {self.random.choice(tests)}:")
        self._nested(level + 1, loops, 1)
        if self.random.random() < 0.4:
            self._line(level, "else:")
            self._nested(level + 1, loops, 1)

    # ---- parts of tiles ----

    def _alike(
        self, one: tuple[str, Shape], other: tuple[str, Shape], loops: tuple[str, ...]
    ) -> tuple[str, str]:
        """Parts of two that have the same extents along the last axes, and 1 along the others."""
        extents = [[1] * len(shape) for _, shape in (one, other)]
        for at in range(1, min(len(one[1]), len(other[1])) + 1):
            most = min(one[1][-at], other[1][-at])
            extents[0][-at] = extents[1][-at] = self.random.choice([most, self.random.randrange(1, most + 1)])
        first, second = (
            self._part(name, shape, wanted, loops)
            for (name, shape), wanted in zip((one, other), extents, strict=True)
        )
        return first, second

    def _part(self, name: str, shape: Shape, extents: list[int], loops: tuple[str, ...]) -> str:
        parts = (self._range(size, extent, loops) for size, extent in zip(shape, extents, strict=True))
        return f"{name}[{', '.join(parts)}]"

    def _range(self, size: int, extent: int, loops: tuple[str, ...]) -> str:
        draw = self.random
        if extent == size and draw.random() < 0.6:
            return ":"
        starts = ["0", *loops]
        if size > extent:
            starts += [str(draw.randrange(0, size - extent + 1))] * 2
        starts += [
            text
            for text, chance in (("n", 0.3), ("m", 0.15), (f"bx * {extent}", 0.15))
            if draw.random() < chance
        ]
        start = draw.choice(starts)
        if extent == 1 and draw.random() < 0.6:
            return start
        return f":{extent}" if start == "0" else f"{start} : {start} + {extent}"


def elaborated(seed: int, folder: Path) -> tuple[TileProgram, Kernel]:
    """The program of a seed and its kernel, from a file as an author has it: of its attempts the first one
    that reaches for nothing that is surely outside."""
    for attempt in itertools.count():
        program = TileProgram(seed, attempt)
        (folder / f"tiles{seed}_{attempt}.py").write_text(program.source)
        entry = load_entry(f"tiles{seed}_{attempt}.py:main", folder)
        try:
            return program, elaborate(entry, name="tiles", dims={}, args={}, config={})
        except SourceIndexError:
            continue
    raise AssertionError
