"""BlockReduce: registers first, then lanes by shuffles, then warps through shared memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.device.exchange import exchange
from tilec.backends.cuda.device.helper import C_NAMES
from tilec.backends.cuda.device.intrinsics import keeping_nan
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loops.thread_loop import Iterations, over_layout
from tilec.backends.cuda.emit.numbers.narrow import NARROW
from tilec.backends.cuda.emit.products.lane_digits import thread_digit
from tilec.backends.cuda.emit.statements import block_barrier, emit
from tilec.backends.cuda.nodes import BlockReduce, JoinReduce, OwnReduce
from tilec.errors import UnsupportedError
from tilec.ir.exprs import as_expr, int_value
from tilec.ir.extremes import DROPPING
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import extent_of, packed_registers, thread_terms
from tilec.ir.places import place_of
from tilec.ir.reductions import REDUCTIONS
from tilec.lowering.analysis.accumulations import BITWISE, ENDS
from tilec.lowering.emission.statements import sequence
from tilec.lowering.emission.storage import compute_type, convert

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.emission.storage import Storage

#: A result that many registers of a thread add to takes them in two chains: the next instruction of one need
#: not wait for the last of the other.
_CHAINS, _LONG = 2, 16
#: So many shares of warps are joined by lanes.
_BY_LANES = 16


@emit.register(BlockReduce)
def _emit_reduce(stmt: BlockReduce, ctx: DeviceContext) -> tirx.Stmt:
    across = ", across warps through shared memory" if stmt.scratch is not None else ""
    ctx.take(stmt, "shuffles", f"reduction in registers, by shuffles{across}")
    return _Reduce(stmt, ctx.fragments[stmt.src.buffer].layout, ctx).emit()


@emit.register(OwnReduce)
def _emit_own(stmt: OwnReduce, ctx: DeviceContext) -> tirx.Stmt:
    ctx.take(stmt, "registers", "reduction of each thread's own elements, which are joined behind the loop")
    return _Reduce(stmt, ctx.fragments[stmt.src.buffer].layout, ctx, joins=False).emit()


@emit.register(JoinReduce)
def _emit_join(stmt: JoinReduce, ctx: DeviceContext) -> tirx.Stmt:
    return _Join(stmt, stmt.layout, ctx).emit()


def _lane_masks(layout: Layout, axis: int) -> list[int]:
    """The exchanges that bring together what lanes hold along an axis."""
    masks = []
    for term in thread_terms(layout, axis):
        step = term.stride
        while term.space == "lane" and step < term.stride * term.size:
            masks.append(step)
            step *= 2
    return masks


class _Steps(ABC):
    """The code of one reduction of what lies by ``layout``; without ``joins`` each thread keeps the result of
    its own elements."""

    stmt: BlockReduce | JoinReduce

    def __init__(
        self, stmt: BlockReduce | JoinReduce, layout: Layout, ctx: DeviceContext, joins: bool = True
    ) -> None:
        self.stmt, self.layout, self.ctx, self.joins = stmt, layout, ctx, joins
        self.dst = stmt.dst.buffer
        self.result = ctx.fragments[self.dst].layout
        self.element = compute_type(ctx.fragments[self.dst].dtype)
        self.dtype = NARROW.get(self.element, self.element)
        if self.dtype not in C_NAMES:
            raise UnsupportedError(
                f"reductions into {self.dtype} have no CUDA code yet",
                place=place_of(stmt),
                remedy="reduce into float32 or int32 and cast the result",
            )
        name = ctx.fresh(f"{self.dst.name}_sum", "int32").name
        count = extent_of(self.result, "reg")
        self.chains = self._count_chains(count)
        self.partial = tirx.decl_buffer((count * self.chains,), self.dtype, name=name, scope="local")

    @abstractmethod
    def _count_chains(self, results: int) -> int:
        """Of so many results, how many chains of registers each has."""

    @abstractmethod
    def _own(self, variables: tuple[Var, ...], place: Expr) -> list[tirx.Stmt]:
        """This thread's share of an element of the result goes to its first chain."""

    def emit(self) -> tirx.Stmt:
        """All steps."""
        parts = [tirx.AllocBuffer(self.partial), self._elements()]
        if self.stmt.scratch is not None:
            parts += self._warps()
        return sequence([*parts, self._finish()])

    # ---- operations ----

    def _identity(self) -> Expr:
        start = REDUCTIONS[self.stmt.kind].start
        if start == "ones":
            return tirx.BitwiseNot(tirx.const(0, self.dtype))
        if start == "zero":
            return tirx.const(0, self.dtype)
        infinity, end = ENDS[start]
        if self.dtype.startswith("float"):
            return tirx.const(infinity, self.dtype)
        return convert(end(self.element), self.dtype)

    def _combine(self, left: Expr, right: Expr) -> Expr:
        kind = REDUCTIONS[self.stmt.kind].join
        if kind == "sum":
            return left + right
        if kind in BITWISE:
            return BITWISE[kind](left, right)
        if self.stmt.nan_propagate and self.dtype.startswith("float"):
            return keeping_nan(kind, left, right)
        return DROPPING[kind](left, right)

    def _magnitude(self, value: Expr) -> Expr:
        """A term of the reduction: of some kinds without its sign, which the lowest integer keeps."""
        if not REDUCTIONS[self.stmt.kind].magnitudes or self.dtype.startswith("uint"):
            return value
        magnitude = tirx.Max(value, tirx.const(0, self.dtype) - value)
        return convert(convert(magnitude, self.element), self.dtype)

    def _decoded(self, stored: Expr, dtype: str) -> Expr:
        """A stored element in the type that this thread computes in."""
        return convert(self.ctx.decode(stored, dtype), self.dtype)

    def _over_result(self, body: object) -> tirx.Stmt:
        """``body(register)`` for every register of the result."""
        count = extent_of(self.result, "reg")
        var = self.ctx.fresh("r", "int32")
        return tirx.For(var, tirx.const(0), tirx.const(count), tirx.ForKind.UNROLLED, body(var))  # type: ignore[operator]

    def _get(self, place: Expr) -> Expr:
        return tirx.BufferLoad(self.partial, [place])

    def _put(self, place: Expr, value: Expr) -> tirx.Stmt:
        return tirx.BufferStore(self.partial, value, [place])

    # ---- steps ----

    def _elements(self) -> tirx.Stmt:
        """Each element of the result in turn: this thread's share of it, then that of its lanes. Lanes whose
        element is padding take part: a shuffle waits for all lanes."""
        ctx, axis = self.ctx, self.stmt.axis
        variables = tuple(tirx.Var(f"i{at}", "int32") for at in range(len(self.layout.digits)))
        kept = [at for at in range(len(variables)) if at != axis]

        def element() -> tirx.Stmt:
            place = ctx.register(self.dst, self._result_indices(variables))
            return sequence([*self._own(variables, place), *self._lanes(place)])

        layout = Layout(tuple(self.layout.digits[at] for at in kept))
        shown = tuple(variables[at] for at in kept)
        done = over_layout(Iterations(shown, layout.shape, layout), element, ctx)
        assert done is not None
        return done

    def _chain(self, place: Expr, chain: Expr | int) -> Expr:
        """The register of one chain of an element of the result."""
        if self.chains == 1:
            return place
        return place * tirx.const(self.chains, "int32") + as_expr(chain)

    def _result_indices(self, variables: tuple[Var, ...]) -> tuple[Expr, ...]:
        """The element of the result that an element of the source goes to."""
        axis = self.stmt.axis
        if len(self.dst.shape) == len(variables):
            return (*variables[:axis], tirx.const(0, "int32"), *variables[axis + 1 :])
        kept = (*variables[:axis], *variables[axis + 1 :])
        return kept or (tirx.const(0, "int32"),)

    def _lanes(self, place: Expr) -> list[tirx.Stmt]:
        first = self._chain(place, 0)
        masks = _lane_masks(self.layout, self.stmt.axis) if self.joins else []
        return [part for mask in masks for part in self._exchange(first, mask)]

    def _exchange(self, first: Expr, mask: int) -> list[tirx.Stmt]:
        """One exchange between lanes. All lanes run it: not in an operand that some of them choose."""
        other = exchange(self.dtype).call(self._get(first), tirx.const(mask, "int32"))
        if not self.stmt.nan_propagate:
            return [self._put(first, self._combine(self._get(first), other))]
        name = self.ctx.fresh("other", self.dtype)
        return [tirx.Bind(name, other), self._put(first, self._combine(self._get(first), name))]

    def _warps(self) -> list[tirx.Stmt]:
        """Each warp along the axis writes its share; all threads join all shares."""
        ctx = self.ctx
        storage = ctx.storage(self.stmt.scratch)
        own: Expr = tirx.const(0, "int32")
        count = 1
        for term in thread_terms(self.layout, self.stmt.axis):
            if term.space == "warp":
                own = own + thread_digit("warp", term.stride, term.size, ctx) * tirx.const(count, "int32")
                count *= term.size

        def over(body: object) -> tirx.Stmt:
            extents = self.result.shape
            variables = tuple(tirx.Var(f"o{axis}", "int32") for axis in range(len(extents)))

            def element() -> tirx.Stmt:
                flat: Expr = tirx.const(0, "int32")
                for var, extent in zip(variables, extents, strict=True):
                    flat = flat * tirx.const(extent, "int32") + ctx.value(var)
                return body(ctx.register(self.dst, variables), flat)  # type: ignore[operator]

            done = over_layout(Iterations(variables, extents, self.result), element, ctx)
            assert done is not None
            return done

        def write(place: Expr, flat: Expr) -> tirx.Stmt:
            stored = self.ctx.encode(self._get(self._chain(place, 0)), storage.dtype)
            return tirx.BufferStore(storage.data, stored, [storage.offset([own, flat])])

        def read(place: Expr, flat: Expr) -> tirx.Stmt:
            join = self._by_lanes if self._is_for_lanes(count) else self._in_turn
            return join(partial(self._share, storage, flat), self._chain(place, 0), count)

        return [over(write), block_barrier(ctx), over(read)]

    def _share(self, storage: Storage, flat: Expr, warp: Expr) -> Expr:
        """What a warp has of an element."""
        return self._decoded(tirx.BufferLoad(storage.data, [storage.offset([warp, flat])]), storage.dtype)

    def _is_for_lanes(self, count: int) -> bool:
        """Whether lanes read one of so many shares each: all lanes want the same results."""
        alone = extent_of(self.result, "lane") == 1
        return alone and count >= _BY_LANES and count & (count - 1) == 0

    def _by_lanes(self, share: Callable[[Expr], Expr], first: Expr, count: int) -> tirx.Stmt:
        masks = (1 << bit for bit in range(count.bit_length() - 1))
        steps = [part for mask in masks for part in self._exchange(first, mask)]
        own = tirx.truncmod(self.ctx.lane, tirx.const(count, "int32"))
        return sequence([self._put(first, share(own)), *steps])

    def _in_turn(self, share: Callable[[Expr], Expr], first: Expr, count: int) -> tirx.Stmt:
        parts = [self._put(first, self._identity())]
        for warp in range(count):
            joined = self._combine(self._get(first), share(tirx.const(warp, "int32")))
            parts.append(self._put(first, joined))
        return sequence(parts)

    def _finish(self) -> tirx.Stmt:
        """The result, combined with what was there where the reduction continues."""
        fragment = self.ctx.fragments[self.dst]

        def body(place: Expr) -> tirx.Stmt:
            value = self._get(self._chain(place, 0))
            if not self.stmt.clear:
                old = self._decoded(tirx.BufferLoad(fragment.data, [place]), fragment.dtype)
                old = self._magnitude(old) if self.stmt.kind == "absmax" else old
                value = self._combine(old, value)
            return tirx.BufferStore(fragment.data, self.ctx.encode(value, fragment.dtype), [place])

        return self._over_result(body)


