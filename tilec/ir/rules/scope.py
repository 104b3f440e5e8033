"""What the verifier knows at a statement: names and enclosing loops; the rules of expressions and regions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

from tilec.errors import IRError, Place
from tilec.ir import nodes as ir
from tilec.ir.exprs import dtype_of, int_value, operands, scalar_dtype
from tilec.ir.nodes import is_global
from tilec.ir.text.expr_printer import format_expr
from tilec.spelling import counted

_BROKEN = "a pass or the frontend broke a rule of the tile IR"


class OutOfScope(IRError):
    """An expression with the name ``name`` stands outside of the region that defines it."""

    def __init__(self, what: str, name: str = "", **parts: Any) -> None:
        super().__init__(what, **parts)
        self.name = name


class Scope:
    """Names, loops and the statement at hand; `block` is what the verifier of statements adds."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self.defined: set[Var] = set()
        self.loops: list[type[ir.Stmt]] = []
        self.current: ir.Stmt | None = None

    def fail(self, what: str) -> IRError:
        """The error for the statement at hand."""
        return IRError(what, place=self._place_at_hand(), why=_BROKEN)

    def _place_at_hand(self) -> Place:
        loc = self.current.loc if self.current is not None else None
        key = f"kernel {self._kernel}"
        return Place(key=key) if loc is None else Place(loc.file, loc.line, key, loc.columns)

    def need(self, holds: bool, what: str) -> None:
        """Raises ``what`` unless it holds."""
        if not holds:
            raise self.fail(what)

    def define(self, variables: Iterable[Var]) -> None:
        """New names of the region at hand."""
        for var in variables:
            if var in self.defined:
                raise self.fail(f"{var.name} is defined twice")
            self.defined.add(var)

    def inside(self, variables: Iterable[Var], body: ir.Block, kind: type[ir.Stmt] | None = None) -> None:
        """A block with names of its own."""
        outer = set(self.defined)
        self.define(variables)
        if kind is not None:
            self.loops.append(kind)
        self.block(body)
        if kind is not None:
            self.loops.pop()
        self.defined = outer

    def expr(self, expr: Expr) -> None:
        """Names are defined, loads have the rank of their buffer and integer indices."""
        kind = type(expr)  # no isinstance: TVM's classes are abstract ones, which it asks slowly
        if kind is Var:
            if expr not in self.defined:
                what = f"{expr.name} is used before or outside of its definition"
                raise OutOfScope(what, expr.name, place=self._place_at_hand(), why=_BROKEN)
            return
        if kind is tirx.Let:
            self.expr(expr.value)
            self.defined.add(expr.var)
            self.expr(expr.body)
            self.defined.discard(expr.var)
            return
        if kind is TensorLoad:
            self.access(expr.source, operands(expr))
            return
        for part in operands(expr):
            self.expr(part)

    def access(self, buffer: Var, indices: Sequence[Expr]) -> None:
        """One element of a buffer."""
        if buffer not in self.defined:
            raise self.fail(f"{buffer.name} is used before or outside of its allocation")
        rank = len(buffer.shape)
        if len(indices) != rank:
            raise self.fail(f"{buffer.name} has rank {rank}, got {counted(len(indices), 'index', 'indices')}")
        for index in indices:
            self.index(index)

    def index(self, value: Expr | int) -> None:
        """An integer expression."""
        if isinstance(value, int):
            return
        if not scalar_dtype(value).startswith(("int", "uint")):
            raise self.fail(f"{format_expr(value)} is no integer: {dtype_of(value)}")
        self.expr(value)

    def condition(self, cond: Expr) -> None:
        """A bool expression."""
        if dtype_of(cond) != "bool":
            raise self.fail(f"{format_expr(cond)} is no condition: {dtype_of(cond)}")
        self.expr(cond)

    def value(self, value: Expr, dtype: str, where: str) -> None:
        """An expression of a given dtype (any lanes)."""
        found = scalar_dtype(value)
        if found != dtype:
            raise self.fail(f"{where} is {dtype}, its value {format_expr(value)} is {found}")
        self.expr(value)

    def region(self, region: ir.Region) -> None:
        """Rank, integer bounds, and constant bounds inside on-chip tiles."""
        self.access(region.buffer, region.start)
        name, shape = region.buffer.name, region.buffer.shape
        self.need(len(region.extent) == len(shape), f"a region of {name} has {len(region.extent)} extents")
        for extent in region.extent:
            self.index(extent)
        if is_global(region.buffer):
            return
        for axis, (start, extent, size) in enumerate(zip(region.start, region.extent, shape, strict=True)):
            low, count, bound = int_value(start), int_value(extent), int_value(size)
            if low is None or count is None or bound is None:
                continue
            inside = low >= 0 and low + count <= bound
            self.need(inside, f"axis {axis} of {name}: [{low}, {low + count}) lies outside of [0, {bound})")

    def block(self, body: ir.Block) -> None:
        """The statements of a block."""
        raise NotImplementedError
