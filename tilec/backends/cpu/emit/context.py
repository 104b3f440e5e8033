"""What emission carries along: facts, variables, buffers, the current lanes and the roads taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.wrapping import may_wrap, wrapping
from tilec.errors import CompileError, UnsupportedError
from tilec.ir.analysis.ranges import stays_inside
from tilec.lowering.analysis.facts import Facts
from tilec.lowering.emission.storage import (
    Storage,
    compute_type,
    decode,
    encode,
    lanes_of,
    rounded,
    with_lanes,
)
from tilec.lowering.exprs import dtype_of, scalar_dtype

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.backends.cpu.emit.accumulate import Accumulator
    from tilec.ir.nodes import Block, Stmt
    from tilec.ir.roads import Loss, Road
    from tilec.targets import Target


class NotVectorisable(Exception):
    """A loop body that has no vector form; the text is the reason, ``remedy`` what to change."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy or "give iterations the same control flow, and elements of their own"


@dataclass(frozen=True, eq=False)
class Lanes:
    """The loop variable that runs over vector lanes: ``var`` is ``base`` + 0, 1, ..., ``width`` - 1."""

    var: Var
    base: Expr
    width: int


@dataclass(eq=False)
class Context:
    """State of the emission of one launch.

    ``env`` maps variables of the tile IR to TIR expressions and ``storages`` buffers to memory. ``lanes`` is
    set inside a vectorised loop, ``mask`` where only some lanes take part, ``slot`` counts the vectors of one
    trip. ``scratch`` points to the worker's scratch. While ``recorder`` is set nothing that is emitted is
    kept: bounds that remain open are collected there. ``accumulators`` holds what the stores named by ``id``
    accumulate into, ``numbers`` the variables that are never NaN, ``functions`` the LLVM text of functions
    that the code calls, by their names. ``extremes_are_numbers``: the target's max and min give the operand
    that is a number. ``roads`` are those that statements take, ``current`` is the innermost statement at hand
    with a line."""

    target: Target
    facts: Facts
    env: dict[Var, Expr] = field(default_factory=dict)
    storages: dict[Var, Storage] = field(default_factory=dict)
    roads: list[Road] = field(default_factory=list)
    current: Stmt | None = None
    lanes: Lanes | None = None
    mask: Expr | None = None
    scratch: Expr | None = None
    recorder: list[Expr] | None = None
    accumulators: dict[int, Accumulator] = field(default_factory=dict)
    numbers: set[Var] = field(default_factory=set)
    functions: dict[str, str] = field(default_factory=dict)
    slot: int = 0
    extremes_are_numbers: bool = False
    _names: dict[str, int] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Lanes of the current loop, 1 outside of vectorised loops."""
        return self.lanes.width if self.lanes is not None else 1

    def take(self, what: Stmt | Block, kind: str, instruction: str, loss: Loss | None = None) -> None:
        """Says which road a statement, or a block of them, takes; once."""
        from tilec.lowering.analysis.roads import located, road_of

        if self.recorder is not None:
            return
        road = road_of(what, kind, instruction, loss)
        road = road if self.current is None else located(road, self.current)
        if road not in self.roads:
            self.roads.append(road)

    @contextmanager
    def at(self, stmt: Stmt) -> Iterator[None]:
        """Within the context ``stmt`` is being emitted."""
        before, self.current = self.current, self.current if stmt.loc is None else stmt
        try:
            yield
        finally:
            self.current = before

    def record(self, conds: Iterable[Expr]) -> None:
        """In a dry run, keeps those of ``conds`` that are not decided."""
        if self.recorder is not None:
            self.recorder.extend(cond for cond in conds if self.facts.prove(cond) is None)

    def fresh(self, name: str, dtype: str) -> Var:
        """A new TIR variable with a name not used before in this launch."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return tirx.Var(f"{name}_{count}" if count else name, dtype)

    def define(self, var: Var, value: Expr | None = None) -> Var:
        """A TIR variable for ``var``, as wide as ``value`` where one is given; later uses refer to it."""
        lanes = lanes_of(value) if value is not None else 1
        new = self.fresh(var.name, with_lanes(compute_type(dtype_of(var)), lanes))
        self.env[var] = new
        return new

    def storage(self, buffer: Var) -> Storage:
        """The memory of ``buffer``."""
        if buffer not in self.storages:
            raise CompileError(f"buffer {buffer.name} has no memory here", why="it is used outside its scope")
        return self.storages[buffer]

    def address(self, buffer: Var, indices: list[Expr]) -> tuple[Var, Expr]:
        """The flat TIR buffer and the index in it of one element; ``indices`` are tile IR expressions free of
        lanes. No bounds are checked."""
        storage = self.storage(buffer)
        return storage.data, storage.offset([self.value(index) for index in indices])

    def value(self, expr: Expr) -> Expr:
        """The TIR expression that computes ``expr`` (its compute type, one value per lane)."""
        from tilec.lowering.emission.values import lower_value

        return lower_value(expr, self)

    def combined(self, kind: type, left: Expr, right: Expr) -> Expr:
        """An operation on two values; unsigned ones wrap around."""
        made = kind(left, right)
        if not may_wrap(kind, scalar_dtype(left)) or stays_inside(made, self.facts.analyzer):
            return made
        return wrapping(kind, left, right, self.functions)

    def inverted(self, value: Expr) -> Expr:
        """``~value``."""
        return tirx.BitwiseNot(value)

    def decode(self, raw: Expr, dtype: str) -> Expr:
        """The compute value of stored elements."""
        return decode(raw, dtype)

    def encode(self, value: Expr, dtype: str) -> Expr:
        """Stored elements of compute values."""
        return encode(value, dtype)

    def rounded(self, value: Expr, dtype: str) -> Expr:
        """A compute value cast to ``dtype``."""
        return rounded(value, dtype)

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

    def pointer(self, element: TensorLoad) -> Expr:
        """The address of an element."""
        storage = self.storage(element.source)
        if storage.layout is not None and storage.layout.swizzle is not None:
            raise UnsupportedError(
                f"a foreign function cannot read {element.source.name}",
                why="its elements are swizzled, as products want them",
                remedy="copy it to a shared tile that no product uses",
            )
        place = storage.offset([self.value(index) for index in element.indices])
        return tirx.address_of(tirx.BufferLoad(storage.data, [place]))

    def named(self, name: str, dtype: str, args: list[Expr]) -> Expr | None:
        """A call of a function of the language by its name; None for another name."""
        from tilec.backends.cpu.emit.named import named_call

        return named_call(name, args)

    def load(self, expr: TensorLoad) -> Expr:
        """The value of an element of a buffer: 0 outside of it."""
        from tilec.lowering.emission.access import load_element

        return load_element(expr, self)

    def block(self, stmts: tuple[Stmt, ...]) -> tirx.Stmt | None:
        """The TIR of a block; None where nothing is left to do."""
        from tilec.backends.cpu.emit.statements import emit_block

        return emit_block(stmts, self)

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
    def accumulate_scope(self, accumulators: dict[int, Accumulator]) -> Iterator[None]:
        """Within the context stores go to these accumulators, too."""
        before = self.accumulators
        self.accumulators = {**before, **accumulators}
        try:
            yield
        finally:
            self.accumulators = before

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Variables and buffers defined inside end with the context."""
        env, storages = self.env, self.storages
        self.env, self.storages = dict(env), dict(storages)
        try:
            yield
        finally:
            self.env, self.storages = env, storages

    def recording(self) -> Context:
        """A context for a dry run that collects open bounds; `recorder` of it is the result."""
        return replace(
            self, recorder=[], roads=[], lanes=None, env=dict(self.env), storages=dict(self.storages)
        )
