"""The rules that every tile IR kernel keeps between passes.

Names: defined once, before use, and used inside their region. Types: stores, fills and binds have the dtype
of what they write, indices are integers, conditions bool. Shapes: regions have the rank of their buffer and
lie in on-chip tiles, copies pair up, Gemm and Reduce agree. Structure: launches at the top, break and
continue in loops, on-chip allocations in launches with build-time shapes.

Of nodes that lowering adds, regions and expressions must be well formed and buffers defined; what else holds
of a kind its class says (`Stmt.broken`).
"""

from __future__ import annotations

from collections.abc import Callable
from string import Formatter
from typing import TYPE_CHECKING, Any

from tilec.dtypes import lookup
from tilec.ir import nodes as ir
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.rules import barrier_rules
from tilec.ir.rules.scope import Scope
from tilec.ir.rules.thread_rules import RULES
from tilec.ir.small_floats import numbers_of
from tilec.ir.text.expr_printer import format_expr
from tilec.ir.traits import buffers, defined, expressions, is_single, operand_names, regions, scratch

if TYPE_CHECKING:
    from tvm.ir import Expr


def verify(kernel: ir.Kernel) -> None:
    """Checks every rule above.

    Raises:
        IRError: the first rule that is broken, with the author's line where the statement has one.
    """
    checker = _Verifier(kernel.name)
    checker.signature(kernel)
    checker.top(kernel.body)


