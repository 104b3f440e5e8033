"""Random tile kernels in the Python language: every choice comes from a seed.

A program is a list of steps over a few tiles: products in loops over K, elementwise work, reductions, online
softmax, copies through shared memory, loops, branches, and sometimes a second launch that reads a workspace.
Conditions look at places and at inputs alone, so that rounding never decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate, load_entry

TILES = ("acc", "f", "g")
DTYPES = ("float32", "float32", "float16", "bfloat16")

HEAD = """\
import tilec.language as T


def entry(M, N, K, ld):
    @T.prim_func
    def main(
        X: T.Tensor((M, K), "{dtype}"),
        W: T.Tensor({w_shape}, "{dtype}"),
        V: T.StridedTensor((M, N), (ld, 1), "float32"),
        bias: T.Tensor((N,), "float32"),
        L: T.Tensor((M,), "int32"),
        Y: T.Tensor((M, N), "float32"),
        Z: T.Tensor((M, N), "float32"),
        S: T.Tensor((M,), "float32"),
    ):
"""


def sum_parts(draw: random.Random, line: Callable[[int, str], None], value: Callable[[str], str]) -> None:
    """Writes a launch that sums rows of ``part``, and makes each element of Y by a value at its place."""
    rows, cols = draw.choice([1, 4, 9]), draw.choice([8, 21, 64])
    line(2, f"with T.Kernel(T.ceildiv(M, {rows}), threads=64) as bm:")
    line(3, f'total = T.alloc_fragment(({rows},), "float32")')
    line(3, f'piece = T.alloc_fragment(({rows}, {cols}), "float32")')
    line(3, "T.clear(total)")
    line(3, f"for jo in T.serial(T.ceildiv(N, {cols})):")
    line(4, f"T.copy(part[bm * {rows}, jo * {cols}], piece)")
    line(4, "T.reduce_sum(piece, total, dim=1, clear=False)")
    line(3, f"for jo in T.serial(T.ceildiv(N, {cols})):")
    line(4, f"for i, j in T.Parallel({rows}, {cols}):")
    at = f"[bm * {rows} + i, jo * {cols} + j]"
    line(5, f"Y{at} = {value(at)}")


@dataclass
class Program:
    """One kernel: ``source`` is a module whose ``entry`` makes it; ``pinned`` are dims known when it is
    built."""

    seed: int
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = self.random = random.Random(self.seed)
        self.bM, self.bN = draw.choice([1, 3, 4, 8, 13, 16, 32]), draw.choice([4, 7, 16, 20, 32, 48, 64])
        self.bK = draw.choice([1, 4, 7, 8, 16, 24, 32])
        self.dtype, self.trans_b = draw.choice(DTYPES), draw.random() < 0.4
        self.depth = 0
        self.pinned = self._pinned()
        self.source = self._write()

    def _pinned(self) -> dict[str, int]:
        sizes = {"M": [5, 16, 32], "N": [16, 33, 64, 96], "K": [8, 24, 48]}
        return {name: self.random.choice(sizes[name]) for name in sizes if self.random.random() < 0.4}

    def shapes(self) -> list[dict[str, int]]:
        """Dims to run it with."""
        free = [{"M": 1, "N": 1, "K": 1}, {"M": 5, "N": 40, "K": 17}, {"M": 33, "N": 67, "K": 48}]
        shapes = [{**dims, **self.pinned} for dims in free]
        return [{**dims, "ld": dims["N"] + 3 * at} for at, dims in enumerate(shapes)]

    def arguments(self, dims: dict[str, int]) -> list[np.ndarray]:
        """Inputs, then poisoned outputs."""
        import ml_dtypes

        rng = np.random.default_rng(self.seed)
        M, N, K = dims["M"], dims["N"], dims["K"]
        kind = ml_dtypes.bfloat16 if self.dtype == "bfloat16" else self.dtype
        x, w = (rng.standard_normal(shape) for shape in ((M, K), (N, K) if self.trans_b else (K, N)))
        v, bias = rng.standard_normal((M, dims["ld"])), rng.standard_normal(N)
        outputs = [np.full(shape, np.nan, np.float32) for shape in ((M, N), (M, N), (M,))]
        singles = [v.astype(np.float32)[:, :N], bias.astype(np.float32)]
        return [x.astype(kind), w.astype(kind), *singles, rng.integers(0, 20, M).astype(np.int32), *outputs]

    def _write(self) -> str:
        w_shape = "(N, K)" if self.trans_b else "(K, N)"
        workspace = self.random.random() < 0.3
        if workspace:
            self._line(2, 'part = T.alloc_global((M, N), "float32")')
        self._launch(workspace)
        if workspace:
            self._second_launch()
        head = HEAD.format(dtype=self.dtype, w_shape=w_shape)
        return head + "\n".join([*self.lines, "    return main"]) + "\n"

    def _line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def _launch(self, workspace: bool) -> None:
        bM, bN, bK = self.bM, self.bN, self.bK
        b_tile = (bN, bK) if self.trans_b else (bK, bN)
        self._line(2, f"with T.Kernel(T.ceildiv(N, {bN}), T.ceildiv(M, {bM}), threads=128) as (bx, by):")
        self._line(3, f'As = T.alloc_shared(({bM}, {bK}), "{self.dtype}")')
        self._line(3, f'Bs = T.alloc_shared({b_tile}, "{self.dtype}")')
        self._line(3, f'h = T.alloc_shared(({bM}, {bN}), "{self.dtype}")')
        self._line(3, f'x = T.alloc_fragment(({bM}, {bK}), "float32")')
        for tile in TILES:
            self._line(3, f'{tile} = T.alloc_fragment(({bM}, {bN}), "float32")')
        for row in ("s", "top", "old", "part_sum"):
            self._line(3, f'{row} = T.alloc_fragment(({bM},), "float32")')
        self._line(3, f'q = T.alloc_fragment(({bN},), "float32")')
        self._line(3, "count = T.alloc_var('int32')")
        values = {"s": 0.5, "top": -4.0, "old": 0.0, "part_sum": 0.0, "q": 0.25, "h": 1.0, "x": 0.0}
        for name, value in values.items():
            self._line(3, f"T.fill({name}, {value})")
        for tile in TILES:
            self._start(3, tile)
        for _ in range(self.random.randrange(2, 6)):
            self._step(3)
        self._finish(workspace)

    def _start(self, level: int, tile: str) -> None:
        source = self.random.choice(["T.clear({t})", "T.fill({t}, 1.5)", "T.copy({v}, {t})"])
        self._line(level, source.format(t=tile, v=self._window("V")))

    def _window(self, buffer: str, shift: int = 0) -> str:
        row, col = f"by * {self.bM}", f"bx * {self.bN}" + (f" + {shift}" if shift else "")
        return f"{buffer}[{row} : {row} + {self.bM}, {col} : {col} + {self.bN}]"

    def _finish(self, workspace: bool) -> None:
        target = "part" if workspace else "Y"
        row, col = f"by * {self.bM} + i", f"bx * {self.bN} + j"
        if self.random.random() < 0.5:
            self._line(3, f"T.copy(acc, {target}[by * {self.bM}, bx * {self.bN}])")
        else:
            self._line(3, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
            self._line(4, f"{target}[{row}, {col}] = acc[i, j] + bias[{col}]")
        self._line(3, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        self._line(4, f"Z[{row}, {col}] = f[i, j] + g[i, j] * 2.0 + s[i] + q[j] + T.cast(h[i, j], 'float32')")
        self._line(3, "if bx == 0:")
        self._line(4, f"for i in T.Parallel({self.bM}):")
        self._line(5, f"S[{row}] = s[i] + top[i]")

    def _second_launch(self) -> None:
        sum_parts(self.random, self._line, lambda at: f"part{at} + total[i] * 0.01")

    def _step(self, level: int) -> None:
        steps = [self._product, self._product, self._elementwise, self._elementwise, self._reduce,
                 self._softmax, self._through_shared, self._column_sums, self._chained]  # fmt: skip
        if self.depth < 2:
            steps += [self._loop, self._branch, self._while]
        self.random.choice(steps)(level)

    def _product(self, level: int) -> None:
        """acc, f or g plus a product over K, by whole loops or a single step of it."""
        draw, tile = self.random, self.random.choice(TILES)
        clears = draw.choice(["", "", ", clear_accum=(ko == 0)"])
        if draw.random() < 0.4:
            self._line(level, f"T.clear({tile})")
        late = [] if "K" in self.pinned else ["T.serial(1, {n})"]
        kind = draw.choice(["T.Pipelined({n}, num_stages=2)", "T.serial({n})", *late])
        self._line(level, f"for ko in {kind.format(n=f'T.ceildiv(K, {self.bK})')}:")
        self._operands(level + 1)
        self._line(level + 1, f"T.gemm(As, Bs, {tile}, transpose_B={self.trans_b}{clears})")
        if draw.random() < 0.2:
            self._line(level + 1, f"T.gemm(As, Bs, acc, transpose_B={self.trans_b})")
        self._shrink(level, tile)

    def _operands(self, level: int) -> None:
        shift = self.random.choice(["", "", " + 1"])
        self._line(level, f"T.copy(X[by * {self.bM}, ko * {self.bK}{shift}], As)")
        row, col = f"ko * {self.bK}", f"bx * {self.bN}"
        self._line(level, f"T.copy(W[{f'{col}, {row}' if self.trans_b else f'{row}, {col}'}], Bs)")

    def _chained(self, level: int) -> None:
        """A product of what a tile holds."""
        self._line(level, "for ko in T.serial(1):")
        self._operands(level + 1)
        self._line(level + 1, "T.copy(As, x)")
        self._line(level + 1, f"for i, j in T.Parallel({self.bM}, {self.bK}):")
        self._line(level + 2, "x[i, j] = x[i, j] * 0.5 + s[i] * 0.01")
        self._line(level + 1, "T.copy(x, As)")
        self._line(level + 1, f"T.gemm(As, Bs, g, transpose_B={self.trans_b})")
        self._shrink(level, "g")

    def _shrink(self, level: int, tile: str) -> None:
        """Keeps numbers small, as an epilogue that a product may take in."""
        if self.random.random() < 0.3:
            self._line(level, f"T.copy({tile}, h)")
        self._line(level, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        extra = self.random.choice(["", f" + bias[bx * {self.bN} + j]", " + s[i]"])
        self._line(level + 1, f"{tile}[i, j] = {tile}[i, j] * 0.125{extra}")

    def _elementwise(self, level: int) -> None:
        tile = self.random.choice(TILES)
        self._line(level, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        value = f"{tile}[i, j] = {self._value(2, tile)}"
        if self.random.random() < 0.4:
            self._line(level + 1, f"if {self._place()}:")
            self._line(level + 2, value)
            if self.random.random() < 0.4:
                self._line(level + 1, "else:")
                self._line(level + 2, f"{tile}[i, j] = {self._value(1, tile)}")
        else:
            self._line(level + 1, value)

    def _value(self, depth: int, own: str) -> str:
        if depth == 0 or self.random.random() < 0.3:
            return self._leaf(own)
        a, b = self._value(depth - 1, own), self._value(depth - 1, own)
        forms = ["({a} + {b}) * 0.5", "T.max({a}, {b})", "T.tanh({a})", "T.exp(T.min({a}, 1.0)) * 0.3",
                 "T.if_then_else({c}, {a}, {b})", "T.abs({a}) - {b} * 0.25"]  # fmt: skip
        return self.random.choice(forms).format(a=a, b=b, c=self._place())

    def _leaf(self, own: str) -> str:
        row, col = f"by * {self.bM} + i", f"bx * {self.bN} + j"
        other = self.random.choice([tile for tile in TILES if tile != own])
        return self.random.choice(
            [f"{own}[i, j]", f"{own}[i, j]", f"{other}[i, j]", f"{other}[{self.bM - 1} - i, j]",
             f"{other}[i, {self.bN - 1} - j]", f"{other}[i, j + 1]", f"V[{row}, {col}]",
             f"V[{row} - 1, {col} + 2]",
             f"bias[{col}]", f"bias[L[{row}]]", "s[i]", "q[j]", "0.75", "T.cast(h[i, j], 'float32')"]
        )  # fmt: skip

    def _place(self) -> str:
        row, col = f"by * {self.bM} + i", f"bx * {self.bN} + j"
        return self.random.choice(
            [f"{col} < N - 2", f"{row} < M", "i + j < 6", f"j <= L[{row}]", "(j + i) % 3 == 0",
             f"{col} >= 3 and {row} >= 1", f"V[{row}, {col}] > 0.1"]
        )  # fmt: skip

    def _reduce(self, level: int) -> None:
        tile, kind = self.random.choice(TILES), self.random.choice(["max", "min", "sum", "absmax"])
        clear = self.random.choice([True, False])
        self._line(level, f"T.reduce_{kind}({tile}, s, dim=1, clear={clear})")
        self._line(level, f"for i in T.Parallel({self.bM}):")
        self._line(level + 1, f"s[i] = T.max(T.min(s[i] * {0.03 if kind == 'sum' else 0.9}, 4.0), -4.0)")

    def _column_sums(self, level: int) -> None:
        tile = self.random.choice(TILES)
        column = self.random.choice(["j", "j", "j // 2", "j % 3"])
        self._line(level, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        self._line(level + 1, f"q[{column}] = q[{column}] + {tile}[i, j] * 0.01")

    def _softmax(self, level: int) -> None:
        """One step of online softmax over f, or over blocks of K of X."""
        blocks = self.random.random() < 0.5
        tile, width, inner = ("x", self.bK, level + 1) if blocks else ("f", self.bN, level)
        if blocks:
            self._line(level, f"for ko in T.Pipelined(T.ceildiv(K, {self.bK})):")
            self._line(inner, f"T.copy(X[by * {self.bM}, ko * {self.bK}], x)")
        self._line(inner, "T.copy(top, old)")
        self._line(inner, f"T.reduce_max({tile}, top, dim=1, clear=False)")
        self._line(inner, f"for i, j in T.Parallel({self.bM}, {width}):")
        self._line(inner + 1, f"{tile}[i, j] = T.exp({tile}[i, j] - top[i])")
        self._line(inner, f"T.reduce_sum({tile}, part_sum, dim=1)")
        self._line(inner, f"for i in T.Parallel({self.bM}):")
        self._line(inner + 1, "old[i] = T.exp(old[i] - top[i])")
        self._line(inner + 1, "s[i] = s[i] * old[i] + part_sum[i] * 0.1")
        self._line(inner, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        self._line(inner + 1, "acc[i, j] = acc[i, j] * old[i]")

    def _through_shared(self, level: int) -> None:
        first, second = self.random.sample(TILES, 2)
        self._line(level, f"T.copy({first}, h)")
        self._line(level, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        self._line(
            level + 1, f"{second}[i, j] = T.cast(h[{self.bM - 1} - i, j], 'float32') + {second}[i, j] * 0.5"
        )

    def _loop(self, level: int) -> None:
        var = f"t{self.depth}"
        kinds = ["T.serial(3)", "T.unroll(2)", "T.serial(by, by + 2)", f"T.serial(L[by * {self.bM}] % 4)"]
        self._line(level, f"for {var} in {self.random.choice(kinds)}:")
        self._nested(level + 1, self.random.randrange(1, 4))
        if self.random.random() < 0.3:
            self._line(level + 1, f"if {var} + L[by * {self.bM}] > 9:")
            self._line(level + 2, self.random.choice(["break", "continue"]))
            self._nested(level + 1, 1)

    def _branch(self, level: int) -> None:
        self._line(level, f"if {self.random.choice(['bx > 0', 'by % 2 == 0', f'L[by * {self.bM}] > 7'])}:")
        self._nested(level + 1, self.random.randrange(1, 3))
        if self.random.random() < 0.5:
            self._line(level, "else:")
            self._nested(level + 1, 1)

    def _while(self, level: int) -> None:
        self._line(level, "count = L[0] % 3")
        self._line(level, "while count < 3:")
        self._line(level + 1, "count = count + 1")
        self.depth += 2
        self._nested(level + 1, 1)
        self.depth -= 2

    def _nested(self, level: int, count: int) -> None:
        self.depth += 1
        for _ in range(count):
            self._step(level)
        self.depth -= 1


def elaborated(program: Program, folder: Path) -> Kernel:
    """The kernel of a program, from a file as an author has it."""
    (folder / f"program{program.seed}.py").write_text(program.source)
    entry = load_entry(f"program{program.seed}.py:entry", folder)
    pinned = {name: Guard(eq=program.pinned.get(name)) for name in ("M", "N", "K", "ld")}
    return elaborate(entry, name="program", dims=pinned, args={}, config={})
