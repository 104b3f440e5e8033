"""Where scales of packed weights enter: into the weights, or into the sums of a group's products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.packed_weights.convert import single, twice
from tilec.backends.cuda.warp_roles.emit.build import let, pin, ptx, put, registers

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.packed_weights.convert import Converter
    from tilec.backends.cuda.packed_weights.nodes import PackedProduct


class ScaledOperands:
    """Weights are multiplied by their scales in 16 bits, and all products add to the accumulator.

    ``batch`` is how many steps along K have their products issued at once: more of them take registers."""

    batch = 4

    def __init__(self, stmt: PackedProduct, converter: Converter, sums: Var) -> None:
        self._stmt, self._converter, self._sums = stmt, converter, sums
        self._count = stmt.tile.columns // 2
        self._first = 0
        self._places: list[list[Expr]] = []
        self._scales: list[Expr] = []
        for register in range(stmt.tile.rows * self._count):
            put(sums, tirx.const(0.0, "float32"), register)

    def begin(self, block: int, step: int, scales: list[list[Expr]]) -> None:
        """A batch of products of a block of rows; ``scales`` are addresses by half of the block and group."""
        self._first = block * self._count
        self._places = scales

    def begin_step(self, step: int) -> None:
        """A step of the batch, the first of its group maybe: a batch has several small ones."""
        if self._stmt.scale is not None and step * 16 % self._stmt.group == 0:
            group = step * 16 // self._stmt.group
            self._scales = [let("scale", twice(half[group])) for half in self._places]

    def operand(self, pair: Expr, below: int) -> Expr:
        """Two weights of a row (of the one 8 ``below``) as they enter the product."""
        return self._converter.scaled(pair, self._scales[below]) if self._scales else pair

    def registers(self) -> list[Expr]:
        """The registers that the products of a batch add to."""
        return [self._sums[self._first + register] for register in range(self._count)]

    def adds(self, step: int) -> bool:
        """Whether a step adds to what is there."""
        return True

    def close(self) -> bool:
        """The last batch of a trip is issued; whether all products of the trip are done now."""
        return False

    def finish(self) -> None:
        """All products are done."""
        pin(self._sums, self._stmt.tile.rows * self._count)


class GroupSums(ScaledOperands):
    """Weights enter the product as integers; the sum of a group is multiplied by its scale in float32 while
    the products of the next one run. Two sets of registers take turns. None is in flight from one trip to the
    next: ptxas would then wait for every single product."""

    batch = 2

    def __init__(self, stmt: PackedProduct, converter: Converter, sums: Var) -> None:
        super().__init__(stmt, converter, sums)
        self._parts = [registers(self._count, "float32") for _ in range(2)]
        self._turn = 1
        self._open: list[tuple[int, int, list[Expr]]] = []

    def begin(self, block: int, step: int, scales: list[list[Expr]]) -> None:
        """A batch: the first of a group takes the other registers, the second adds up the group before."""
        steps = self._stmt.group // 16
        if step % steps == 0:
            self._turn = 1 - self._turn
            kind = self._converter.kind
            factors = [let("factor", single(half[step // steps], kind)) for half in scales]
            self._open.append((self._turn, block, factors))
        elif step % steps == self.batch and len(self._open) > 1:
            self._add(*self._open.pop(0))

    def begin_step(self, step: int) -> None:
        """Groups are whole batches."""

    def operand(self, pair: Expr, below: int) -> Expr:
        """Integers as they are."""
        return pair

    def registers(self) -> list[Expr]:
        """Those of the group."""
        return [self._parts[self._turn][register] for register in range(self._count)]

    def adds(self, step: int) -> bool:
        """A group's first step starts its sum."""
        return step * 16 % self._stmt.group != 0

    def close(self) -> bool:
        """Adds up the last group of the trip."""
        ptx("wgmma.wait_group.sync.aligned", 0)
        while self._open:
            self._add(*self._open.pop(0))
        return True

    def finish(self) -> None:
        """The sums are where they belong."""

    def _add(self, turn: int, block: int, factors: list[Expr]) -> None:
        part, first = self._parts[turn], block * self._count
        pin(part, self._count)
        for register in range(self._count):
            scaled = part[register] * factors[register % 4 // 2]
            put(self._sums, self._sums[first + register] + scaled, first + register)
