"""Which form each statement and each value of CPU code takes: one of lanes, else that of all families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.context import LaneContext
from tilec.backends.cpu.emit.numbers.never_nan import stays_number
from tilec.backends.cpu.emit.numbers.operands import is_operand
from tilec.backends.cpu.emit.statements import emit, hold
from tilec.backends.cpu.emit.vectors.access import flat_index, read_existing, read_first
from tilec.backends.cpu.emit.vectors.aligned import aligned_value
from tilec.backends.cpu.emit.vectors.byte_numbers import byte_numbers
from tilec.backends.cpu.emit.vectors.byte_products import byte_products
from tilec.backends.cpu.emit.vectors.digits import digits
from tilec.backends.cpu.emit.vectors.first_lanes import are_first
from tilec.backends.cpu.emit.vectors.joined_bytes import joined_bytes
from tilec.backends.cpu.emit.vectors.pieces import read_pieces
from tilec.backends.cpu.emit.vectors.shared_out import sharings
from tilec.backends.cpu.emit.vectors.small_tables import with_tables
from tilec.backends.cpu.emit.vectors.speculate import is_speculable
from tilec.backends.cpu.emit.vectors.word_products import with_word_products
from tilec.ir.exprs import all_of, conjuncts
from tilec.ir.nodes import Alloc
from tilec.lowering.emission.values import blend, lazy_choice, pair
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block, Stmt
    from tilec.lowering.emission.storage import Storage


@dataclass(eq=False)
class LaneEmitter(LaneContext):
    """The context that has the forms at hand; these know it as a `LaneContext`."""

    # ---- statements ----

    def emit(self, stmt: Stmt) -> tirx.Stmt | None:
        """The TIR of one statement; None where nothing is left to do."""
        return emit(stmt, self)

    def block(self, stmts: Block) -> tirx.Stmt | None:
        """The TIR of a block; knows which of its variables are never NaN, and which tiles are operands."""
        rounds = self.target.has("avx512bf16")
        for position, stmt in enumerate(stmts):
            if not isinstance(stmt, Alloc):
                continue
            behind = stmts[position + 1 :]
            if stays_number(stmt, behind):
                self.numbers.add(stmt.buffer)
            if rounds and is_operand(stmt, behind):
                self.operands.add(stmt.buffer)
        with self.sharing_scope(sharings(stmts, self)):
            return super().block(stmts)

    def bind(self, var: Var, value: Expr) -> tirx.Stmt:
        """Gives a TIR value the name of ``var``."""
        return hold(var, value, self) if lanes_of(value) > 1 else super().bind(var, value)

    # ---- values ----

    def value(self, expr: Expr) -> Expr:
        """The TIR of ``expr``; what lanes compute of four bits they look up."""
        return super().value(with_tables(with_word_products(expr, self), self))

    def choice(self, cond: Expr, true: Expr, false: Expr) -> Expr:
        """A choice at run time: both sides where lanes may choose for themselves."""
        condition = self.value(cond)
        chooses = self.lanes is not None or self.recorder is not None
        if chooses and is_speculable([true, false], self):
            self.choices.append(cond)
            return blend(condition, *pair(true, false, self))
        if lanes_of(condition) > 1:  # what a lane reads in vain is tested for by itself
            return blend(condition, *pair(true, false, self))
        self.record(conjuncts(cond))
        return lazy_choice(cond, condition, true, false, self)

    def faster(self, expr: Expr) -> Expr | None:
        """A quotient or remainder of lanes as that of the first one and numbers, where these are known; a sum
        of products of bytes as one of words; numbers of two bytes as read at once, those of a byte's bits as
        bytes."""
        if isinstance(expr, (tirx.FloorDiv, tirx.FloorMod)):
            found = digits(expr, self)
            return aligned_value(expr, self) if found is None else found
        if isinstance(expr, tirx.BitwiseOr):
            return joined_bytes(expr, self)
        if isinstance(expr, tirx.BitwiseAnd):
            return byte_numbers(expr, self)
        return byte_products(expr, self) if isinstance(expr, tirx.Add) else None

    # ---- memory ----

    def offset(self, storage: Storage, indices: Sequence[Expr]) -> Expr:
        """Where elements lie in ``storage.data``: a scalar, a ramp along the lanes, or one index per lane."""
        return flat_index(storage, indices, self)

    def read(self, storage: Storage, indices: Sequence[Expr]) -> Expr:
        """What memory holds of elements: of neighbours in another order, vectors that change places."""
        if self.first is not None:
            return read_first(storage, indices, self.first, self)
        pieces = read_pieces(storage, indices, self)
        return super().read(storage, indices) if pieces is None else pieces

    def read_existing(self, storage: Storage, indices: Sequence[Expr], conds: list[Expr]) -> Expr | None:
        """What lanes read, each where there is something."""
        if self.lanes is None:
            return None
        exists = self.value(all_of(conds))
        if lanes_of(exists) == 1:
            return None
        if self.first is not None:
            exists = tirx.And(exists, are_first(self.first, lanes_of(exists)))
        return read_existing(storage, indices, exists, self)
