"""Index arithmetic that is right however large its values get.

Dims, the indices of blocks, threads and loops, and integer numbers are whole numbers to the author, of type
int32 all the same. Where the ranges of operands show that arithmetic on them fits 32 bits, nothing changes.
Where it may not, `widened` does it in 64 bits; in a launch with matrix products, whose code depends on narrow
indices, it states as an `Assume` of the kernel what dims have to fulfil, where that can be said, and calls
that do not are refused.

What is stored, cast or given to a function is of the type that it had, cut to it where it does not fit.
Arithmetic on int32 data (elements, arguments, variables) wraps around, with two exceptions: a product of data
with an index or an argument is exact (data that is shifted by one is not: its bits move within its type), and
so is arithmetic on the way to an index of a buffer. A sum there that leaves 32 bits names no element, whether
it wraps around or not, which `wide_sums` of false makes use of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import Call, Expr, StringImm, TensorLoad, Var

from tilec.ir import nodes as ir
from tilec.ir.analysis.numbers.host_bounds import NO_ENDS, Ends, ends_of, fixed, number_ends
from tilec.ir.analysis.numbers.index_limits import Limits
from tilec.ir.analysis.numbers.intervals import Interval, combined, of_type
from tilec.ir.analysis.numbers.places import INDICES, places_in
from tilec.ir.analysis.numbers.whole_parts import range_of_rest, range_of_whole, rest_of, whole_of
from tilec.ir.exprs import (
    BINARY,
    COMPARE,
    as_expr,
    dtype_of,
    int_value,
    loads,
    operands,
    rebuild,
    variables_of,
)
from tilec.ir.guards import largest_dim
from tilec.ir.stmt import held

_SPREAD = (tirx.Add, tirx.Sub, tirx.Mul, tirx.LShift)
_PRODUCTS = (tirx.Mul, tirx.LShift)
_CHOICES = ("prim.if_then_else", "tirx.if_then_else")
_INT32 = of_type("int32")


@dataclass(frozen=True, eq=False)
class _Known:
    """An expression and what is known of its value. ``counts``: an index or an argument takes part; ``data``:
    an element, an argument or a variable does; ``moves``: it varies within a call. ``ends`` are its lowest
    and highest value over dims; there are none where an argument, which may be any number, takes part."""

    expr: Expr
    range: Interval
    counts: bool = False
    data: bool = False
    moves: bool = False
    ends: Ends = NO_ENDS

    @property
    def is_number(self) -> bool:
        """Whether nothing but numbers takes part."""
        return not self.counts and not self.data


def widened(kernel: ir.Kernel, *, may_refuse: bool = False, wide_sums: bool = True) -> ir.Kernel:
    """``kernel`` with 64 bits where arithmetic on indices needs them; itself where it needs them nowhere.
    ``may_refuse``: launches with products keep 32 bits under an `Assume` where that is possible.
    ``wide_sums``: sums of data in indices take 64 bits, for code in which a sum must not wrap around."""
    return _Widening(kernel, may_refuse, wide_sums).kernel_widened()


class _Widening:
    """Rewrites a kernel from its first statement to its last."""

    def __init__(self, kernel: ir.Kernel, may_refuse: bool, wide_sums: bool) -> None:
        self.kernel, self.may_refuse, self.wide_sums = kernel, may_refuse, wide_sums
        self.limits = Limits(kernel)
        self.names: dict[Var, _Known] = {}
        self.buffers: dict[Var, Var] = {}
        self.stops: dict[Var, Expr] = {}
        self.wholes: dict[Var, Expr] = {}
        self.placing = _names_in_indices(kernel.body)
        self.narrow = may_refuse and all(_has_products(launch) for launch in kernel.launches)
        for dim in kernel.dims:
            if dim.var is not None:
                self.names[dim.var] = _Known(dim.var, _range_of(dim), counts=True, ends=fixed(dim.var))
        for param in kernel.params:
            if isinstance(param, ir.ScalarParam) and "int" in dtype_of(param.var):
                self.names.setdefault(param.var, _Known(param.var, of_type(dtype_of(param.var)), True, True))

    def kernel_widened(self) -> ir.Kernel:
        """The rewritten kernel."""
        params = tuple(self._param(param) for param in self.kernel.params)
        body = self._block(self.kernel.body)
        assumed = self.limits.assumptions()
        if not assumed and _same(params, self.kernel.params) and _same(body, self.kernel.body):
            return self.kernel
        return replace(self.kernel, params=params, body=(*assumed, *body))

    def _param(self, param: ir.Param) -> ir.Param:
        if not isinstance(param, ir.TensorParam):
            return param
        buffer = self._declared(param.buffer)
        return param if buffer is param.buffer else replace(param, buffer=buffer)

    def _declared(self, buffer: Var) -> Var:
        """A buffer with its extents and strides in 64 bits where they need them."""
        shape = tuple(self._index(extent) for extent in buffer.shape)
        strides = tuple(self._index(stride) for stride in buffer.strides)
        if _same(shape, tuple(buffer.shape)) and _same(strides, tuple(buffer.strides)):
            return buffer
        kind = str(buffer.dtype)
        name, scope = str(buffer.name), buffer.scope()
        made = tirx.decl_buffer(_alike(shape), kind, name, strides=_alike(strides), scope=scope)
        self.buffers[buffer] = made
        return made

    # ---- statements ----

    def _block(self, block: ir.Block) -> ir.Block:
        made = tuple(self._stmt(stmt) for stmt in block)
        return block if _same(made, block) else made

    def _stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        handler = next((_HANDLERS[kind] for kind in type(stmt).__mro__ if kind in _HANDLERS), None)
        return self._rewritten(stmt) if handler is None else handler(self, stmt)

    def _rewritten(self, stmt: Any, names: Mapping[str, Any] | None = None) -> Any:
        """A statement, or part of one, with all its fields rewritten; ``names``: fields that are known."""
        changes = dict(names or {})
        for item in held(type(stmt)):
            if item.name not in changes:
                changes[item.name] = self._field(getattr(stmt, item.name), item.name in INDICES)
        changes = {name: value for name, value in changes.items() if not _is_same(value, getattr(stmt, name))}
        return replace(stmt, **changes) if changes else stmt

    def _field(self, value: Any, is_index: bool) -> Any:
        if isinstance(value, ir.Stmt):
            return self._stmt(value)
        if isinstance(value, Expr):
            if tirx.is_buffer_var(value):
                return self.buffers.get(value, value)
            return self._index(value) if is_index else self._value(value)
        if isinstance(value, tuple):
            made = tuple(self._field(part, is_index) for part in value)
            return value if _same(made, value) else made
        return self._region(value) if isinstance(value, ir.Region) else value

    def _region(self, region: ir.Region) -> Any:
        starts = tuple(map(self._start, region.start, region.extent))
        return self._rewritten(region, {"start": region.start if _same(starts, region.start) else starts})

    def _start(self, start: Expr, extent: int | Expr) -> Expr:
        """The start of a region, so wide that no index in it leaves its type."""
        known, length = self._visit(start, True), self._extent(extent).range.high
        last = Interval(known.range.low, known.range.high + max(length, 1) - 1)
        stays = not known.data or not self.wide_sums or last.fits(of_type(dtype_of(known.expr)))
        return known.expr if stays else _as(known.expr, "int64")

    def _bind(self, stmt: ir.Bind) -> Any:
        known = self._visit(stmt.value, stmt.var in self.placing)
        if dtype_of(stmt.var) not in ("int32", "int64"):
            return self._rewritten(stmt, {"value": self._value(stmt.value), "var": stmt.var})
        var = self._name(stmt.var, known)
        if whole_of(stmt.value, self.wholes) is not None:
            self.wholes[stmt.var] = stmt.value
        return stmt if _is_same(known.expr, stmt.value) else replace(stmt, var=var, value=known.expr)

    def _alloc(self, stmt: ir.Alloc) -> Any:
        return self._rewritten(
            stmt, {"buffer": self._declared(stmt.buffer), "layout": stmt.layout, "asked": stmt.asked}
        )

    def _counted(self, stmt: ir.For | ir.Pipelined) -> Any:
        start, stop = self._visit(stmt.start, True), self._visit(stmt.stop, True)
        step = self._visit(stmt.step, True).range if isinstance(stmt, ir.For) else Interval(1, 1)
        up = Interval(start.range.low, max(start.range.low, stop.range.high - 1))
        down = Interval(min(start.range.high, stop.range.low + 1), start.range.high)
        found = up if step.low > 0 else down if step.high < 0 else up.joined(down)
        ends = start.ends.until(stop.ends) if step.low > 0 else NO_ENDS
        var = self._loop_name(stmt.var, _Known(stmt.var, found, True, start.data or stop.data, True, ends))
        if step.low > 0 and next(loads(stmt.stop), None) is None:
            self.stops[stmt.var] = stmt.stop
        names: dict[str, Any] = {"var": var}
        for name, known in (("start", start), ("stop", stop)):
            names[name] = _as(known.expr, dtype_of(var))
        if isinstance(stmt, ir.For):
            names["step"] = _as(self._index(stmt.step), dtype_of(var))
        return self._rewritten(stmt, names)

    def _parallel(self, stmt: ir.Parallel) -> Any:
        pairs = zip(stmt.vars, stmt.extents, strict=True)
        made = tuple(self._loop_name(var, self._counter(var, extent)) for var, extent in pairs)
        trips = tuple(map(self._trips, made, stmt.extents))
        names = {"vars": stmt.vars if _same(made, stmt.vars) else made}
        return self._rewritten(
            stmt, {**names, "extents": stmt.extents if _same(trips, stmt.extents) else trips}
        )

    def _trips(self, var: Var, extent: int | Expr) -> int | Expr:
        """An extent, in 32 bits where the variable that counts up to it has these and they hold it; where it
        may be negative beyond them it becomes 0, which is as many."""
        if isinstance(extent, int):
            return extent
        known = self._extent(extent)
        if (
            dtype_of(known.expr) == dtype_of(var)
            or dtype_of(var) != "int32"
            or known.range.high > _INT32.high
        ):
            return known.expr
        trips = known.expr if known.range.fits(_INT32) else tirx.max(known.expr, tirx.const(0, "int64"))
        return _as(trips, "int32")

    def _launch(self, stmt: ir.Launch) -> Any:
        before, self.narrow = self.narrow, self.may_refuse and _has_products(stmt)
        for var, extent in zip(stmt.block_vars, stmt.grid, strict=True):
            known = self._counter(var, extent)
            self.names[var] = replace(known, range=known.range.cut(_INT32))
        for var, threads in zip(stmt.thread_vars, stmt.threads, strict=False):
            self.names[var] = self._counter(var, threads)
        names = {"block_vars": stmt.block_vars, "thread_vars": stmt.thread_vars}
        made = self._rewritten(stmt, names)
        self.narrow = before
        return made

    def _counter(self, var: Var, extent: int | Expr) -> _Known:
        """A variable that counts up to an extent."""
        known = self._extent(extent)
        found = Interval(0, max(0, known.range.high - 1))
        return _Known(var, found, True, known.data, True, number_ends(0).until(known.ends))

    def _extent(self, extent: int | Expr) -> _Known:
        return self._visit(as_expr(extent), True)

    def _loop_name(self, var: Var, known: _Known) -> Var:
        """A loop variable, in 64 bits where its range asks for them."""
        wide = dtype_of(var) == "int32" and not known.range.fits(_INT32)
        own = tirx.Var(str(var.name), "int64") if wide else var
        self.names[var] = replace(known, expr=own)
        return own

    def _name(self, var: Var, known: _Known) -> Var:
        """The variable that holds a value from now on."""
        kind = dtype_of(known.expr)
        own = var if kind == dtype_of(var) else tirx.Var(str(var.name), kind)
        self.names[var] = replace(known, expr=own)
        return own

    # ---- expressions ----

    def _index(self, expr: Expr | int) -> Any:
        """An index, in as many bits as it needs."""
        return expr if isinstance(expr, int) else self._visit(expr, True).expr

    def _value(self, expr: Expr) -> Expr:
        """A value of the type that it had."""
        if isinstance(expr, StringImm):
            return expr
        return _as(self._visit(expr, False).expr, dtype_of(expr))

    def _visit(self, expr: Expr, placing: bool) -> _Known:
        """``placing``: the expression leads to an index."""
        kind = type(expr)
        if kind in BINARY and "int" in dtype_of(expr) and "x" not in dtype_of(expr):
            return self._binary(expr, placing)
        if kind in COMPARE:
            left, right = self._visit(expr.a, placing), self._visit(expr.b, placing)
            return _Known(self._over(expr, *_alike((left.expr, right.expr))), Interval(0, 1), data=True)
        handler = _VISITS.get(kind)
        return self._opaque(expr) if handler is None else handler(self, expr, placing)

    def _opaque(self, expr: Expr) -> _Known:
        """An expression that takes and gives what its types say."""
        made = self._over(expr, *(self._value(part) for part in operands(expr)))
        return _Known(made, _type_range(expr), data=True, moves=True)

    def _over(self, expr: Expr, *parts: Expr) -> Expr:
        return expr if _same(parts, operands(expr)) else rebuild(expr, parts)

    def _number(self, expr: Any, placing: bool) -> _Known:
        value = int(expr.value)
        return _Known(expr, Interval(value, value), ends=number_ends(value))

    def _variable(self, expr: Var, placing: bool) -> _Known:
        known = self.names.get(expr)
        return _Known(expr, _type_range(expr), data=True, moves=True) if known is None else known

    def _load(self, expr: TensorLoad, placing: bool) -> _Known:
        indices = tuple(self._index(index) for index in expr.indices)
        buffer = self.buffers.get(expr.source, expr.source)
        unchanged = _is_same(buffer, expr.source) and _same(indices, tuple(expr.indices))
        made = expr if unchanged else tirx.BufferLoad(buffer, list(indices))
        return _Known(made, _type_range(expr), data=True, moves=True)

    def _cast(self, expr: Any, placing: bool) -> _Known:
        known, dtype = self._visit(expr.value, placing), dtype_of(expr)
        if not dtype.startswith(("int", "uint")) or not dtype_of(expr.value).startswith(("int", "uint")):
            return _Known(self._over(expr, known.expr), _type_range(expr), known.counts, True, True)
        made = known.expr if dtype_of(known.expr) == dtype else self._over(expr, known.expr)
        if known.range.fits(of_type(dtype)):
            return replace(known, expr=made)
        return _Known(made, of_type(dtype), known.counts, True, True)

    def _choice(self, expr: Any, parts: Any, placing: bool) -> _Known:
        cond, true, false = parts
        one, other = (self._visit(part, placing) for part in (true, false))
        sides = _alike((one.expr, other.expr))
        made = self._over(expr, self._visit(cond, False).expr, *sides)
        if isinstance(made, Call):  # of the type of what it chooses from, which may be wider now
            made = Call(made.op, list(made.args), ret_ty=sides[0].ty)
        data, ends = one.data or other.data, one.ends.joined(other.ends)
        known = _Known(made, one.range.joined(other.range), one.counts or other.counts, data, True, ends)
        return _narrowed(known, dtype_of(expr))

    def _select(self, expr: Any, placing: bool) -> _Known:
        return self._choice(expr, operands(expr), placing)

    def _call(self, expr: Call, placing: bool) -> _Known:
        if getattr(expr.op, "name", "") in _CHOICES:
            return self._choice(expr, expr.args, placing)
        return self._opaque(expr)

    def _let(self, expr: Any, placing: bool) -> _Known:
        value = self._visit(expr.value, placing)
        var = self._name(expr.var, value)
        body = self._visit(expr.body, placing)
        if _same((var, value.expr, body.expr), (expr.var, expr.value, expr.body)):
            return replace(body, expr=expr)
        return replace(body, expr=tirx.Let(var, value.expr, body.expr))

    def _binary(self, expr: Any, placing: bool) -> _Known:
        left, right = self._visit(expr.a, placing), self._visit(expr.b, placing)
        known = self._parted(expr, self._reversed(expr, _met(type(expr), expr, left, right)))
        sides = _alike((left.expr, right.expr))
        exact = _is_exact(expr, left, right, placing, self.wide_sums)
        if exact and dtype_of(sides[0]) == "int32" and _leaves(known.range, expr):
            kept = self.limits.kept(known) if self.narrow else None
            if kept is not None:
                return replace(known, expr=self._over(expr, *sides), range=kept)
            sides = tuple(_as(side, "int64") for side in sides)
        made = self._over(expr, *sides)
        limit = of_type(dtype_of(made))
        inside = known.range if known.range.fits(limit) else limit
        return _narrowed(replace(known, expr=made, range=inside), dtype_of(expr))

    def _parted(self, expr: Any, known: _Known) -> _Known:
        """The same where it is the whole part of a number, or what that leaves."""
        for parts_of, range_of in ((whole_of, range_of_whole), (rest_of, range_of_rest)):
            parts = parts_of(expr, self.wholes)
            found = None if parts is None else range_of(*(self._visit(part, True) for part in parts))
            if found is not None:
                return replace(known, range=known.range.cut(found[0]), ends=found[1])
        return known

    def _reversed(self, expr: Any, known: _Known) -> _Known:
        """The same where a loop is walked backwards: ``stop - 1 - var`` is not negative."""
        stop = self.stops.get(expr.b) if isinstance(expr, tirx.Sub) and isinstance(expr.b, Var) else None
        beyond = None if stop is None else self.limits.distance(stop, expr.a)
        if beyond is None or beyond + 1 > known.range.high:
            return known
        return replace(known, range=known.range.cut(Interval(beyond + 1, known.range.high)))


def _met(kind: type, expr: Expr, left: _Known, right: _Known) -> _Known:
    """What an operation makes of two values, as one of whole numbers."""
    found = combined(kind, left.range, right.range)
    ends = ends_of(kind, left, right)
    counts, data = left.counts or right.counts, left.data or right.data
    found = of_type(dtype_of(expr)) if found is None else found
    return _Known(expr, found, counts, data, left.moves or right.moves, ends)


def _leaves(found: Interval, expr: Expr) -> bool:
    """Whether the value of a sum, a difference or a product may leave its type."""
    return isinstance(expr, _SPREAD) and not found.fits(of_type(dtype_of(expr)))


def _has_products(launch: ir.Launch) -> bool:
    return any(isinstance(stmt, ir.PRODUCTS) for stmt in ir.walk(launch.body))


def _is_exact(expr: Expr, left: _Known, right: _Known, placing: bool, wide_sums: bool) -> bool:
    """Whether the whole value counts where it leaves 32 bits."""
    if not left.data and not right.data:
        return True
    if not isinstance(expr, _PRODUCTS):
        return placing and wide_sums
    counts = left.counts or (right.counts and not isinstance(expr, tirx.LShift))
    return placing or (counts and not left.is_number and not right.is_number)


def _narrowed(known: _Known, dtype: str) -> _Known:
    """In the type that it had, where that holds it."""
    if dtype_of(known.expr) == dtype or not known.range.fits(of_type(dtype)):
        return known
    return replace(known, expr=tirx.Cast(dtype, known.expr))


def _range_of(dim: ir.Dim) -> Interval:
    bits = 32 if dtype_of(dim.var) == "int32" else 64
    high = largest_dim(bits) if dim.guard.max is None else dim.guard.max
    return Interval(max(dim.guard.min or 0, 0), max(high, 0))


def _type_range(expr: Expr) -> Interval:
    """The numbers of a scalar integer; of anything else what does not matter."""
    dtype = dtype_of(expr)
    return of_type(dtype) if dtype in _INTEGERS else Interval(0, 0)


_INTEGERS = {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def _as(expr: Expr, dtype: str) -> Expr:
    if dtype_of(expr) == dtype:
        return expr
    number = int_value(expr)
    return tirx.Cast(dtype, expr) if number is None else tirx.const(number, dtype)


def _alike(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Integers in one type: 64 bits where one of them has them."""
    types = {dtype_of(expr) for expr in exprs}
    return tuple(_as(expr, "int64") for expr in exprs) if types == {"int32", "int64"} else exprs