class _Reduce(_Steps):
    """The code that reduces a fragment's elements."""

    stmt: BlockReduce

    def _count_chains(self, results: int) -> int:
        return _CHAINS if extent_of(self.layout, "reg") >= _LONG * results else 1

    def _own(self, variables: tuple[Var, ...], place: Expr) -> list[tirx.Stmt]:
        return [*self._start(place), self._registers(variables, place)]

    def _start(self, place: Expr) -> list[tirx.Stmt]:
        return [self._put(self._chain(place, chain), self._identity()) for chain in range(self.chains)]

    def _registers(self, variables: tuple[Var, ...], place: Expr) -> tirx.Stmt:
        """This thread's elements in chains, then these in the first. A chain starts with an element."""
        ctx, axis, src = self.ctx, self.stmt.axis, self.stmt.src.buffer
        extent = int_value(src.shape[axis]) or 1

        def body() -> tirx.Stmt:
            given = ctx.value(tirx.BufferLoad(src, list(variables)))
            value = convert(convert(given, self.element), self.dtype)
            value = self._magnitude(value)
            number = ctx.place(layout, (variables[axis],))
            chains = tirx.const(self.chains, "int32")
            target = self._chain(place, tirx.truncmod(number, chains))
            joined = self._combine(self._get(target), value)
            return self._put(target, joined if guarded else tirx.Select(number < chains, value, joined))

        layout = packed_registers(Layout((self.layout.digits[axis],)))
        guarded = layout.shape[0] > extent
        done = over_layout(Iterations((variables[axis],), (extent,), layout), body, ctx)
        assert done is not None
        first = self._chain(place, 0)
        joined = [
            self._put(first, self._combine(self._get(first), self._get(self._chain(place, chain))))
            for chain in range(1, self.chains)
        ]
        return sequence([done, *joined])


class _Join(_Steps):
    """The code that takes together what threads have of their own."""

    stmt: JoinReduce

    def _count_chains(self, results: int) -> int:
        return 1

    def _own(self, variables: tuple[Var, ...], place: Expr) -> list[tirx.Stmt]:
        fragment = self.ctx.fragments[self.stmt.parts.buffer]
        return [self._put(place, self._decoded(tirx.BufferLoad(fragment.data, [place]), fragment.dtype))]
