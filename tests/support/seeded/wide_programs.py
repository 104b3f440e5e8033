"""Wide random tile programs: every choice comes from a seed.

A program is one kernel of one or two launches over a grid of tiles, the last of which end outside of tensors:
products of every pair of types, operands that a copy or a loop of conversions makes, reductions of any axis,
scans, loops of run-time trips and of any number of stages, branches, views, also as other types, layouts,
gathers by tensors of indices, nibbles of bytes, work of threads and of groups of warps, and atomics. Blocks
have one tile each, or run on from tile to tile. What an iteration writes no other one reads. All values are
whole numbers of known bounds (`wide_values`), so that all roads give the same bits.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np
from random_programs import sum_parts
from wide_elements import Elements
from wide_launches import Launches
from wide_loops import DEEPEST, Loops
from wide_memory import Memory
from wide_products import Products
from wide_threads import Threads
from wide_tiles import ATOMICS, BINS, Tiles
from wide_values import BITS, REST, UNSIGNED, Value, resting
from wide_writer import Tile

from tilec.errors import SourceIndexError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate, load_entry

DTYPES = (
    "float32", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int16",
    "int32", "int32", "int64", "uint32", "uint16",
)  # fmt: skip
#: Types of operands and of what they are added to.
PRODUCTS = (
    ("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"), ("float32", "float32"),
    ("float64", "float64"), ("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"), ("int8", "int32"),
    ("uint8", "int32"),
)  # fmt: skip
#: Types of elements that atomics change.
ATOMIC = ("int32", "int32", "float32", "float16", "uint32")
#: Programs that have 8-byte floats, which not every road takes.
DOUBLES = 0.2
#: Bits of a tile, of which a block has several, some of them twice.
ROOM = 8 * 2**14
HEAD = """\
import tilec
import tilec.language as T