class _Verifier(Scope):
    """The rules of a kernel and of every kind of statement."""

    _in_launch = False

    def signature(self, kernel: ir.Kernel) -> None:
        """Dims and parameters."""
        self.define(dim.var for dim in kernel.dims if dim.var is not None)
        for dim in kernel.dims:
            known = dim.var is not None or dim.guard.eq is not None
            self.need(known, f"dim {dim.name} has no variable and no value")
        scalars = [param.var for param in kernel.params if isinstance(param, ir.ScalarParam)]
        self.define(var for var in scalars if var not in self.defined)
        for param in kernel.params:
            if isinstance(param, ir.TensorParam):
                self._tensor(param)

    def _tensor(self, param: ir.TensorParam) -> None:
        buffer = param.buffer
        self.need(buffer.scope() == "global", f"parameter {param.name} has scope {buffer.scope()}")
        same = len(param.extents) == len(buffer.shape)
        self.need(same, f"parameter {param.name}: extents and shape differ in rank")
        self.need(param.access in ("in", "out", "inout"), f"parameter {param.name}: access {param.access!r}")
        for part in (*buffer.shape, *buffer.strides):
            self.index(part)
        self.define((buffer,))

    def top(self, body: ir.Block) -> None:
        """The statements around the launches."""
        for stmt in body:
            self.current = stmt
            allowed = isinstance(stmt, (ir.Launch, ir.Bind, ir.Alloc, ir.Assume))
            self.need(allowed, f"{type(stmt).__name__} stands outside of a launch")
            self._launch(stmt) if isinstance(stmt, ir.Launch) else self.stmt(stmt)

    def _launch(self, stmt: ir.Launch) -> None:
        self.need(1 <= len(stmt.grid) <= 3, f"a grid of {len(stmt.grid)} dimensions")
        self.need(
            len(stmt.grid) == len(stmt.block_vars), "a launch needs one block variable per grid dimension"
        )
        self.need(len(stmt.threads) == 3 and min(stmt.threads) > 0, f"threads {stmt.threads}")
        for extent in stmt.grid:
            self.index(extent)
        self.need(len(stmt.thread_vars) in (0, 3), f"{len(stmt.thread_vars)} thread variables")
        self._in_launch = True
        self.inside((*stmt.block_vars, *stmt.thread_vars), stmt.body)
        self._in_launch = False

    def block(self, body: ir.Block) -> None:
        """The statements of a block."""
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        """One statement and what is inside."""
        self.current = stmt
        for cls in type(stmt).__mro__:
            if cls in _RULES:
                return _RULES[cls](self, stmt)
        return self._lowered(stmt)

    def _alloc(self, stmt: ir.Alloc) -> None:
        buffer = stmt.buffer
        scope, name = buffer.scope(), buffer.name
        self.need(scope in ir.SCOPES[1:], f"{name} is allocated in scope {scope!r}")
        in_launch = scope != "global.workspace"
        self.need(in_launch == self._in_launch, f"{name} of scope {scope} is allocated {self._place()}")
        on_chip = not scope.startswith("global")
        for extent in (*buffer.shape, *buffer.strides):
            known = not on_chip or int_value(extent) is not None
            self.need(known, f"{name} has a run-time shape in scope {scope}")
            self.index(extent)
        single = is_single(buffer)
        self.need(scope != "local.var" or single, f"{name} is a local.var of more than one element")
        if stmt.init is not None:
            dtype = "int64" if scope == "global.address" else str(buffer.dtype)
            self.value(stmt.init, dtype, str(name))
        self.define((buffer,))

    def _place(self) -> str:
        return "inside a launch" if self._in_launch else "outside of a launch"

    def _bind(self, stmt: ir.Bind) -> None:
        self.value(stmt.value, dtype_of(stmt.var), str(stmt.var.name))
        self.define((stmt.var,))

    def _store(self, stmt: ir.Store) -> None:
        self.access(stmt.buffer, stmt.indices)
        self.value(stmt.value, str(stmt.buffer.dtype), str(stmt.buffer.name))

    def _atomic(self, stmt: ir.Atomic) -> None:
        self.need(stmt.kind in ir.ATOMIC_KINDS, f"atomic {stmt.kind!r}")
        self.need(stmt.order in ir.MEMORY_ORDERS, f"memory order {stmt.order!r}")
        self.need(stmt.kind != "load" or stmt.prev is not None, "an atomic load without a name for the value")
        self.access(stmt.buffer, stmt.indices)
        dtype = str(stmt.buffer.dtype)
        self.value(stmt.value, dtype, str(stmt.buffer.name))
        if stmt.prev is None:
            return
        found = dtype_of(stmt.prev)
        self.need(found == dtype, f"{stmt.prev.name} is {found}, the element before is {dtype}")
        self.define((stmt.prev,))

    def _copy(self, stmt: ir.Copy) -> None:
        self.region(stmt.src)
        self.region(stmt.dst)
        src, dst = _axes(stmt.src), _axes(stmt.dst)
        if not _match(src, dst):
            raise self.fail(f"copy of extents {_sizes(stmt.src)} to {_sizes(stmt.dst)}")

    def _fill(self, stmt: ir.Fill) -> None:
        self.region(stmt.dst)
        self.value(stmt.value, str(stmt.dst.buffer.dtype), str(stmt.dst.buffer.name))

    def _matrix(self, part: ir.Region) -> None:
        self.region(part)
        self.need(len(part.extent) >= 2, f"gemm operand {part.buffer.name} has rank {len(part.extent)}")
        leading = [int_value(extent) for extent in part.extent[:-2]]
        self.need(set(leading) <= {1}, f"gemm operand {part.buffer.name} has leading extents {leading}")

    def _sparse_gemm(self, stmt: ir.SparseGemm) -> None:
        for part in (stmt.a, stmt.e, stmt.b, stmt.c):
            self._matrix(part)
        turned = (stmt.trans_a, stmt.trans_e, stmt.trans_b, False)
        parts = (stmt.a, stmt.e, stmt.b, stmt.c)
        sides = [_sides(part, turn) for part, turn in zip(parts, turned, strict=True)]
        (rows, held), (lines, words), (depth, columns), sums = sides
        bits = lookup(str(stmt.e.buffer.dtype)).bits
        agree = (rows, columns) == sums and rows == lines and held * 2 == depth == words * bits > 0
        self.need(agree, f"gemm_sp: operands of {sides} do not agree")
        self.condition(stmt.clear)

    def _scaled_gemm(self, stmt: ir.ScaledGemm) -> None:
        for part in (stmt.a, stmt.b, stmt.c, stmt.sfa, stmt.sfb):
            self._matrix(part)
        rows, depth = _numbers(stmt.a, stmt.trans_a)
        across, columns = _numbers(stmt.b, stmt.trans_b)
        lines, counts, sums = (_sides(part, False) for part in (stmt.sfa, stmt.sfb, stmt.c))
        known = stmt.group > 0 and depth > 0 and depth % stmt.group == 0
        self.need(known, f"gemm_blockscaled: K is {depth}, {stmt.group} of it share a scale")
        groups = depth // stmt.group
        agree = (rows, columns) == sums and across == depth
        agree = agree and lines == (rows, groups) and counts == (columns, groups)
        sides = [(rows, depth), (across, columns), sums, lines, counts]
        self.need(agree, f"gemm_blockscaled: operands of {sides} do not agree")
        self.condition(stmt.clear)

    def _gemm(self, stmt: ir.Gemm) -> None:
        for part in (stmt.a, stmt.b, stmt.c):
            self._matrix(part)
        m, k = reversed(stmt.a.extent[-2:]) if stmt.trans_a else stmt.a.extent[-2:]
        k2, n = reversed(stmt.b.extent[-2:]) if stmt.trans_b else stmt.b.extent[-2:]
        m2, n2 = stmt.c.extent[-2:]
        for axis, left, right in (("M", m, m2), ("N", n, n2), ("K", k, k2)):
            if not _match([left], [right]):
                raise self.fail(f"gemm: axis {axis} is {left} on one side, {right} on the other")
        self.condition(stmt.clear)

    def _reduce(self, stmt: ir.Reduce) -> None:
        self.region(stmt.src)
        self.region(stmt.dst)
        self.need(stmt.kind in ir.REDUCE_KINDS, f"reduction {stmt.kind!r}")
        src, dst = list(stmt.src.extent), list(stmt.dst.extent)
        self.need(0 <= stmt.axis < len(src), f"axis {stmt.axis} of a region of rank {len(src)}")
        removed = src[: stmt.axis] + src[stmt.axis + 1 :]
        kept = [*src[: stmt.axis], 1, *src[stmt.axis + 1 :]]
        if not _match(removed or [1], dst) and not _match(kept, dst):
            raise self.fail(f"reduction of {_sizes(stmt.src)} along axis {stmt.axis} to {_sizes(stmt.dst)}")

    def _scan(self, stmt: ir.Scan) -> None:
        self.region(stmt.src)
        self.region(stmt.dst)
        self.need(stmt.kind in ir.SCAN_KINDS, f"scan {stmt.kind!r}")
        src, dst = list(stmt.src.extent), list(stmt.dst.extent)
        self.need(0 <= stmt.axis < len(src), f"axis {stmt.axis} of a region of rank {len(src)}")
        if not _match(src, dst):
            raise self.fail(f"scan of {_sizes(stmt.src)} to {_sizes(stmt.dst)}")

    def _parallel(self, stmt: ir.Parallel) -> None:
        self.need(len(stmt.vars) == len(stmt.extents) > 0, "Parallel needs one extent per variable")
        for extent in stmt.extents:
            self.index(extent)
        self.inside(stmt.vars, stmt.body, ir.Parallel)

    def _pipelined(self, stmt: ir.Pipelined) -> None:
        self.index(stmt.start)
        self.index(stmt.stop)
        self.inside((stmt.var,), stmt.body, ir.Pipelined)

    def _for(self, stmt: ir.For) -> None:
        self.need(stmt.kind in ir.FOR_KINDS, f"loop kind {stmt.kind!r}")
        for part in (stmt.start, stmt.stop, stmt.step):
            self.index(part)
        self.need(int_value(stmt.step) != 0, "a loop of step 0")
        self.inside((stmt.var,), stmt.body, ir.For)

    def _while(self, stmt: ir.While) -> None:
        self.condition(stmt.cond)
        self.inside((), stmt.body, ir.While)

    def _if(self, stmt: ir.If) -> None:
        self.condition(stmt.cond)
        self.inside((), stmt.then)
        self.inside((), stmt.orelse)

    def _break(self, stmt: ir.Break) -> None:
        self.need(bool(self.loops) and self.loops[-1] in ir.LOOPS, "break outside of a sequential loop")

    def _continue(self, stmt: ir.Continue) -> None:
        self.need(bool(self.loops), "continue outside of a loop")

    def _assume(self, stmt: ir.Assume) -> None:
        self.condition(stmt.cond)

    def _check(self, stmt: ir.Check) -> None:
        self.condition(stmt.cond)

    def _print(self, stmt: ir.Print) -> None:
        for value in stmt.values:
            self.expr(value)
        places = sum(field is not None for _, field, _, _ in Formatter().parse(stmt.text))
        self.need(places == len(stmt.values), f"a text with {places} places for {len(stmt.values)} values")

    def _nested(self, stmt: ir.Launch) -> None:
        raise self.fail("a launch stands inside another statement")

    # Nodes that lowering adds

    def _lowered(self, stmt: ir.Stmt) -> None:
        broken = stmt.broken()
        self.need(not broken, broken)
        for region in regions(stmt):
            self.region(region)
        names = defined(stmt)
        reached = {*self.defined, *names}
        for buffer in (*buffers(stmt), *scratch(stmt)):
            self.need(buffer in reached, f"{buffer.name} is used outside of its allocation")
        known, self.defined = self.defined, {*self.defined, *operand_names(stmt)}
        for expr in expressions(stmt):
            self.expr(expr)
        self.defined = known
        for body in ir.children(stmt):
            self.inside(names, body)
        if not ir.children(stmt):
            self.define(names)


