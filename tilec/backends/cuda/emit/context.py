"""What emission of device code carries along: fragments, loop variables as digits, the thread, the pool."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.tirx.analysis import undefined_vars
from tvm.tirx.script import builder as T

from tilec.backends.cuda.codegen.words import spelled
from tilec.backends.cuda.device import small_floats
from tilec.backends.cuda.device.exchange import one_computation
from tilec.backends.cuda.device.floats import (
    FEW,
    FROM_BFLOAT16,
    FROM_NATURAL,
    FROM_SMALL,
    PAIRED,
    SIGMOID,
    SMALL_PAIRED,
    TO_BFLOAT16,
    from_small,
    pack_small,
)
from tilec.backends.cuda.device.intrinsics import keeping_nan
from tilec.backends.cuda.emit.loop_digits import Part, parts_of, register_digit
from tilec.backends.cuda.emit.numbers.narrow import combined, inverted
from tilec.backends.cuda.emit.numbers.wide import wide_product
from tilec.backends.cuda.limits import has_float8
from tilec.ir.analysis.numbers.ranges import SHORT, as_passes_have_it, bounds
from tilec.ir.exprs import dtype_of, int32, int_value, linear_in, loads, same, scalar_dtype, uncast
from tilec.ir.extremes import KEPT
from tilec.ir.foreign import once
from tilec.ir.layout_algebra import Term, terms
from tilec.lowering.analysis.conditions import has_quotient
from tilec.lowering.emission.access import load_element, open_bounds
from tilec.lowering.emission.context import SERIAL, Context
from tilec.lowering.emission.storage import compute_type, convert, decode, encode, rounded, stored_type

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.emit.held import Fragment, LookedUp
    from tilec.backends.cuda.emit.numbers.wide import Products
    from tilec.backends.cuda.warp_roles.nodes import TensorMap
    from tilec.ir.layout import Layout


@dataclass(eq=False)
class DeviceContext(Context):
    """State of the emission of one device function for GPUs.

    Where groups of warps run programs of their own, ``thread``, ``warp`` and ``warps`` count within the group
    whose statement is emitted, and ``block_...`` within the block; elsewhere they are the same.
    """

    processor = "CUDA"

    thread: Expr | None = None
    lane: Expr | None = None
    warp: Expr | None = None
    #: The block's shared memory, its address there, and the byte of it at which each tile begins.
    pool: Var | None = None
    pool_address: Expr | None = None
    places: dict[Var, int] = field(default_factory=dict)
    #: The parameters of the function that are tensor maps.
    maps: dict[TensorMap, Expr] = field(default_factory=dict)
    warps: int = 1
    #: Under which condition this thread writes to memory that others see.
    once: Expr | None = None
    fragments: dict[Var, Fragment] = field(default_factory=dict)
    #: The parts that the variables of loops around are made of, and their values as code names them.
    digits: dict[Var, tuple[Part, ...]] = field(default_factory=dict)
    sums: dict[Var, Expr] = field(default_factory=dict)
    #: Elements that were loaded ahead, each with its register, which has it as memory does.
    hoisted: list[tuple[TensorLoad, Expr]] = field(default_factory=list)
    #: By name: registers of operands that are loaded in the trip before; the places that
    #: gathers know before they begin; registers of operands that lanes load for each other.
    ahead: dict[str, tuple[Var, Var]] = field(default_factory=dict)
    looked_up: dict[str, LookedUp] = field(default_factory=dict)
    brought: dict[str, Var] = field(default_factory=dict)
    #: Calls of `PLACE` say which lines of the author's file the statements behind them come from.
    marks: bool = False
    block_vars: tuple[Var, ...] = ()
    tile_block: Expr | None = None
    block_thread: Expr | None = None
    block_warp: Expr | None = None
    block_warps: int = 1
    #: The first thread of the group and how many it has; None: all of the block.
    group: tuple[int, int] | None = None
    #: Of a thread over the indices that the author names; None: the author names none.
    number: Expr | None = None
    #: The named barriers of groups that meet, by their threads, and the numbers of those that are left.
    group_barriers: dict[tuple[int, int], int] = field(default_factory=dict)
    free_barriers: list[int] = field(default_factory=list)
    #: mbarriers at which other blocks arrive.
    cluster_barriers: set[Var] = field(default_factory=set)
    #: The names of tensors that may share memory with others.
    overlapping: frozenset[str] = frozenset()
    products: Products | None = None
    #: Integers may be rounded twice where they become floats.
    fast_math: bool = False
    #: Whether compilers conclude something of the value that is emitted, at once, or by a name that it gets.
    folds: bool = False
    names: bool = False
    #: Tensors that nothing writes while the launch runs, and the conditions under which their elements are
    #: wanted by the value that is emitted.
    lasting: frozenset[Var] = frozenset()
    wanted: tuple[Expr, ...] = ()

    def fresh(self, name: str, dtype: str) -> Var:
        """As `Context.fresh`, with a name that CUDA C++ has no use for."""
        return super().fresh(spelled(name), dtype)

    def combined(self, kind: type, left: Expr, right: Expr) -> Expr:
        """An operation on two values; unsigned ones wrap around in CUDA C++."""
        product = wide_product(left, right, self.products) if kind is tirx.Mul else None
        if self.fast_math and kind is tirx.Mul and (_is_parted(left) or _is_parted(right)):
            parts, factor = (left, right) if _is_parted(left) else (right, left)
            return parts.a * factor + parts.b * factor
        return combined(kind, left, right, self.facts.analyzer) if product is None else product

    @contextmanager
    def folding(self) -> Iterator[None]:
        """As `Context.folding`."""
        with self._concluding(folds=True, names=self.names):
            yield

    @contextmanager
    def naming(self) -> Iterator[None]:
        """As `Context.naming`."""
        with self._concluding(folds=self.folds, names=True):
            yield

    @contextmanager
    def _concluding(self, folds: bool, names: bool) -> Iterator[None]:
        """Within the context compilers conclude something of values: at once, or by their names."""
        before = self.folds, self.names
        self.folds, self.names = folds, names
        yield
        self.folds, self.names = before

    def wraps(self, expr: Expr) -> bool:
        """As `Context.wraps`, of sums that something is concluded of: others wrap around anyway."""
        return (self.folds or self.names) and super().wraps(expr)

    def wrapping(self, kind: type, left: Expr, right: Expr) -> Expr:
        """A sum, a difference or a product of signed values that wraps around, as unsigned ones do in CUDA
        C++."""
        dtype = scalar_dtype(left)
        made = kind(convert(left, f"u{dtype}"), convert(right, f"u{dtype}"))
        return as_passes_have_it(convert(made, dtype), made, self.facts.analyzer)

    def function(self, name: str, args: list[Expr]) -> Expr | None:
        """The sigmoid of a float32 by a division without a slow path."""
        is_sigmoid = name == "sigmoid" and dtype_of(args[0]) == "float32"
        return SIGMOID.call(*args) if is_sigmoid else None

    def inverted(self, value: Expr) -> Expr:
        """``~value``."""
        return inverted(value)

    def decode(self, raw: Expr, dtype: str) -> Expr:
        """The compute value of a stored element."""
        if dtype in SMALL_PAIRED:
            return (from_small if self.pairs_small else small_floats.decoded)(dtype).call(raw)
        return FROM_BFLOAT16.call(raw) if dtype == "bfloat16" else decode(raw, dtype)

    def encode(self, value: Expr, dtype: str) -> Expr:
        """The stored element of a compute value."""
        if dtype == "float8_e4m3fn" and self.pairs_small:
            return self._saturated(value, dtype)
        if dtype in SMALL_PAIRED:
            return small_floats.encoded(dtype).call(value)
        return TO_BFLOAT16.call(value) if dtype == "bfloat16" else encode(value, dtype)

    def rounded(self, value: Expr, dtype: str) -> Expr:
        """A compute value cast to ``dtype``."""
        if dtype in SMALL_PAIRED and self.pairs_small:
            return self.decode(self._saturated(value, dtype), dtype)
        if dtype in SMALL_PAIRED:
            return small_floats.rounded(dtype).call(value)
        return self.decode(self.encode(value, dtype), dtype) if dtype == "bfloat16" else rounded(value, dtype)

    def as_float(self, expr: Expr, value: Expr) -> Expr:
        """``value``, that of an expression, as float32: one for all registers and what each adds, where no
        number is rounded or fast math lets it be, which `combined` then multiplies apart: a product for all
        registers and a multiply-add for each. Another small integer is one by arithmetic on its bits."""
        if scalar_dtype(value) not in SHORT:
            return super().as_float(expr, value)
        low, high = bounds(self.facts.inline(expr), self.facts.analyzer)
        parted = dtype_of(value) == "int32" and (self.fast_math or (low >= -FEW and high < FEW))
        share = self._share(expr) if parted else None
        if share is not None:
            return convert(value - share, "float32") + convert(share, "float32")
        if low >= 0 and high < 2 * FEW:
            return FROM_NATURAL.call(convert(value, "uint32"))
        if low >= -FEW and high < FEW:
            return FROM_SMALL.call(convert(value, "int32"))
        return super().as_float(expr, value)

    def _share(self, expr: Expr) -> Expr | None:
        """What the registers of the loops around add to a number that is linear in their variables, constants
        in unrolled code; None where they add nothing. Without it the number is one for all of them, and so is
        its conversion (a slope on the distance in attention: 1 for a tile, not 17)."""
        used = [var for var in undefined_vars(expr) if var in self.digits]
        linear = [int_value(factor) for factor in linear_in(expr, used)[: len(used)]] if used else []
        total: Expr = tirx.const(0, "int32")
        for var, factor in zip(used, linear, strict=False):
            if factor is None:
                return None
            for part in self.digits[var]:
                if part.in_register and part.size > 1:
                    total = total + convert(part.value, "int32") * int32(part.weight * factor)
        return None if int_value(total) == 0 else total

    @property
    def pairs_small(self) -> bool:
        """Whether an instruction rounds two float32 to 8 bits."""
        return has_float8(self.target)

    def is_paired(self, value: Expr, dtype: str) -> bool:
        """Whether elements of ``dtype`` are made of two float32 at once, where ``value`` is stored: with
        8 bits only casts saturate."""
        return dtype in PAIRED or (self._saturates(value, dtype) and self.pairs_small)

    def unrounded(self, value: Expr, dtype: str) -> Expr:
        """The compute value of an expression that is about to be stored as ``dtype``, which rounds anyway."""
        if self._saturates(value, dtype) and self.pairs_small:
            return self.value(value.value)
        return super().unrounded(value, dtype)

    def _saturates(self, value: Expr, dtype: str) -> bool:
        """Whether ``value`` is a cast of what is computed in float32 to 8 bits."""
        cast = dtype in SMALL_PAIRED and isinstance(value, tirx.Cast) and dtype_of(value) == dtype
        return cast and compute_type(dtype_of(value.value)) == "float32"

    def _saturated(self, value: Expr, dtype: str) -> Expr:
        """A compute value as an element of 8 bits; the largest finite one where it is beyond."""
        pair = pack_small(dtype).call(value, tirx.const(0, "float32"))
        return tirx.Cast("uint8", tirx.bitwise_and(pair, tirx.const(0xFF, "uint16")))

    def is_number(self, expr: Expr) -> bool:
        """NaN gives way to numbers in max and min of GPUs."""
        return True

    @abstractmethod
    def test(self, cond: Expr) -> Expr:
        """The value of a condition."""

    @contextmanager
    def under(self, test: Expr) -> Iterator[None]:
        """Elements are wanted where ``test`` holds."""
        before, self.wanted = self.wanted, (*self.wanted, test)
        try:
            yield
        finally:
            self.wanted = before

    def foreign(self, name: str, returns: str, args: list[Expr], source: str) -> Expr:
        """A call of a function of imported source, or of one that the device compiler knows."""
        values = [self.value(arg) for arg in args]
        if not source:
            return tirx.call_extern("int32" if returns == "void" else returns, name, *values)
        return T.cuda.func_call(name, *values, source_code=once(source), return_type=returns)

    def named(self, name: str, dtype: str, args: list[Expr]) -> Expr | None:
        """A call of one of CUDA's own functions, or max or min that keeps NaN."""
        if name in KEPT:
            return keeping_nan(KEPT[name], *args)
        return tirx.call_pure_extern(compute_type(dtype), name, *args)

    def computed_once(self, value: Expr) -> Expr:
        """Quotients by run-time numbers are computed where they get their name."""
        dtype = dtype_of(value)
        if dtype not in ("int32", "int64") or not has_quotient(value):
            return value
        return one_computation(dtype).call(value)

    def load(self, expr: TensorLoad) -> Expr:
        """The value of an element, whose place nothing is concluded of."""
        with self._concluding(folds=False, names=False):
            return self._loaded(expr)

    def stored(self, value: Expr, dtype: str) -> Expr:
        """What memory of ``dtype`` holds of an expression's value: an element of that type as it is, and a
        cast to it rounded once."""
        if isinstance(value, TensorLoad) and str(value.source.dtype) == dtype:
            return self.raw(value)
        if _is_zero(value):
            return tirx.const(0, stored_type(dtype))
        with self.naming():
            made = self.unrounded(value, dtype)
        if self._saturates(value, dtype) and self.pairs_small:
            return self._saturated(made, dtype)
        return self.encode(made, dtype)

    def raw(self, expr: TensorLoad) -> Expr:
        """An element as memory holds it."""
        return self._loaded(expr, raw=True)

    def _loaded(self, expr: TensorLoad, raw: bool = False) -> Expr:
        """An element in a register, in a vector loaded ahead, or in memory."""
        for load, bits in self.hoisted:
            if same(load, expr):
                return bits if raw else self.decode(bits, str(expr.source.dtype))
        fragment = self.fragments.get(expr.source)
        if fragment is not None:
            return self._held(expr, fragment, raw)
        return self.in_memory(expr, raw)

    def in_memory(self, expr: TensorLoad, raw: bool) -> Expr:
        """An element that memory holds, as memory has it or its value; 0 outside of the buffer."""
        return load_element(expr, self, raw)

    def _held(self, expr: TensorLoad, fragment: Fragment, raw: bool) -> Expr:
        """An element in a register; 0 outside of the tile."""
        indices, dtype = tuple(expr.indices), fragment.dtype
        zero = tirx.const(0, stored_type(dtype) if raw else compute_type(dtype))
        conds = open_bounds(expr.source, indices, self)
        if conds is None:
            return zero
        bits = tirx.BufferLoad(fragment.data, [self.register(expr.source, indices)])
        value = bits if raw else self.decode(bits, dtype)
        return value if not conds else tirx.Select(self.bounds(expr.source, conds), value, zero)

    def shared_place(self, tile: Var) -> Expr:
        """The address of a tile in shared memory, as instructions take it."""
        assert self.pool_address is not None
        return self.pool_address + tirx.const(self.places[tile], "uint32")

    def register(self, buffer: Var, indices: Sequence[Expr]) -> Expr:
        """The register of one element of a fragment that this thread holds."""
        return self.place(self.fragments[buffer].layout, indices)

    def place(self, layout: Layout, indices: Sequence[Expr]) -> Expr:
        """The register that a layout gives one of this thread's elements."""
        total: Expr = tirx.const(0, "int32")
        for axis, index in enumerate(indices):
            for term in terms(layout, axis):
                if term.space == "reg":
                    total = total + self._digit(term, uncast(index))
        return self.facts.analyzer.simplify(total)

    def _digit(self, term: Term, index: Expr) -> Expr:
        """The contribution of one register digit of an index."""
        parts, window = parts_of(index, self.digits)
        if parts:
            return register_digit(term, parts, window)
        value = convert(self.value(index), "int32")
        value = tirx.truncmod(tirx.truncdiv(value, int32(term.weight)), int32(term.size))
        return value * int32(term.stride)

    def loop(
        self, var: Var, start: Expr, extent: Expr, body: tirx.Stmt, kind: int = SERIAL, **annotations: bool
    ) -> tirx.Stmt:
        """A loop over ``extent`` values of ``var`` from ``start``, all of them TIR. What these read is read
        once, before the first trip."""
        bounds, held = {"first": start, "count": extent}, []
        for name, value in bounds.items():
            if next(loads(value), None) is not None:
                bounds[name] = self.fresh(f"{var.name}_{name}", dtype_of(value))
                held.append(tirx.Bind(bounds[name], value))
        made = tirx.For(var, bounds["first"], bounds["count"], kind, body, annotations=annotations or None)
        return tirx.SeqStmt([*held, made]) if held else made

    @contextmanager
    def product_scope(self) -> Iterator[Products]:
        """Within the context products of words get names, each once."""
        before, self.products = self.products, []
        try:
            yield self.products
        finally:
            self.products = before

    @contextmanager
    def once_scope(self, cond: Expr | None) -> Iterator[None]:
        """Within the context, memory that others see is written where ``cond`` holds."""
        before, self.once = self.once, cond
        try:
            yield
        finally:
            self.once = before

    @contextmanager
    def hoist_scope(self, hoisted: list[tuple[TensorLoad, Expr]]) -> Iterator[None]:
        """Within the context these reads have been done."""
        before, self.hoisted = self.hoisted, [*self.hoisted, *hoisted]
        try:
            yield
        finally:
            self.hoisted = before


def _is_zero(value: Expr) -> bool:
    """Whether an expression is the number 0, whose bits are zeros in every type."""
    value = uncast(value)
    if isinstance(value, tirx.FloatImm):
        return float(value.value) == 0 and math.copysign(1, value.value) > 0
    return isinstance(value, tirx.IntImm) and int(value.value) == 0


def _is_parted(value: Expr) -> bool:
    """Whether a value is the sum of two integers that became floats each for itself."""
    sides = (value.a, value.b) if isinstance(value, tirx.Add) else ()
    return bool(sides) and all(
        isinstance(side, tirx.Cast) and (dtype_of(side), dtype_of(side.value)) == ("float32", "int32")
        for side in sides
    )
