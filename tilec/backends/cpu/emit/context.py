"""What emission of CPU code carries along: the current lanes, accumulators, the worker's scratch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.emit.functions import named_call
from tilec.backends.cpu.emit.numbers.bfloat16 import nearest_bfloat16
from tilec.backends.cpu.emit.numbers.float8 import decode_by_half
from tilec.backends.cpu.emit.numbers.float8_tables import at_once, look_up
from tilec.backends.cpu.emit.numbers.half import decode_half, encode_half
from tilec.backends.cpu.emit.numbers.number_of import number_of
from tilec.backends.cpu.emit.numbers.operands import rounded_operand
from tilec.backends.cpu.emit.numbers.wrapping import WRAPPING, leaves_type, wrapping
from tilec.backends.cpu.emit.vectors.lanes import NotVectorisable
from tilec.backends.cpu.products.tir import ONCE, once
from tilec.errors import UnsupportedError
from tilec.ir.analysis.numbers.ranges import stays_inside
from tilec.ir.exprs import dtype_of, int_value, loads, scalar_dtype
from tilec.lowering.emission.access import load_element
from tilec.lowering.emission.context import SERIAL, Context
from tilec.lowering.emission.storage import compute_type
from tilec.lowering.math.float8 import FLOAT8_TYPES
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.vectors.lanes import Lanes
    from tilec.ir.nodes import Block, Stmt, Store
    from tilec.ir.roads import Loss
    from tilec.lowering.analysis.accumulations import Accumulation


class Partial(Protocol):
    """Partial results of what stores add up: one vector for each of ``slots``, of ``width`` lanes."""

    width: int
    slots: int

    def step(self, ctx: LaneContext) -> tirx.Stmt:
        """Takes in the terms of the current lanes."""


class Together(Protocol):
    """Stores that are written with others."""

    def store(self, stmt: Store, stored: Expr, ctx: LaneContext) -> tirx.Stmt:
        """Keeps what memory is to hold of one of them; with the last one, writes all."""


@dataclass(eq=False)
class LaneContext(Context):
    """State of the emission of one launch for CPUs: values have one element for each lane of a vector.

    Most of it holds for a part of the code alone, and is set by a context manager of this class for as long.
    """

    processor = "CPU"

    #: Of the vectorised loop that is emitted; None in scalar code.
    lanes: Lanes | None = None
    #: Which lanes take part, where not all of them do.
    mask: Expr | None = None
    #: Points to the memory that the worker has for itself.
    scratch: Expr | None = None
    #: While it is set nothing that is emitted is kept: bounds that remain open are collected in it.
    recorder: list[Expr] | None = None
    #: Beside a `recorder`: the conditions of values that lanes choose for themselves.
    choices: list[Expr] = field(default_factory=list)
    #: What stores add to, in registers.
    accumulators: dict[Store, Partial] = field(default_factory=dict)
    #: Variables that are never NaN.
    numbers: set[Var] = field(default_factory=set)
    #: Tiles that products alone read (`is_operand`), where an instruction rounds them.
    operands: set[Var] = field(default_factory=set)
    #: The LLVM text of functions that the code calls, by their names.
    functions: dict[str, str] = field(default_factory=dict)
    #: Which vector of a trip is emitted, of a loop whose trips have several.
    slot: int = 0
    #: How many of the first lanes touch memory, where the others do not.
    first: Expr | None = None
    #: A condition that holds for the first lanes alone gives `first`, instead of a loop of single elements.
    ends: bool = False
    #: Loops stay loops, of which LLVM writes no trips out.
    rolled: bool = False
    #: Elements are stored as they were read, bit by bit.
    moving: bool = False
    #: Little is computed of what is read: a loop of single elements is as fast as gathering lanes.
    light: bool = False
    #: Tensors that may be written past the caches, each with the variable that says whether it is.
    streams: dict[Var, Var] = field(default_factory=dict)
    #: The stores that are to do so.
    streaming: frozenset[Store] = frozenset()
    #: Expressions that are known to be multiples of a number, with that number.
    multiples: tuple[tuple[Expr, int], ...] = ()
    #: Whether nothing else updates tensors meanwhile, as a variable or a constant; None where others may.
    alone: Expr | None = None
    #: A tensor that is written may overlap another one: reads stay in front of the stores behind them.
    in_order: bool = False
    #: The stores that are written together, as one of wider elements.
    sharings: dict[Store, Together] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Lanes of the current loop, 1 outside of vectorised loops."""
        return self.lanes.width if self.lanes is not None else 1

    # ---- statements ----

    def loop(
        self, var: Var, start: Expr, extent: Expr, body: tirx.Stmt, kind: int = SERIAL, **annotations: bool
    ) -> tirx.Stmt:
        """A loop over ``extent`` values of ``var`` from ``start``, all of them TIR.

        A start known at run time alone is added to a counter: LLVM code generation simplifies start + extent
        with the values of bindings in place of their names, elements that have changed since among them. What
        it reads itself is read once, before the first trip."""
        if self.rolled:
            self.functions["tilec_once"] = ONCE
            body = once(body)
        known = int_value(start)
        if known == 0 or None not in (known, int_value(extent)):
            return tirx.For(var, start, extent, kind, body, annotations=annotations or None)
        if next(loads(start), None) is not None:
            first = self.fresh(f"{var.name}_first", dtype_of(start))
            return tirx.SeqStmt(
                [tirx.Bind(first, start), self.loop(var, first, extent, body, kind, **annotations)]
            )
        counter = self.fresh(f"{var.name}_step", dtype_of(var))
        steps = tirx.SeqStmt([tirx.Bind(var, start + counter), body])
        zero = tirx.const(0, dtype_of(var))
        return tirx.For(counter, zero, extent, kind, steps, annotations=annotations or None)

    # ---- values ----

    def variable(self, var: Var) -> Expr:
        """What a variable stands for; that of the lanes is a ramp."""
        lanes = self.lanes
        if lanes is not None and var.same_as(lanes.var):
            return tirx.Ramp(lanes.base, tirx.const(1, dtype_of(var)), lanes.width)
        return super().variable(var)

    def control_value(self, expr: Expr, what: str, remedy: str) -> Expr:
        """The value of an expression that decides where control goes, the same in all lanes."""
        value = self.value(expr)
        if lanes_of(value) > 1:
            raise NotVectorisable(f"the {what} differ between lanes", remedy)
        return value

    def is_number(self, expr: Expr) -> bool:
        """Whether an operand of max or min is known not to be NaN."""
        return expr.source in self.numbers if isinstance(expr, TensorLoad) else super().is_number(expr)

    def number_of(self, kind: type, left: Expr, right: Expr) -> Expr:
        """The maximum or minimum of two floats of which either may be NaN: then the other one."""
        found = number_of(kind, left, right, self.target)
        return super().number_of(kind, left, right) if found is None else found

    def combined(self, kind: type, left: Expr, right: Expr) -> Expr:
        """An operation on two values; unsigned ones wrap around."""
        made = kind(left, right)
        if not leaves_type(kind, scalar_dtype(left)) or stays_inside(made, self.facts.analyzer):
            return made
        return wrapping(kind, left, right, self.functions)

    def wrapping(self, kind: type, left: Expr, right: Expr) -> Expr:
        """A sum, a difference or a product of signed values that wraps around."""
        return wrapping(kind, left, right, self.functions)

    def taken_in(self, total: Accumulation, old: Expr, new: Expr) -> Expr:
        """`Accumulation.combined` of parts that the author's code does not have; sums of integers wrap
        around, whatever the order."""
        if total.kind == "sum" and scalar_dtype(old) in WRAPPING:
            return self.wrapping(tirx.Add, old, new)
        return total.combined(old, new)

    def foreign(self, name: str, returns: str, args: list[Expr], source: str) -> Expr:
        """A call of a function of imported source, one element at a time."""
        if self.lanes is not None:
            raise NotVectorisable(
                f"the foreign function {name} takes one element at a time", "write it in the tile language"
            )
        if not source:
            raise UnsupportedError(
                f"the foreign function {name} has no CPU code",
                why="no source of it is imported",
                remedy="give its C source to T.import_source, or give the kernel CUDA targets alone",
            )
        kind = "int32" if returns == "void" else compute_type(returns)
        return tirx.call_extern(kind, name, *(self.value(arg) for arg in args))

    def named(self, name: str, dtype: str, args: list[Expr]) -> Expr | None:
        """A call of a function of the language by its name; None for another name."""
        return named_call(name, args)

    def decode(self, raw: Expr, dtype: str) -> Expr:
        """The compute value of stored elements."""
        if dtype == "float16" and not self.target.has_half_conversions:
            return decode_half(raw)
        if lanes_of(raw) > 1 and lanes_of(raw) == at_once(self.target, dtype):
            return look_up(raw, dtype, self.functions)
        by_half = dtype in FLOAT8_TYPES and self.target.has_half_conversions
        return decode_by_half(raw, dtype) if by_half else super().decode(raw, dtype)

    def encode(self, value: Expr, dtype: str) -> Expr:
        """Stored elements of compute values."""
        if dtype == "float16" and not self.target.has_half_conversions:
            return encode_half(value)
        rounds = dtype == "bfloat16" and self.target.has("avx512bf16")
        bits = nearest_bfloat16(value, self.functions) if rounds else None
        return super().encode(value, dtype) if bits is None else bits

    def rounded(self, value: Expr, dtype: str) -> Expr:
        """A compute value cast to ``dtype``."""
        if dtype in ("float16", "bfloat16"):
            return self.decode(self.encode(value, dtype), dtype)
        return super().rounded(value, dtype)

    # ---- memory ----

    def stored(self, expr: Expr, dtype: str) -> Expr:
        """What memory would hold of the value of an expression; of an element what it does hold."""
        if isinstance(expr, TensorLoad):
            return load_element(expr, self, raw=True)
        return super().stored(expr, dtype)

    def encode_in(self, buffer: Var, value: Expr) -> Expr:
        """What memory of ``buffer`` holds of compute values."""
        bits = rounded_operand(value, self.functions) if buffer in self.operands else None
        return self.encode(value, self.storage(buffer).dtype) if bits is None else bits

    def bounds(self, buffer: Var, conds: list[Expr]) -> Expr:
        """The run-time test of open bounds, the same for all lanes."""
        self.record(conds)
        test = super().bounds(buffer, conds)
        if lanes_of(test) > 1:
            raise NotVectorisable(
                f"the bounds of {buffer.name} differ between lanes", "test them once, in front of the loop"
            )
        return test

    # ---- dry runs ----

    def recording(self) -> LaneContext:
        """A context for a dry run that collects open bounds; `recorder` of it is the result."""
        return replace(
            self,
            recorder=[],
            choices=[],
            roads=[],
            lanes=None,
            env=dict(self.env),
            storages=dict(self.storages),
        )

    def record(self, conds: Iterable[Expr]) -> None:
        """In a dry run, keeps those of ``conds`` that are not decided."""
        if self.recorder is not None:
            self.recorder.extend(cond for cond in conds if self.facts.prove(cond) is None)

    def take(
        self, what: Stmt | Block, kind: str, instruction: str, loss: Loss | None = None, product: str = ""
    ) -> None:
        """Says which road a statement, or a block of them, takes; nothing in a dry run."""
        if self.recorder is None:
            super().take(what, kind, instruction, loss, product)

    # ---- scopes ----

    @contextmanager
    def lane_scope(self, lanes: Lanes | None) -> Iterator[None]:
        """Within the context the loop over ``lanes`` is being emitted."""
        before, self.lanes = self.lanes, lanes
        try:
            yield
        finally:
            self.lanes = before

    @contextmanager
    def mask_scope(self, mask: Expr) -> Iterator[None]:
        """Within the context stores happen only in lanes where ``mask`` holds, too."""
        before = self.mask
        self.mask = mask if before is None else tirx.And(before, mask)
        try:
            yield
        finally:
            self.mask = before

    @contextmanager
    def first_scope(self, count: Expr) -> Iterator[None]:
        """Within the context the first ``count`` lanes alone touch memory."""
        self.first = count
        try:
            yield
        finally:
            self.first = None

    @contextmanager
    def ends_scope(self) -> Iterator[None]:
        """Within the context vectors may have ends, where their first lanes alone touch memory."""
        self.ends = True
        try:
            yield
        finally:
            self.ends = False

    @contextmanager
    def rolled_scope(self, rolled: bool) -> Iterator[None]:
        """Within the context loops stay loops, if they are to be ``rolled``."""
        before, self.rolled = self.rolled, rolled
        try:
            yield
        finally:
            self.rolled = before

    @contextmanager
    def move_scope(self, moving: bool, light: bool) -> Iterator[None]:
        """Within the context elements are stored as they are, if they are ``moving``, or nearly so."""
        self.moving, self.light = moving, light
        try:
            yield
        finally:
            self.moving = self.light = False

    @contextmanager
    def stream_scope(self, stores: frozenset[Store]) -> Iterator[None]:
        """Within the context these stores pass the caches by."""
        self.streaming = stores
        try:
            yield
        finally:
            self.streaming = frozenset()

    @contextmanager
    def multiples_scope(self, found: Iterable[Expr], of: int) -> Iterator[None]:
        """Within the context these expressions are multiples of a number."""
        before = self.multiples
        self.multiples = (*before, *((expr, of) for expr in found))
        try:
            yield
        finally:
            self.multiples = before

    @contextmanager
    def updates_scope(self, alone: Expr | None) -> Iterator[None]:
        """Within the context nothing else updates tensors, or others may."""
        before, self.alone = self.alone, alone
        try:
            yield
        finally:
            self.alone = before

    @contextmanager
    def sharing_scope(self, found: Mapping[Store, Together]) -> Iterator[None]:
        """Within the context these stores are written together, too."""
        before = self.sharings
        self.sharings = {**before, **found} if found else before
        try:
            yield
        finally:
            self.sharings = before

    @contextmanager
    def accumulate_scope(self, accumulators: Mapping[Store, Partial]) -> Iterator[None]:
        """Within the context stores go to these accumulators, too."""
        before = self.accumulators
        self.accumulators = {**before, **accumulators} if accumulators else before
        try:
            yield
        finally:
            self.accumulators = before
