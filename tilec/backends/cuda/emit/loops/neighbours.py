"""Elements that lie beside each other in one vector of iterations, of which one instruction makes several:
what each of them reads, and how far these places move from one element to the next."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.device.moves import bits
from tilec.ir.exprs import dtype_of, int_value, same_all, scalar_dtype, substitute
from tilec.lowering.analysis.counted import counted
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.backends.cuda.emit.context import DeviceContext

#: Elements of 8 bits in a word.
QUAD = 4


@dataclass(frozen=True)
class Neighbours:
    """Iterations of a vector. ``var`` stands at a multiple of ``width`` below ``extent``; within
    ``at(element)`` it stands at an iteration of the vector, of which ``held`` are loaded: an element's vector
    and the number that each iteration has there."""

    ctx: DeviceContext
    var: Var
    width: int
    extent: int
    at: Callable[[int], AbstractContextManager[None]]
    held: list[tuple[TensorLoad, Var, tuple[int, ...]]]

    def right(self, word: Expr, shift: Expr, element: int) -> Expr:
        """A word moved down by what ``shift`` is at an iteration."""
        known = int_value(self.simple(shift, element))
        if known is not None:
            return tirx.shift_right(word, tirx.const(known, "uint32")) if known else word
        with self.at(element):
            return tirx.shift_right(word, tirx.Cast("uint32", self.ctx.value(shift)))

    def raw(self, load: TensorLoad, element: int) -> Expr:
        """The bits of an iteration's element, zeros above."""
        held = self.vector(load)
        if held is None:
            with self.at(element):
                value = self.ctx.raw(load)
        else:
            value = tirx.BufferLoad(held[0], [tirx.const(held[1][element], "int32")])
        size = 8 * element_bytes(dtype_of(load))
        unsigned = f"uint{size}"
        if scalar_dtype(value).startswith(("float", "bfloat")):
            value = tirx.reinterpret(unsigned, value)
        return tirx.Cast("uint32", tirx.Cast(unsigned, value) if dtype_of(value) != unsigned else value)

    def run(self, load: TensorLoad, first: int, count: int) -> Expr | None:
        """The elements of ``count`` iterations as one word, where registers hold them side by side from a
        multiple of that on."""
        if first + count > self.width:
            return None
        size, held = count * element_bytes(dtype_of(load)), self.vector(load)
        if held is not None:
            tmp, steps = held
            near = all(steps[first + number] == steps[first] + number for number in range(count))
            even = near and steps[first] % count == 0
            return bits(size).call(tmp.ptr_to([tirx.const(steps[first], "int32")])) if even else None
        fragment = self.ctx.fragments.get(load.source)
        if fragment is None:
            return None
        places = []
        for iteration in range(first, first + count):
            with self.at(iteration):
                places.append(self.ctx.register(load.source, tuple(load.indices)))
        analyzer = self.ctx.facts.analyzer
        apart = [int_value(analyzer.simplify(place - places[0])) for place in places]
        found = analyzer.modular_set(places[0])
        even = found.coeff % count == 0 and found.base % count == 0
        return (
            bits(size).call(fragment.data.ptr_to([places[0]])) if even and apart == [*range(count)] else None
        )

    def vector(self, load: TensorLoad) -> tuple[Var, tuple[int, ...]] | None:
        """The vector that holds an element, and the number that each iteration has there."""
        own = self._places(load)
        return next(
            ((tmp, steps) for known, tmp, steps in self.held
             if known.source.same_as(load.source) and same_all(self._places(known), own)),
            None,
        )  # fmt: skip

    def _places(self, load: TensorLoad) -> tuple[Expr, ...]:
        return tuple(self.ctx.facts.inline(index) for index in load.indices)

    def is_same(self, load: TensorLoad, first: int) -> bool:
        """Whether an iteration and the next one read one element."""
        return all(self.apart(index, first, first + 1) == 0 for index in load.indices)

    def apart(self, expr: Expr, first: int, second: int) -> int | None:
        """By how much an integer differs between two iterations; None where that is no number."""
        difference = self.simple(expr, second) - self.simple(expr, first)
        return int_value(self.ctx.facts.analyzer.simplify(difference))

    def simple(self, expr: Expr, element: int) -> Expr:
        """An expression at an iteration of any vector."""
        width, number = (tirx.const(value, dtype_of(self.var)) for value in (self.width, element))
        place = self._number * width + number
        inlined = self.ctx.facts.inline(expr)
        return self.ctx.facts.analyzer.simplify(substitute(inlined, {self.var: place}))

    @cached_property
    def _number(self) -> Var:
        """The number of any vector."""
        vector = tirx.Var(f"{self.var.name}_vector", dtype_of(self.var))
        counted((vector,), (self.extent // self.width,), self.ctx.facts.analyzer)
        return vector