def _same(made: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
    return len(made) == len(old) and all(_is_same(a, b) for a, b in zip(made, old, strict=True))


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, Expr) and isinstance(b, Expr) and a.same_as(b))


def _names_in_indices(body: ir.Block) -> set[Var]:
    """The names that lead to indices of buffers, through other names too."""
    found: set[Var] = set()
    binds: list[ir.Bind] = []
    for stmt in ir.walk(body):
        found.update(variables_of(places_in(stmt)))
        if isinstance(stmt, ir.Bind):
            binds.append(stmt)
    for bind in reversed(binds):
        if bind.var in found:
            found.update(variables_of((bind.value,)))
    return found


_HANDLERS: dict[type, Callable[[_Widening, Any], ir.Stmt]] = {
    ir.Bind: _Widening._bind,
    ir.Alloc: _Widening._alloc,
    ir.For: _Widening._counted,
    ir.Pipelined: _Widening._counted,
    ir.Parallel: _Widening._parallel,
    ir.Launch: _Widening._launch,
}
_VISITS: dict[type, Callable[[_Widening, Any, bool], _Known]] = {
    tirx.IntImm: _Widening._number,
    Var: _Widening._variable,
    TensorLoad: _Widening._load,
    tirx.Cast: _Widening._cast,
    tirx.Select: _Widening._select,
    tirx.Let: _Widening._let,
    Call: _Widening._call,
}
