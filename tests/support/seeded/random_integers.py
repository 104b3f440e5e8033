"""Random tile kernels over integers of all widths, signed and not: every choice comes from a seed.

A program is a list of steps over a few fragments, shared tiles and variables: expressions of any types,
reductions, scans, counts in shared memory, loops that go down, skip or have no trip, branches and `while`.
All arithmetic is exact, so that every road gives the same bits. Dims of 0 and 1 are among them. Some say that
an input and an output may overlap, and most of those are called with one tensor for both."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate, load_entry

TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TRIPS = (
    "range(3)", "range(5, 0, -2)", "T.serial(4, -1, -1)", "range(2, 2)", "range(7, 2)", "range(n)",
    "range(n, n - 3, -1)", "T.serial(n, 2)", "T.unroll(2)", "range(0, 5, 3)", "T.serial(n % 3)",
    "range(by, by + 2)", "T.unroll(3, 0, -1)",
)  # fmt: skip
REDUCTIONS = ("sum", "max", "min", "bitand", "bitor", "bitxor")

HEAD = """\
import tilec.language as T


def entry(M, N):
    @T.prim_func
    def main(
        A: T.Tensor((N,), "{a}"),
        B: T.Tensor((M, N), "{b}"),
        F: T.Tensor((N,), "bool"),
        n: T.int32,
        h: T.uint64,
        Y: T.Tensor((M, N), "{y}"),
        Z: T.Tensor((M, N), "{z}"),
        C: T.Tensor((8,), "int32"),
    ):