def entry(M, N, K):
    @T.prim_func
    def main(
        A: T.Tensor({a_shape}, "{a_dtype}"),
        B: T.Tensor({b_shape}, "{b_dtype}"),
        X: T.Tensor((M, N), "{x_dtype}"),
        U: T.Tensor((N,), "{u_dtype}"),
        P: T.Tensor((M, (N + 1) // 2), "{p_dtype}"),
        L: T.Tensor((M,), "int32"),
        n: T.int32,
        Y: T.Tensor((M, N), "{y_dtype}"),
        Z: T.Tensor((M, N), "{z_dtype}"),
        S: T.Tensor((M,), "{s_dtype}"),
        W: T.Tensor((N,), "{w_dtype}"),
        H: T.Tensor(({bins},), "{h_dtype}"),
    ):
"""


@dataclass
class WideProgram(Elements, Launches, Loops, Memory, Products, Threads, Tiles):
    """One kernel; ``source`` is a module whose ``entry`` makes it, ``pinned`` are the dims that are known
    when it is built. ``attempt``: one of several of a seed."""

    seed: int
    attempt: int = 0
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = self.random = random.Random(f"wide {self.seed} {self.attempt}")
        self.bM, self.bN = (
            draw.choice([1, 3, 4, 8, 13, 16, 16, 32, 64]),
            draw.choice([4, 6, 7, 8, 16, 20, 32, 64]),
        )
        self.bK = draw.choice([1, 4, 7, 8, 16, 16, 24, 32, 32])
        self.operand, self.sum_type = draw.choice(PRODUCTS)
        self.trans_a, self.trans_b = draw.random() < 0.25, draw.random() < 0.4
        kinds = (*DTYPES, "float64", "float64") if draw.random() < DOUBLES else DTYPES
        self.kinds = [each for each in kinds if self.bM * self.bN * BITS[each] <= ROOM]
        self.dtypes = {name: draw.choice(self.kinds) for name in "xuyz"}
        self.dtypes |= {name: draw.choice(ATOMIC) for name in "swh"}
        #: What changes a tensor's elements: one operation, so that the order does not count.
        self.atomics = {name: draw.choice(ATOMICS) for name in "swh"}
        self.dtypes["p"] = draw.choice(["uint8", "int8"])
        #: Tensors of operands have their type, or another one that a loop converts.
        self.dtypes |= {
            name: self.operand if draw.random() < 0.6 else draw.choice(self.kinds) for name in "ab"
        }
        self.depth = self.fresh = 0
        self.loops: list[str] = []
        sizes = {"M": [5, 16, 32, 48], "N": [16, 33, 64], "K": [8, 24, 48]}
        self.pinned = {name: draw.choice(sizes[name]) for name in sizes if draw.random() < 0.35}
        self.own = self._own_tiles()
        self.tiles = [*self.own, *self._views()]
        self.source = self._write()

    # ---- arguments ----

    def shapes(self) -> list[dict[str, int]]:
        """Dims to run it with."""
        rng = random.Random(self.seed)
        free = [{"M": 37, "N": 43, "K": 41}, {name: rng.choice([1, 3, 5, 16, 24]) for name in "MNK"}]
        return [{**dims, **self.pinned} for dims in free]

    def arguments(self, dims: dict[str, int]) -> list[np.ndarray | int]:
        """Inputs and what is added to."""
        rng = np.random.default_rng([self.seed, dims["M"]])
        M, N, K = dims["M"], dims["N"], dims["K"]

        def drawn(name: str, *shape: int) -> np.ndarray:
            low = 0 if self.dtypes[name] in UNSIGNED else -3
            return rng.integers(low, 4, shape).astype(numpy_type(self.dtypes[name]))

        inputs = [
            drawn("a", *((K, M) if self.trans_a else (M, K))),
            drawn("b", *((N, K) if self.trans_b else (K, N))),
            drawn("x", M, N),
            drawn("u", N),
            rng.integers(0, 256, (M, (N + 1) // 2)).astype(np.uint8).view(self.dtypes["p"]),
            rng.integers(-2, M + 3, M).astype(np.int32),
            int(rng.integers(0, 4)),
        ]
        outputs = [((M, N), "y"), ((M, N), "z"), ((M,), "s"), ((N,), "w"), ((BINS,), "h")]
        return inputs + [drawn(name, *shape) for shape, name in outputs]

    # ---- what there is ----

    def _own_tiles(self) -> list[Tile]:
        draw, made = self.random, []
        shapes = [(self.bM, self.bN)] * 3 + [(self.bM,), (self.bN,)]
        if self.bN % 2 == 0:
            shapes += [(self.bM, 2, self.bN // 2)]
        for number in range(draw.randrange(3, 7)):
            shape = shapes[number] if number in (0, 3) and number < len(shapes) else draw.choice(shapes)
            made.append(Tile(f"t{number}", shape, draw.choice(self.kinds), draw.random() < 0.45))
        return made

    def _views(self) -> list[Tile]:
        draw, made = self.random, []
        for tile in self.own:
            if not tile.shared or draw.random() > 0.4:
                continue
            total = math.prod(tile.shape)
            rows = draw.choice([size for size in range(1, total + 1) if total % size == 0])
            shape = (rows, total // rows) if draw.random() < 0.7 else (total,)
            made.append(Tile(f"v{tile.name}", shape, tile.dtype, True, tile.name))
        return made

    def _write(self) -> str:
        draw = self.random
        workspace = draw.random() < 0.3
        if workspace:
            self._line(2, 'part = T.alloc_global((M, N), "float32")')
        self._launch(workspace)
        if workspace:
            self._second_launch()
        named = {f"{name}_dtype": dtype for name, dtype in self.dtypes.items()}
        a_shape, b_shape = "(K, M)" if self.trans_a else "(M, K)", "(N, K)" if self.trans_b else "(K, N)"
        head = HEAD.format(a_shape=a_shape, b_shape=b_shape, bins=BINS, **named)
        return head + "\n".join([*self.lines, "    return main"]) + "\n"

    def _finish(self, workspace: bool) -> None:
        """All tiles go out."""
        draw = self.random
        grids = [tile for tile in self.own if tile.shape == (self.bM, self.bN)]
        one, other = draw.choice(grids), draw.choice(grids)
        target = "part" if workspace else "Y"
        if self._takes(target, one) and draw.random() < 0.5:
            self._line(self.base, f"T.copy({one.name}, {target}[by * {self.bM}, bx * {self.bN}])")
        else:
            self._store(self.base, target, Value(f"{one.name}[i, j]", one.dtype, REST))
        rest = Value("0", "int32", 0)
        for tile in self.own:
            place = {1: "i" if tile.shape[0] == self.bM else "j", 2: "i, j", 3: "i, j % 2, j // 2"}[
                len(tile.shape)
            ]
            element = Value(f"{tile.name}[{place}]", tile.dtype, REST).cast("int32")
            rest = Value(f"{rest.text} * 2 + {element.text}", "int32", 100)
        self._store(self.base, "Z", rest)
        self._line(self.base, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        added = self._as(Value(f"{other.name}[i, j]", other.dtype, REST), self.dtypes["w"])
        self._line(self.base + 1, f"T.atomic_{self.atomics['w']}(W[{self._col()}], {added})")

    def _takes(self, target: str, tile: Tile) -> bool:
        """Whether a tensor takes what a tile holds, with no rule for what it has not."""
        dtype = self._tensor_type(target)
        return not (dtype in UNSIGNED and tile.dtype not in UNSIGNED)

    def _tensor_type(self, target: str) -> str:
        return "float32" if target == "part" else self.dtypes[target.lower()]

    def _store(self, level: int, target: str, value: Value) -> None:
        """A value to every element of a block's part of a tensor."""
        self._line(level, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        self._line(
            level + 1,
            f"{target}[{self._row()}, {self._col()}] = {resting(value, self._tensor_type(target)).text}",
        )

    def _second_launch(self) -> None:
        def value(at: str) -> str:
            return resting(Value(f"(part{at} + total[i])", "float32", 1000), self.dtypes["y"]).text

        sum_parts(self.random, self._line, value)

    # ---- steps ----

    def _step(self, level: int) -> None:
        steps = [
            *[self._elements, self._elements, self._product] * 2, self._gathered_product, self._reduce,
            self._scan, self._atomics, self._shared_atomics, self._accumulate, self._copy, self._nibbles,
            self._array, self._reinterpreted, self._flat, self._gathered, self._turned, self._by_threads,
            self._by_groups, self._ring_product, self._ahead,
        ]  # fmt: skip
        if self.depth < DEEPEST:
            steps += [self._loop, self._branch, self._while, self._kept]
        self.random.choice(steps)(level)


def numpy_type(name: str) -> np.dtype:
    """The NumPy dtype of a dtype name."""
    return np.dtype(getattr(ml_dtypes, name) if name.startswith(("bfloat", "float8")) else name)


def elaborated(seed: int, folder: Path) -> tuple[WideProgram, Kernel]:
    """The program of a seed and its kernel, from a file as an author has it: of its attempts the first one
    that reaches for nothing that is surely outside."""
    for attempt in itertools.count():
        program = WideProgram(seed, attempt)
        (folder / f"wide{seed}_{attempt}.py").write_text(program.source)
        entry = load_entry(f"wide{seed}_{attempt}.py:entry", folder)
        pinned = {name: Guard(eq=program.pinned.get(name)) for name in "MNK"}
        try:
            return program, elaborate(entry, name="wide", dims=pinned, args={}, config={})
        except SourceIndexError:
            continue
    raise AssertionError
