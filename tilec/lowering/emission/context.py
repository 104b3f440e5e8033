"""What emission carries along on every target: facts, variables, buffers, the roads taken."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from tvm import tirx

from tilec.errors import CompileError, UnsupportedError
from tilec.ir.exprs import all_of, dtype_of
from tilec.ir.nodes import Assume
from tilec.lowering.analysis.places import located
from tilec.lowering.analysis.roads import in_line_of, road_of
from tilec.lowering.emission.access import load_element
from tilec.lowering.emission.statements import sequence
from tilec.lowering.emission.storage import Storage, compute_type, convert, decode, encode, is_nan, rounded
from tilec.lowering.emission.values import lazy_choice, lower_value
from tilec.lowering.math.vectors import Vectors, lanes_of, with_lanes, without_range

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.ir.nodes import Block, Stmt
    from tilec.ir.roads import Loss, Road
    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target


SERIAL = tirx.ForKind.SERIAL


@dataclass(eq=False)
class Context(ABC):
    """State of the emission of one launch, of which every family of targets has a child.

    ``env`` maps variables of the tile IR to TIR expressions and ``storages`` buffers to memory. ``roads`` are
    those that statements take, ``current`` is the innermost statement at hand with a line. ``processor`` is
    what errors call the family."""

    processor: ClassVar[str]

    target: Target
    facts: Facts
    env: dict[Var, Expr] = field(default_factory=dict)
    storages: dict[Var, Storage] = field(default_factory=dict)
    roads: list[Road] = field(default_factory=list)
    current: Stmt | None = None
    _names: dict[str, int] = field(default_factory=dict)

    # ---- what each family decides ----

    @abstractmethod
    def emit(self, stmt: Stmt) -> tirx.Stmt | None:
        """The TIR of one statement; None where nothing is left to do."""

    @abstractmethod
    def loop(
        self, var: Var, start: Expr, extent: Expr, body: tirx.Stmt, kind: int = SERIAL, **annotations: bool
    ) -> tirx.Stmt:
        """A loop over ``extent`` values of ``var`` from ``start``, all of them TIR."""

    @abstractmethod
    def combined(self, kind: type, left: Expr, right: Expr) -> Expr:
        """An operation on two values; unsigned ones wrap around."""

    @contextmanager
    def folding(self) -> Iterator[None]:
        """Around operands of a comparison, or of another operation, of which compilers conclude something."""
        yield

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Around a value that gets a name or a register, of which compilers conclude something later."""
        yield

    def wraps(self, expr: Expr) -> bool:
        """Whether a sum, a difference or a product needs `wrapping`: one of data that may leave its type."""
        return self.facts.wraps_around(expr)

    @abstractmethod
    def wrapping(self, kind: type, left: Expr, right: Expr) -> Expr:
        """A sum, a difference or a product of signed values that wraps around."""

    @abstractmethod
    def foreign(self, name: str, returns: str, args: list[Expr], source: str) -> Expr:
        """A call of a function of imported source."""

    @abstractmethod
    def named(self, name: str, dtype: str, args: list[Expr]) -> Expr | None:
        """A call of a function of the language by its name; None for another name."""

    # ---- statements ----

    def block(self, stmts: Block) -> tirx.Stmt | None:
        """The TIR of a block; what it defines and assumes ends with it."""
        with self.scope():
            return sequence(self._from(stmts, 0))

    def _from(self, block: Block, start: int) -> list[tirx.Stmt]:
        parts: list[tirx.Stmt] = []
        for position in range(start, len(block)):
            stmt = block[position]
            if isinstance(stmt, Assume):
                with self.facts.remember(stmt.cond):
                    return parts + self._from(block, position + 1)
            with located(stmt), self.at(stmt):
                part = self.emit(stmt)
            parts += [part] if part is not None else []
        return parts

    @contextmanager
    def at(self, stmt: Stmt) -> Iterator[None]:
        """Within the context ``stmt`` is being emitted."""
        before, self.current = self.current, self.current if stmt.loc is None else stmt
        try:
            yield
        finally:
            self.current = before

    def bind(self, var: Var, value: Expr) -> tirx.Stmt:
        """Gives a TIR value the name of ``var``."""
        return tirx.Bind(self.define(var, value), without_range(value))

    def computed_once(self, value: Expr) -> Expr:
        """A value that is about to get a name: what a family's tools would compute again at each use of the
        name is wrapped into something that they leave alone."""
        return value

    def take(
        self, what: Stmt | Block, kind: str, instruction: str, loss: Loss | None = None, product: str = ""
    ) -> None:
        """Says which road a statement, or a block of them, takes; once. ``product`` as in `Road`."""
        road = replace(road_of(what, kind, instruction, loss), product=product)
        road = road if self.current is None else in_line_of(road, self.current)
        if road not in self.roads:
            self.roads.append(road)

    # ---- values ----

    def value(self, expr: Expr) -> Expr:
        """The TIR expression that computes ``expr`` (its compute type)."""
        return lower_value(expr, self)

    def variable(self, var: Var) -> Expr:
        """What a variable stands for."""
        return self.env.get(var, var)

    def control_value(self, expr: Expr, what: str, remedy: str) -> Expr:
        """The value of an expression that decides where control goes: of ``what``, in a word. A family whose
        values may differ between lanes refuses that, and advises a ``remedy``."""
        return self.value(expr)

    def unrounded(self, value: Expr, dtype: str) -> Expr:
        """The compute value of an expression that is about to be stored as ``dtype``, which rounds anyway."""
        if not isinstance(value, tirx.Cast) or dtype not in ("float16", "bfloat16"):
            return self.value(value)
        rounds = (dtype_of(value), dtype_of(value.value)) == (dtype, "float32")
        return self.value(value.value if rounds else value)

    def as_float(self, expr: Expr, value: Expr) -> Expr:
        """``value``, that of an expression, as float32."""
        return convert(value, "float32")

    def choice(self, cond: Expr, true: Expr, false: Expr) -> Expr:
        """A choice at run time that evaluates only the side that is taken."""
        return lazy_choice(cond, self.value(cond), true, false, self)

    def is_number(self, expr: Expr) -> bool:
        """Whether an operand of max or min is known not to be NaN, or NaN gives way to numbers anyway."""
        return isinstance(expr, tirx.FloatImm) and not math.isnan(float(expr.value))

    def number_of(self, kind: type, left: Expr, right: Expr) -> Expr:
        """The maximum or minimum of two floats of which either may be NaN: then the other one."""
        v = Vectors(right)
        left, right = v.name(left), v.name(right)
        return v.close(tirx.Select(is_nan(right), left, kind(left, right)))

    def faster(self, expr: Expr) -> Expr | None:
        """The value of an operation where a family has a faster way to it than operand by operand."""
        return None

    def function(self, name: str, args: list[Expr]) -> Expr | None:
        """The value of a function of TIR where a family has a faster way to it."""
        return None

    def inverted(self, value: Expr) -> Expr:
        """``~value``."""
        return tirx.BitwiseNot(value)

    def decode(self, raw: Expr, dtype: str) -> Expr:
        """The compute value of stored elements."""
        return decode(raw, dtype)

    def encode(self, value: Expr, dtype: str) -> Expr:
        """Stored elements of compute values."""
        return encode(value, dtype)

    def stored(self, expr: Expr, dtype: str) -> Expr:
        """What memory would hold of the value of an expression."""
        return self.encode(self.value(expr), dtype)

    def rounded(self, value: Expr, dtype: str) -> Expr:
        """A compute value cast to ``dtype``."""
        return rounded(value, dtype)

    # ---- memory ----

    def storage(self, buffer: Var) -> Storage:
        """The memory of ``buffer``."""
        if buffer not in self.storages:
            raise CompileError(f"buffer {buffer.name} has no memory here", why="it is used outside its scope")
        return self.storages[buffer]

    def load(self, expr: TensorLoad) -> Expr:
        """The value of an element of a buffer: 0 outside of it."""
        return load_element(expr, self)

    def offset(self, storage: Storage, indices: Sequence[Expr]) -> Expr:
        """Where an element lies in ``storage.data``."""
        return storage.offset([self.value(index) for index in indices])

    def read(self, storage: Storage, indices: Sequence[Expr]) -> Expr:
        """What memory holds of elements that exist."""
        return tirx.BufferLoad(storage.data, [self.offset(storage, indices)])

    def read_existing(self, storage: Storage, indices: Sequence[Expr], conds: list[Expr]) -> Expr | None:
        """What memory holds of elements where ``conds`` hold, zero elsewhere; None where a test in front does
        as well."""
        return None

    def bounds(self, buffer: Var, conds: list[Expr]) -> Expr:
        """The run-time test that an element of ``buffer`` exists: that all of ``conds`` hold."""
        return self.value(all_of(conds))

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

    # ---- names ----

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

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Variables and buffers defined inside end with the context."""
        env, storages = self.env, self.storages
        self.env, self.storages = dict(env), dict(storages)
        try:
            yield
        finally:
            self.env, self.storages = env, storages