"""


def bits(dtype: str) -> int:
    """The width of an integer type."""
    return int(dtype.strip("uint"))


@dataclass
class IntegerProgram:
    """One kernel: ``source`` is a module whose ``entry`` makes it; ``pinned`` are dims known when it is
    built."""

    seed: int
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = self.random = random.Random(self.seed)
        self.bM, self.bN = draw.choice([1, 2, 3, 8]), draw.choice([1, 3, 8, 20, 32, 33])
        self.types = {name: draw.choice(TYPES) for name in "abyz"}
        self.overlaps = random.Random(f"overlaps {self.seed}").random() < 0.3
        if self.overlaps:
            self.types["y"] = self.types["b"]
        sizes = {"M": [1, 5, 8], "N": [1, 16, 33]}
        self.pinned = {name: draw.choice(sizes[name]) for name in sizes if draw.random() < 0.4}
        self.tiles = {f"t{at}": draw.choice(TYPES) for at in range(draw.randrange(2, 5))}
        self.rows, self.columns = ({f"{name}{at}": draw.choice(TYPES) for at in range(2)} for name in "qs")
        self.variables = {"v0": "int32", "v1": draw.choice(TYPES), "v2": "uint64"}
        self.fragments: set[str] = set()
        self.counters: list[str] = []
        self.loops = self.depth = 0
        self.source = self._write()

    def shapes(self) -> list[dict[str, int]]:
        """Dims to run it with."""
        free = [{"M": 1, "N": 1}, {"M": 7, "N": 41}, {"M": 0, "N": 5}, {"M": 3, "N": 0}]
        return [{**dims, **self.pinned} for dims in free]

    def arguments(self, dims: dict[str, int]) -> list[np.ndarray | int]:
        """Inputs, then outputs that hold something else."""
        rng = np.random.default_rng(self.seed)
        M, N = dims["M"], dims["N"]
        a, b = self._numbers(rng, self.types["a"], (N,)), self._numbers(rng, self.types["b"], (M, N))
        n, h = int(rng.integers(-2, 6)), int(rng.integers(0, 2**64, dtype=np.uint64))
        outputs = [np.full((M, N), 77, self.types[name]) for name in "yz"]
        if self.overlaps and self.seed % 4:
            outputs[0] = b
        return [a, b, rng.random(N) < 0.5, n, h, *outputs, np.arange(8, dtype=np.int32)]

    def _numbers(self, rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if rng.random() < 0.5:
            return rng.integers(0, 20, shape).astype(dtype)
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max, shape, dtype=dtype, endpoint=True)

    def _write(self) -> str:
        bM, bN = self.bM, self.bN
        threads = self.random.choice([32, 64, 96, 128])
        self._line(
            2, f"with T.Kernel(T.ceildiv(N, {bN}), T.ceildiv(M, {bM}), threads={threads}) as (bx, by):"
        )
        if self.overlaps:
            self._line(3, "T.annotate_restrict_buffers(B, Y)")
        self._tiles()
        for _ in range(self.random.randrange(3, 7)):
            self._step(3)
        self._finish()
        return HEAD.format(**self.types) + "\n".join([*self.lines, "    return main"]) + "\n"

    def _line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def _tiles(self) -> None:
        shapes = ((self.tiles, (self.bM, self.bN)), (self.rows, (self.bN,)), (self.columns, (self.bM,)))
        for group, shape in shapes:
            for name, dtype in group.items():
                kind = self.random.choice(["fragment", "fragment", "shared"])
                self.fragments |= {name} if kind == "fragment" else set()
                self._line(3, f'{name} = T.alloc_{kind}({shape}, "{dtype}")')
                self._line(3, f"T.fill({name}, {self.random.choice([0, 1, 3])})")
        for name, dtype in self.variables.items():
            self._line(3, f'{name} = T.alloc_var("{dtype}")')
        self._line(3, 'counts = T.alloc_shared((8,), "int32")')
        self._line(3, "T.clear(counts)")
        self._line(3, f"T.copy(B[by * {self.bM}, bx * {self.bN}], t0)")

    def _finish(self) -> None:
        place = f"[by * {self.bM} + i, bx * {self.bN} + j]"
        self._line(3, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        self._line(4, f"Y{place} = {self._value(self.types['y'], 2, 'ij')}")
        parts = [f"T.cast({tile}[i, j], 'int64')" for tile in self.tiles]
        parts += [f"T.cast({row}[j], 'int64') * 3" for row in self.rows]
        parts += [f"T.cast({column}[i], 'int64') * 5" for column in self.columns]
        parts += [f"T.cast({name}, 'int64') * 7" for name in self.variables]
        parts += [f"T.cast(B{place}, 'int64') * 11"] if self.overlaps else []
        self._line(3, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        self._line(4, f"Z{place} = T.cast({' + '.join(parts)}, '{self.types['z']}')")
        self._line(3, "for k in T.Parallel(8):")
        self._line(4, "T.atomic_add(C[k], counts[k])")

    # ---- expressions; ``places`` are the variables of the T.Parallel around, ``own`` what it writes ----

    def _value(self, dtype: str, depth: int, places: str, own: str = "") -> str:
        draw = self.random
        if depth == 0 or draw.random() < 0.15:
            return self._leaf(dtype, places, own)
        a, b = (self._value(dtype, depth - 1, places, own) for _ in range(2))
        other = draw.choice(TYPES)
        x, y = (
            self._value(other, depth - 1, places, own),
            self._value(draw.choice(TYPES), depth - 1, places, own),
        )
        whole, width = draw.choice([1, 3, 7, 8, 10, *((-3, -8) if dtype[0] == "i" else ())]), bits(dtype)
        return draw.choice([
            f"({a} {draw.choice('+-*')} {b})", f"({a} {draw.choice('+-*&|^')} {b})",
            f"({a} {draw.choice(['//', '%'])} T.{dtype}({whole}))",
            f"T.trunc{draw.choice(['div', 'mod'])}({a}, ({b} & T.{dtype}(15)) + T.{dtype}(1))",
            f"({a} {draw.choice(['<<', '>>'])} T.{dtype}({draw.randrange(width)}))",
            f"({a} {draw.choice(['<<', '>>'])} ({b} & T.{dtype}({width - 1})))",
            f"T.{draw.choice(['min', 'max'])}({a}, {b})", f"(~{a})", f"(-{a})", f"T.abs({a})",
            f"T.if_then_else({self._condition(depth - 1, places, own)}, {a}, {b})",
            f"T.cast({x}, '{dtype}')", f"T.cast({x} {draw.choice('+-*&|^')} {y}, '{dtype}')",
            f"T.cast(T.{draw.choice(['popcount', 'clz'])}({x}), '{dtype}')",
        ])  # fmt: skip

    def _condition(self, depth: int, places: str, own: str = "") -> str:
        draw, dtype = self.random, self.random.choice(TYPES)
        a, b = (self._value(dtype, max(depth - 1, 0), places, own) for _ in range(2))
        compared = f"({a} {draw.choice(['<', '<=', '>', '>=', '==', '!='])} {b})"
        if depth <= 0 or draw.random() < 0.5:
            return compared
        flag = f"F[bx * {self.bN} + {'j' if 'j' in places else 0}]"
        other = draw.choice([flag, self._condition(depth - 1, places, own)])
        return draw.choice([f"({compared} {draw.choice(['and', 'or'])} {other})", f"(not {other})"])

    def _leaf(self, dtype: str, places: str, own: str) -> str:
        row, column = (f"{b} * {size} + {v if v in places else 0}" for b, size, v in
                       (("by", self.bM, "i"), ("bx", self.bN, "j")))  # fmt: skip
        ends = np.iinfo(dtype)
        low, high = int(ends.min), int(ends.max)
        number = self.random.choice([0, 1, 3, high, low, high // 2 + 1])
        found = ["n", "h", *self.variables, *places, *self.counters, f"A[{column}]", f"B[{row}, {column}]"]
        anywhere = [f"A[{self._index(places)}]", f"B[{self._index(places)}, {self._index(places)}]"]
        found += anywhere[: 1 if self.overlaps else 2]
        found += [f"{tile}[i, j]" for tile in self.tiles if places == "ij"]
        found += [f"{row}[j]" for row in self.rows if "j" in places]
        found += [f"{column}[i]" for column in self.columns if "i" in places]
        others = [name for name in (*self.rows, *self.columns) if name != own]
        found.append(f"{self.random.choice(others)}[{self._index(places)}]")
        text = self.random.choice(found)
        return self.random.choice([f"T.{dtype}({number})", *[f"T.cast({text}, '{dtype}')"] * 3])

    def _index(self, places: str) -> str:
        name = self.random.choice([*places, *self.counters, "v0"])
        return self.random.choice([name, f"{name} + 1", f"{name} - 1", f"2 - {name}", f"{name} * 2",
                                   f"{name} // 2", f"({name} * 5 + 3) % 7", "0"])  # fmt: skip

    # ---- statements ----

    def _step(self, level: int) -> None:
        steps = [self._elements, self._elements, self._reduce, self._scan, self._variable, self._element,
                 self._count, self._turn, self._accumulate]  # fmt: skip
        if self.depth < 2:
            steps += [self._loop, self._loop, self._branch, self._while]
        self.random.choice(steps)(level)

    def _nested(self, level: int, count: int) -> None:
        self.depth += 1
        for _ in range(count):
            self._step(level)
        self.depth -= 1

    def _elements(self, level: int) -> None:
        name = self.random.choice([*self.tiles, *self.rows, *self.columns])
        places = "ij" if name in self.tiles else "j" if name in self.rows else "i"
        dtype = {**self.tiles, **self.rows, **self.columns}[name]
        sizes = ", ".join(str(self.bM if place == "i" else self.bN) for place in places)
        self._line(level, f"for {', '.join(places)} in T.Parallel({sizes}):")
        level += 1
        kind = self.random.randrange(3)
        if kind == 1:
            self._line(level, f"if {self._condition(2, places, name)}:")
        if kind == 2:
            self._line(level, f"for k in {self.random.choice(TRIPS)}:")
        value = f"{name}[{', '.join(places)}] = {self._value(dtype, 2, places, name)}"
        self._line(level + (kind > 0), value)

    def _turn(self, level: int) -> None:
        """Elements of one tile at other places of another one, some of them outside."""
        first, second = self.random.sample(list(self.tiles), 2)
        at = self.random.choice([f"{self.bM - 1} - i, j", f"i, {self.bN - 1} - j", "i, j + 1", "i - 1, j"])
        self._line(level, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        self._line(level + 1, f"{second}[{at}] = T.cast({first}[i, j], '{self.tiles[second]}')")

    def _element(self, level: int) -> None:
        name = self.random.choice(list(self.rows))
        self._line(level, f"{name}[{self._index('')}] = {self._outside(self.rows[name], name)}")

    def _outside(self, dtype: str, own: str) -> str:
        """A value that all threads have, which says nothing of ``own``."""
        kept = self.rows.pop(own)
        value = self._value(dtype, 2, "")
        self.rows = dict(sorted({**self.rows, own: kept}.items()))
        return value

    def _variable(self, level: int) -> None:
        name = self.random.choice(list(self.variables))
        value = self._value(self.variables[name], 2, "")
        self._line(level, f"{name} = {f'{value} % 11' if name == 'v0' else value}")

    def _reduce(self, level: int) -> None:
        dim, clear = self.random.choice([0, 1]), self.random.choice([True, False])
        out = self.random.choice(list(self.columns if dim else self.rows))
        kind = self.random.choice(REDUCTIONS)
        tile = self.random.choice(list(self.tiles))
        self._line(level, f"T.reduce_{kind}({tile}, {out}, dim={dim}, clear={clear})")

    def _scan(self, level: int) -> None:
        tile, back = self.random.choice([*self.tiles, *self.rows]), self.random.choice([True, False])
        dim = self.random.choice([0, 1]) if tile in self.tiles else 0
        self._line(level, f"T.{self.random.choice(['cumsum', 'cummax'])}({tile}, dim={dim}, reverse={back})")

    def _count(self, level: int) -> None:
        self._line(level, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        self._line(level + 1, f"if {self._condition(1, 'ij')}:")
        self._line(level + 2, f"T.atomic_add(counts[{self._index('ij')}], {self._value('int32', 1, 'ij')})")

    def _accumulate(self, level: int) -> None:
        held = [name for name in self.rows if name in self.fragments]
        if not held:
            self._elements(level)
            return
        name = self.random.choice(held)
        kind, at = self.random.choice(["max", "min"]), self.random.choice(["j", "j // 2", "0"])
        value = f"T.cast({self.random.choice(list(self.tiles))}[i, j], '{self.rows[name]}')"
        self._line(level, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        self._line(level + 1, f"{name}[{at}] = T.{kind}({name}[{at}], {value})")

    def _loop(self, level: int) -> None:
        name, self.loops = f"k{self.loops}", self.loops + 1
        self._line(level, f"for {name} in {self.random.choice(TRIPS)}:")
        self.counters.append(name)
        self._nested(level + 1, self.random.randrange(1, 3))
        if self.random.random() < 0.3:
            self._line(level + 1, f"if {self._condition(1, '')}:")
            self._line(level + 2, self.random.choice(["break", "continue"]))
            self._nested(level + 1, 1)
        self.counters.pop()

    def _branch(self, level: int) -> None:
        self._line(level, f"if {self._condition(2, '')}:")
        self._nested(level + 1, self.random.randrange(1, 3))
        if self.random.random() < 0.5:
            self._line(level, "else:")
            self._nested(level + 1, 1)

    def _while(self, level: int) -> None:
        name, self.loops = f"w{self.loops}", self.loops + 1
        self._line(level, f'{name} = T.alloc_var("int32")')
        self._line(level, f"{name} = {self.random.choice(['n % 4', '0', '5'])}")
        self._line(level, f"while {name} < 4:")
        self._line(level + 1, f"{name} += 1")
        self._nested(level + 1, 1)


def elaborated(program: IntegerProgram, folder: Path) -> Kernel:
    """The kernel of a program, from a file as an author has it."""
    (folder / f"integers{program.seed}.py").write_text(program.source)
    entry = load_entry(f"integers{program.seed}.py:entry", folder)
    pinned = {name: Guard(eq=program.pinned.get(name)) for name in ("M", "N")}
    return elaborate(entry, name="integers", dims=pinned, args={}, config={})