_RULES: dict[type[ir.Stmt], Callable[[_Verifier, Any], None]] = {
    ir.Alloc: _Verifier._alloc,
    ir.Bind: _Verifier._bind,
    ir.Store: _Verifier._store,
    ir.Atomic: _Verifier._atomic,
    ir.Copy: _Verifier._copy,
    ir.Fill: _Verifier._fill,
    ir.Gemm: _Verifier._gemm,
    ir.SparseGemm: _Verifier._sparse_gemm,
    ir.ScaledGemm: _Verifier._scaled_gemm,
    ir.Reduce: _Verifier._reduce,
    ir.Scan: _Verifier._scan,
    ir.Parallel: _Verifier._parallel,
    ir.Pipelined: _Verifier._pipelined,
    ir.For: _Verifier._for,
    ir.While: _Verifier._while,
    ir.If: _Verifier._if,
    ir.Break: _Verifier._break,
    ir.Continue: _Verifier._continue,
    ir.Assume: _Verifier._assume,
    ir.Check: _Verifier._check,
    ir.Print: _Verifier._print,
    ir.Launch: _Verifier._nested,
    **RULES,
    **barrier_rules.RULES,
}


def _sides(region: ir.Region, turned: bool) -> tuple[int, int]:
    """Rows and columns of a matrix, 0 for run-time ones."""
    rows, columns = (int_value(extent) or 0 for extent in region.extent[-2:])
    return (columns, rows) if turned else (rows, columns)


def _numbers(region: ir.Region, turned: bool) -> tuple[int, int]:
    """Rows and columns of numbers, of which an element may hold two."""
    rows, columns = _sides(region, False)
    columns *= numbers_of(region)
    return (columns, rows) if turned else (rows, columns)


def _axes(region: ir.Region) -> list[int | Expr]:
    """The extents other than 1."""
    return [extent for extent in region.extent if int_value(extent) != 1]


def _match(left: list[int | Expr], right: list[int | Expr]) -> bool:
    """Equal numbers of extents, equal where both are integers."""
    pairs = [(int_value(a), int_value(b)) for a, b in zip(left, right, strict=False)]
    return len(left) == len(right) and all(a == b for a, b in pairs if a is not None and b is not None)


def _sizes(region: ir.Region) -> str:
    return f"({', '.join(format_expr(extent) for extent in region.extent)})"
