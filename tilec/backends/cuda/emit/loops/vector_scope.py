"""The iterations of one vector of a ThreadLoop: where the last variable stands, what the body writes, which
elements move at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.accesses.vectors import Comb, combs
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loop_digits import Part
from tilec.backends.cuda.emit.loops.access_notes import Moved
from tilec.backends.cuda.emit.products.lane_digits import convert_sum
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.ir.exprs import all_of, dtype_of, inlined, same_all
from tilec.ir.layout_algebra import chunk
from tilec.lowering.analysis.accesses import Access, accesses, updated_in_place, values_of
from tilec.lowering.analysis.uses import reads_behind_writes, written_in
from tilec.lowering.emission.access import open_bounds

if TYPE_CHECKING:
    from tvm.ir import Expr


class VectorScope:
    """What the loads, the stores and the body of one vector share. ``held``: reads that vectors bring, each
    with its registers and the number that every iteration has there. ``fixed``: reads of one element, and the
    names of what they found, by ``once``. ``moved``: the accesses that move several elements."""

    def __init__(self, stmt: ThreadLoop, ctx: DeviceContext) -> None:
        self.stmt, self.body, self.ctx = stmt, stmt.body, ctx
        self.var, self.width = stmt.vars[-1], stmt.vector
        self.written = written_in(self.body) - updated_in_place(self.body, self.var, stmt.extents[-1])
        if reads_behind_writes(self.body, ctx.overlapping):
            self.written |= {item.buffer for item in accesses(self.body)}
        self.held: list[tuple[TensorLoad, Var, tuple[int, ...]]] = []
        self.moved: list[Moved] = []
        self.fixed: list[tuple[TensorLoad, Expr]] = []
        self.once: list[tirx.Bind] = []

    @contextmanager
    def at(self, element: int) -> Iterator[None]:
        """Within the context the last variable stands at an iteration of the vector."""
        ctx, base, digits = self.ctx, self.ctx.env[self.var], self.ctx.digits[self.var]
        if self.width > 1:  # the first digit goes through the vector
            first, *rest = digits
            ctx.digits[self.var] = (Part(1, first.size, tirx.const(element, "int32"), True), *rest)
            ctx.env[self.var] = base + tirx.const(element, dtype_of(self.var))
        done = [
            (load, tirx.BufferLoad(tmp, [tirx.const(steps[element], "int32")]))
            for load, tmp, steps in self.held
        ]
        with ctx.hoist_scope(done):
            yield
        ctx.digits[self.var], ctx.env[self.var] = digits, base

    def chunks(
        self,
        buffer: Var,
        indices: tuple[Expr, ...],
        tmp: Var,
        width: int,
        move: Callable[..., tirx.Stmt],
        firsts: Sequence[int],
    ) -> list[tirx.Stmt]:
        """``move`` for each access of ``width`` elements, behind the bounds that are open; ``firsts`` are the
        values of the variable at which each begins. The start is spelled out, so that its divisors are
        seen."""
        ctx, parts = self.ctx, []
        base = convert_sum(list(ctx.digits[self.var]), dtype_of(self.var))
        for number, first in enumerate(firsts):
            start = number * width
            with ctx.scope():
                ctx.env[self.var] = base + tirx.const(first, dtype_of(self.var))
                conds = open_bounds(buffer, indices, ctx)
                if conds is None:
                    conds = [tirx.const(False, "bool")]
                place = ctx.storage(buffer).offset([ctx.value(index) for index in indices])
                tests = [ctx.value(all_of(conds))] if conds else []
                parts.append(move(buffer, place, tmp, start, width, tests, ctx))
        return parts

    def spelled(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Indices without names of the body, and of names in front of it quotients' alone."""
        own = values_of(self.body)
        return tuple(self.ctx.facts.inline(inlined(index, own), whole=False) for index in indices)

    def comb(self, item: Access) -> tuple[Comb, int, tuple[Access, ...]] | None:
        """The comb of an access, how many elements move at once, and the accesses that it shares them
        with."""
        for other, (comb, members) in self.combs.items():
            alike = other.buffer.same_as(item.buffer) and other.is_write == item.is_write
            if alike and same_all(other.indices, item.indices):
                if self.width == 1 and len(members) < comb.stride:
                    return None
                limit = self.limit(item.buffer, self.width * comb.stride)
                width = comb.width(item.buffer, self.width, limit, self.ctx.facts)
                return (comb, width, members) if width else None
        return None

    @cached_property
    def combs(self) -> dict[Access, tuple[Comb, tuple[Access, ...]]]:
        """The combs of the body."""
        items = [item for item in accesses(self.body) if self.is_memory(item.buffer)]
        return combs(items, self.var, self.ctx.facts)

    @cached_property
    def is_wide(self) -> bool:
        """Whether several elements may move at once."""
        return self.width > 1 or any(map(self.comb, self.combs))

    def limit(self, buffer: Var, count: int = 0) -> int:
        """The most elements of a vector, of ``count`` or as many as there are iterations: in shared memory
        those that its layout keeps together."""
        layout, most = self.ctx.storage(buffer).layout, count or self.width
        return most if layout is None else min(most, chunk(layout))

    def is_memory(self, buffer: Var) -> bool:
        """Whether a buffer lies in shared or in global memory."""
        return str(buffer.scope()).startswith(("shared", "global"))

    def registers(self, buffer: Var, prefix: str, size: int, dtype: str = "") -> Var:
        """``size`` registers of a thread, of a buffer's type or of ``dtype``, with a name of their own."""
        name = self.ctx.fresh(f"{buffer.name}_{prefix}", "int32").name
        stored = str(self.ctx.storage(buffer).data.dtype)
        return tirx.decl_buffer((size,), dtype or stored, name=name, scope="local")
