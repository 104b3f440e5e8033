"""Loops over computed places of tensors that are boxes after all: of a matrix that the memory of a tensor
also is, or of the columns of an image.

Views (T.reshape, T.Tensor(.., data)) reach the tile IR as loops whose indices divide and take remainders of a
flat place. Where that place is one row and one column of a matrix, TMA moves it as it moves matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.accesses.gathers import Gather, gather_of, masked
from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.matmul.match.launch import all_expressions
from tilec.backends.cuda.matmul.match.windows import window_copy
from tilec.backends.cuda.matmul.nodes import MatrixView
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import conjuncts, dtype_of, int_value, linear_in, same, substitute, transform, uses, walk
from tilec.ir.nodes import Bind, Block, Copy, Gemm, If, Kernel, Launch, Parallel, Region, Stmt, Store
from tilec.ir.nodes import walk as walk_statements
from tilec.lowering.analysis.accesses import element_of
from tilec.lowering.analysis.conditions import gap
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Flat places inside one index of the first axis stay below this, so that int32 arithmetic on them is exact.
_FURTHEST = 1 << 30
_LARGEST_EXTENT = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class Boxes:
    """A launch over boxes, the views that it names, and why a loop of it was left alone (None: none was)."""

    launch: Launch
    views: tuple[MatrixView, ...]
    obstacle: Unfit | None


def over_boxes(kernel: Kernel, launch: Launch) -> Boxes:
    """``launch`` with loops that fill a tile from a box as Copy or WindowCopy, and with matrices in place of
    tensors of more axes where it reads and writes rows and columns of them; launches without products
    stay as they are."""
    if not any(isinstance(stmt, Gemm) for stmt in walk_statements(launch.body)):
        return Boxes(launch, (), None)
    rewrite = _Rewrite(kernel, launch)
    body = rewrite.block(launch.body)
    return Boxes(rewrite.launch_with(body), tuple(rewrite.views), rewrite.obstacle)


class _Rewrite(ScopedRewrite):
    """Rewrites one launch."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.views: list[MatrixView] = []
        self.obstacle: Unfit | None = None
        self._written = written_in(launch.body)
        self.facts.enter_block(launch.grid)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Loops over elements become copies of boxes, or loops over elements of matrices."""
        if not isinstance(stmt, Parallel) or len(stmt.vars) != 2:
            return super().stmt(stmt)
        self._learn(stmt)
        gather = gather_of(stmt)
        if gather is not None and gather.source.source in self._written:
            return [stmt]
        if gather is None:
            return [replace(stmt, body=self._elements(stmt.body, stmt.vars))]
        return [self._load(stmt, gather)]

    def _load(self, loop: Parallel, gather: Gather) -> Stmt:
        place = self._in_matrix(gather.source, gather.cond, loop.vars)
        if place is not None:
            zeros = {var: tirx.const(0, dtype_of(var)) for var in loop.vars}
            start = tuple(self.facts.simplify(substitute(index, zeros)) for index in place.indices)
            return Copy(Region(place.source, start, gather.extents), whole_tile(gather.tile), loc=loop.loc)
        try:
            return window_copy(gather, self.facts, loop.loc) or loop
        except Unfit as unfit:
            unfit.stmt = loop
            self.obstacle = unfit
            return loop

    # ---- matrices ----

    def _elements(self, body: Block, loop_vars: Sequence[Var]) -> Block:
        """The body of an elementwise loop, without names that nothing uses any more."""
        made: list[Stmt] = []
        for stmt in body:
            self._learn(stmt)
            made.append(self._element(stmt, loop_vars))
        kept: tuple[Stmt, ...] = ()
        for stmt in reversed(made):
            if not isinstance(stmt, Bind) or _is_used(stmt.var, kept):
                kept = (stmt, *kept)
        return kept

    def _element(self, stmt: Stmt, loop_vars: Sequence[Var]) -> Stmt:
        """A statement of an elementwise loop with matrices in place of tensors of more axes."""

        def visit(node: Expr) -> Expr | None:
            cond, source = masked(node)
            return self._in_matrix(source, cond, loop_vars) if isinstance(source, TensorLoad) else None

        stmt = map_stmt(stmt, lambda expr: transform(expr, visit))
        cond, store = _conditional(stmt)
        if not isinstance(store, Store):
            return stmt
        place = self._in_matrix(element_of(store), cond, loop_vars)
        return stmt if place is None else replace(store, buffer=place.source, indices=tuple(place.indices))

    def _in_matrix(self, load: TensorLoad, cond: Expr | None, loop_vars: Sequence[Var]) -> TensorLoad | None:
        """The element of a matrix that an element of a tensor (inside of it and where ``cond`` holds) is;
        None where one of the two may lie inside and the other not."""
        buffer, indices = load.source, tuple(map(self.facts.simplify, load.indices))
        if buffer.scope() != "global" or len(buffer.shape) < 3 or len(buffer.strides):
            return None
        if math.prod(int_value(extent) or 1 for extent in buffer.shape[1:]) > _FURTHEST:
            return None
        place = self._split(buffer, indices, loop_vars)
        if place is None:
            return None
        view, row, column = place
        zero = tirx.const(0, "int32")
        bounds = (row >= zero, row < view.shape[0], column >= zero, column < view.shape[1])
        known = self._open_gaps(cond, list(zip(indices[1:], buffer.shape[1:], strict=True)))
        if not all(self._is_known(bound, known) for bound in bounds[2:]):
            return None
        if not all(any(self._equal(part, gap(bound)) for bound in bounds) for part in known):
            return None
        self._keep(view, buffer)
        found: TensorLoad = tirx.BufferLoad(view, [row, column])
        return found

    def _open_gaps(self, cond: Expr | None, axes: Sequence[tuple[Expr, Expr]]) -> list[Expr | None]:
        """What must be positive where ``cond`` holds and the indices of these axes lie in their extents,
        without what is known to be."""
        held = [gap(index < extent) for index, extent in axes if self._is_inside(index, extent)]
        outside = [axis for axis in axes if not self._is_inside(*axis)]
        bounds = [bound for index, extent in outside for bound in (index >= 0, index < extent)]
        parts = [*bounds, *(() if cond is None else conjuncts(cond))]
        gaps = [gap(part) for part in parts if not self.facts.prove(part)]
        return [each for each in gaps if not any(self._equal(each, other) for other in held)]

    def _keep(self, view: Var, root: Var) -> None:
        if not any(known.view.same_as(view) for known in self.views):
            self.views.append(MatrixView(view, root))

    def _split(
        self, buffer: Var, indices: tuple[Expr, ...], loop_vars: Sequence[Var]
    ) -> tuple[Var, Expr, Expr] | None:
        """The matrix, the row and the column of an element: rows are as far apart as one loop variable
        steps, columns follow the other one."""
        flat, named = indices[0], self._named(buffer.shape)
        for index, extent in zip(indices[1:], buffer.shape[1:], strict=True):
            flat = self.facts.simplify(_with_names(flat * self.facts.simplify(extent) + index, named))
        flat = substitute(flat, {var: extent for extent, var in named})
        linear = linear_in(flat, list(loop_vars))
        if not linear:
            return None
        *steps, base = linear
        across = next((axis for axis, step in enumerate(steps) if int_value(step) == 1), None)
        if across is None:
            return None
        pitch = steps[1 - across]
        view = self._view(buffer, pitch)
        if view is None:
            return None
        row, column = self._divided(base, pitch)
        return view, row + loop_vars[1 - across], column + loop_vars[across]

    def _divided(self, base: Expr, pitch: Expr) -> tuple[Expr, Expr]:
        """The row and the column of a flat place."""
        facts, sizes = self.facts, [node for node in walk(pitch) if isinstance(node, Var)]
        if len(sizes) == 1:  # what is no multiple of a run-time pitch as it is written is the column
            whole, part = (linear_in(each, sizes) for each in (base, pitch))
            factor = part[0] if part and int_value(part[1]) == 0 else None
            if whole and factor is not None and _is_zero(facts.simplify(tirx.floormod(whole[0], factor))):
                return facts.simplify(tirx.floordiv(whole[0], factor)), facts.simplify(whole[1])
        row = facts.simplify(tirx.floordiv(base, pitch))
        return row, facts.simplify(base - row * pitch)

    def _named(self, shape: Sequence[Expr]) -> list[tuple[Expr, Var]]:
        """Names for the extents that are sums: a quotient and a remainder by one of them, multiplied out,
        would not be found to add up to what was divided."""
        found = []
        for extent in map(self.facts.simplify, shape):
            if isinstance(extent, (tirx.IntImm, Var)):
                continue
            var = tirx.Var("extent", dtype_of(extent))
            self.facts.bind_range(var, 1, _LARGEST_EXTENT)
            found.append((extent, var))
        return found

    def _view(self, buffer: Var, pitch: Expr) -> Var | None:
        """The matrix of the memory of ``buffer`` with rows of ``pitch``: some of its last axes in one."""
        shape = list(buffer.shape)
        for lead in range(1, len(shape)):
            if not self._equal(_product(shape[lead:]), pitch):
                continue
            extents = [self.facts.simplify(_product(part)) for part in (shape[:lead], shape[lead:])]
            known = (view.view for view in self.views if view.root.same_as(buffer))
            found = next((view for view in known if all(map(same, view.shape, extents))), None)
            if found is not None:
                return found
            return tirx.decl_buffer(extents, str(buffer.dtype), name=f"{buffer.name}_rows", scope="global")
        return None

    # ---- proofs ----

    def _is_inside(self, index: Expr, extent: Expr) -> bool:
        if isinstance(index, tirx.FloorMod) and self._equal(index.b, extent):
            return True
        return self.facts.prove(tirx.And(index >= 0, index < extent)) is True

    def _is_known(self, bound: Expr, known: Sequence[Expr | None]) -> bool:
        return self.facts.prove(bound) is True or any(self._equal(part, gap(bound)) for part in known)

    def _equal(self, a: Expr | None, b: Expr | None) -> bool:
        return a is not None and b is not None and _is_zero(self.facts.simplify(a - b))


def _is_zero(value: Expr) -> bool:
    return int_value(value) == 0


def _with_names(expr: Expr, named: Sequence[tuple[Expr, Var]]) -> Expr:
    return transform(expr, lambda node: next((var for extent, var in named if same(node, extent)), None))


def _is_used(var: Var, block: Block) -> bool:
    return any(uses(expr, (var,)) for stmt in block for expr in all_expressions(stmt))


def _conditional(stmt: Stmt) -> tuple[Expr | None, Stmt]:
    """What stands alone under a condition."""
    if isinstance(stmt, If) and not stmt.orelse and len(stmt.then) == 1:
        return stmt.cond, stmt.then[0]
    return None, stmt


def _product(extents: Sequence[Expr]) -> Expr:
    total = extents[0]
    for extent in extents[1:]:
        total = total * extent
    return total
