"""Statements of TIR as C: the bodies of functions in what `file` puts together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tvm import tirx

from tilec.backends.cpu.c_source.expressions import Expressions, pointer_type
from tilec.backends.cpu.c_source.types import c_type
from tilec.errors import UnsupportedError
from tilec.ir.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr

_STEP = "  "


class Statements:
    """Writes statements, a line at a time."""

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self._text, self._bare, self._names = expressions.text, expressions.bare, expressions.names

    def lines(self, stmt: Any) -> Iterator[str]:
        """The lines of a statement, indented against the first."""
        writer = _WRITERS.get(type(stmt))
        if writer is None:
            raise UnsupportedError(f"there is no C for {type(stmt).__name__}")
        yield from writer(self, stmt)

    def _inside(self, stmt: Any) -> Iterator[str]:
        return (_STEP + line for line in self.lines(stmt))

    def _sequence(self, stmt: Any) -> Iterator[str]:
        for part in stmt.seq:
            yield from self.lines(part)

    def _for(self, loop: Any) -> Iterator[str]:
        start, extent = loop.min, loop.extent
        if getattr(extent, "value", None) == 0:
            return
        name, kind = self._names.of(loop.loop_var), c_type(dtype_of(loop.loop_var))
        stop = self._bare(extent) if _is_zero(start) else f"{self._text(start)} + {self._text(extent)}"
        step = 1 if loop.step is None else int(loop.step.value)
        forward = f"{name}++" if step == 1 else f"{name} += {step}"
        yield f"for ({kind.name} {name} = {self._bare(start)}; {name} < {stop}; {forward}) {{"
        yield from self._inside(loop.body)
        yield "}"

    def _while(self, stmt: Any) -> Iterator[str]:
        yield f"while ({self._bare(stmt.condition)}) {{"
        yield from self._inside(stmt.body)
        yield "}"

    def _if(self, stmt: Any) -> Iterator[str]:
        yield f"if ({self._bare(stmt.condition)}) {{"
        yield from self._inside(stmt.then_case)
        if stmt.else_case is not None:
            yield "} else {"
            yield from self._inside(stmt.else_case)
        yield "}"

    def _bind(self, stmt: Any) -> Iterator[str]:
        name = self._names.of(stmt.var)
        if hasattr(stmt.var.ty, "element_type"):
            yield f"{pointer_type(stmt.var)}const {name} = {self._bare(stmt.value)};"
        else:
            kind = self.expressions.type(stmt.var)
            yield f"const {kind.name} {name} = {self._bare(stmt.value)};"

    def _store(self, stmt: Any) -> Iterator[str]:
        name, (index,) = self._names.of(stmt.buffer), stmt.indices
        kind, helpers = self.expressions.type(stmt.value), self.expressions.helpers
        value = self._bare(stmt.value)
        if not kind.is_vector:
            yield f"{name}[{self._bare(index)}] = {value};"
        elif isinstance(index, tirx.Ramp) and getattr(index.stride, "value", None) == 1:
            yield f"{helpers.store(kind)}({self.expressions.place(name, index.base)}, {value});"
        else:
            function = helpers.scatter(kind, self.expressions.type(index))
            yield f"{function}({name}, {self._bare(index)}, {value});"

    def _alloc(self, stmt: Any) -> Iterator[str]:
        buffer = stmt.buffer
        count = math.prod(int(extent) for extent in buffer.shape)
        element = c_type(str(buffer.dtype))
        name = self._names.of(buffer)
        yield f"{self.expressions.helpers.type(element)} {name}[{count}] __attribute__((aligned(64)));"

    def _declare(self, stmt: Any) -> Iterator[str]:
        name, element = self._names.of(stmt.buffer), c_type(str(stmt.buffer.dtype))
        yield f"{element.name} *const {name} = ({element.name} *){self._text(stmt.data)};"

    def _evaluate(self, stmt: Any) -> Iterator[str]:
        if not isinstance(stmt.value, tirx.IntImm):
            yield f"{self._bare(stmt.value)};"

    def _attribute(self, stmt: Any) -> Iterator[str]:
        """Attributes say nothing to C; functions in LLVM's language have C of their own."""
        yield from self.lines(stmt.body)


def _is_zero(value: Expr) -> bool:
    return getattr(value, "value", None) == 0


_WRITERS: dict[type, Callable[[Statements, Any], Iterator[str]]] = {
    tirx.SeqStmt: Statements._sequence,
    tirx.For: Statements._for,
    tirx.While: Statements._while,
    tirx.IfThenElse: Statements._if,
    tirx.Bind: Statements._bind,
    tirx.BufferStore: Statements._store,
    tirx.AllocBuffer: Statements._alloc,
    tirx.DeclBuffer: Statements._declare,
    tirx.Evaluate: Statements._evaluate,
    tirx.AttrStmt: Statements._attribute,
}
