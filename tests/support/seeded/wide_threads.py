"""Steps of wide random programs in which threads and groups of warps have work of their own."""

from __future__ import annotations

import math

from wide_values import REST, Value, resting
from wide_writer import Tile, Writer

#: Threads of a group of warps that a role has.
GROUP = 128


class Threads(Writer):
    """Work of single threads, and of groups that wait for each other at barriers."""

    threads: int
    operand: str
    sum_type: str
    trans_a: bool
    trans_b: bool
    a_tile: Tile
    b_tile: Tile
    roles: bool

    def _by_threads(self, level: int) -> None:
        """Each thread stores elements of a shared tile, which others read behind a barrier."""
        draw, target = self.random, self.random.choice(self.tiles)
        self.fresh += 1
        shape = draw.choice([(self.bM, self.bN), (self.bN,), (self.threads,)])
        total, name = math.prod(shape), f"q{self.fresh}"
        dtype = draw.choice(["int32", "float32", "int16", "uint8"])
        self._line(level, f'{name} = T.alloc_shared({shape}, "{dtype}")')
        self._line(level, f"tx{self.fresh} = T.get_thread_binding()")
        flat = f"(q * {self.threads} + tx{self.fresh})"
        self._line(level, f"for q in T.serial({-(-total // self.threads)}):")
        place = f"{flat} // {shape[-1]}, {flat} % {shape[-1]}" if len(shape) == 2 else flat
        value = Value(f"({flat} * 3 + n) % 7 + U[{flat} % N]", "int32", 12)
        self._line(level + 1, f"if {flat} < {total}:")
        self._line(level + 2, f"{name}[{place}] = {resting(Value(value.text, 'float32', 12), dtype).text}")
        if draw.random() < 0.5:
            self._line(level, "T.sync_threads()")
        names = self._over(level, target)
        places = [
            draw.choice([f"({each} + 1) % {size}", f"{size - 1} - {each} % {size}"])
            for each, size in zip((names[0], names[-1])[-len(shape) :], shape, strict=True)
        ]
        read = Value(f"{name}[{', '.join(places)}]", dtype, REST)
        self._line(level + 1, f"{target.name}[{', '.join(names)}] = {resting(read, target.dtype).text}")

    def _by_groups(self, level: int) -> None:
        """Two groups of warps write a shared tile each, and all threads read both."""
        shared = [tile for tile in self.own if tile.shared]
        if not self.roles or len(shared) < 2:
            return
        one, other = self.random.sample(shared, 2)
        self._line(level, "T.sync_threads()")
        for group, tile in enumerate((one, other)):
            self._line(level, f"with T.ws({group}):")
            names = self._over(level + 1, tile)
            value = Value(f"{' + '.join(names)} * 2 + {group} + n", "int32", 200)
            self._line(level + 2, f"{tile.name}[{', '.join(names)}] = {resting(value, tile.dtype).text}")
        self._line(level, "T.sync_threads()")

    def _ring_product(self, level: int) -> None:
        """One group brings operands, the other one multiplies; the sums go through a shared tile."""
        if not self.roles or self.depth:
            return
        draw = self.random
        self.fresh += 1
        sums, out = f"ra{self.fresh}", Tile(f"ro{self.fresh}", (self.bM, self.bN), self.sum_type, True)
        self._line(level, f'{sums} = T.alloc_fragment({out.shape}, "{out.dtype}")')
        self._line(level, f'{out.name} = T.alloc_shared({out.shape}, "{out.dtype}")')
        full, free = f"full{self.fresh}", f"free{self.fresh}"
        self._line(level, f"{full}, {free} = T.alloc_barrier({GROUP}), T.alloc_barrier({GROUP})")
        self._line(level, "T.sync_threads()")
        self._line(level, "with T.ws(1):")
        self._line(level + 1, f"T.fill({sums}, {draw.randrange(2)})")
        self._line(level, f"for ko in T.serial(T.ceildiv(K, {self.bK})):")
        self._line(level + 1, "with T.ws(0):")
        self._line(level + 2, f"T.barrier_wait({free}, (ko + 1) % 2)")
        self._operand(level + 2, "A", self.a_tile, self.trans_a)
        self._operand(level + 2, "B", self.b_tile, self.trans_b)
        self._line(level + 2, f"T.barrier_arrive({full})")
        self._line(level + 1, "with T.ws(1):")
        self._line(level + 2, f"T.barrier_wait({full}, ko % 2)")
        turned = f"transpose_A={self.trans_a}, transpose_B={self.trans_b}"
        self._line(level + 2, f"T.gemm(As, Bs, {sums}, {turned})")
        self._line(level + 2, f"T.barrier_arrive({free})")
        self._line(level, "with T.ws(1):")
        self._line(level + 1, f"T.copy({sums}, {out.name})")
        self._line(level, "T.sync_threads()")
        self._rest(level, out)
        target = draw.choice([tile for tile in self.own if tile.shape == out.shape])
        names = self._over(level, target)
        value = Value(f"{out.name}[i, j]", out.dtype, REST)
        self._line(level + 1, f"{target.name}[{', '.join(names)}] = {resting(value, target.dtype).text}")

    def _operand(self, level: int, tensor: str, tile: Tile, turned: bool) -> None:
        raise NotImplementedError
