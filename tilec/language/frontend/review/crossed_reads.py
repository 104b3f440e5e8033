"""Reads of a parallel loop that meet what another iteration stores: which value they get is chance."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec.errors import EvalError, Place, Remark
from tilec.ir import nodes as ir
from tilec.language.values.kernel.access import expressions_of, written_by

if TYPE_CHECKING:
    import numpy as np
    from tvm.ir import Expr, Var

#: Iterations beyond which nothing is looked at, and trips of a loop in one of them that are.
_MOST, _MOST_TRIPS = 1 << 16, 64
#: What variables have as values: numbers, or one for each iteration.
_Values = Mapping[Any, Any]


def crossed_reads(kernel: ir.Kernel) -> Iterator[Remark]:
    """A warning for each buffer of which an iteration reads an element that another one stores.

    It is looked for in the first block and the first trips of the loops around, where places and conditions
    follow from indices alone; others are not spoken of. Elements that several iterations store are no such
    case: their iterations take turns."""
    import numpy as np

    for launch in kernel.launches:
        yield from _in_block(kernel, launch.body, dict.fromkeys(launch.block_vars, np.int64(0)))


def _in_block(kernel: ir.Kernel, block: ir.Block, around: _Values) -> Iterator[Remark]:
    known = dict(around)
    for stmt in block:
        if isinstance(stmt, ir.Parallel):
            yield from (_remark(kernel, stmt, buffer) for buffer in _crossed(stmt, known))
            continue
        if isinstance(stmt, ir.Bind):
            known[stmt.var] = _evaluated(stmt.value, known)
        elif isinstance(stmt, (ir.For, ir.Pipelined)):
            known[stmt.var] = _evaluated(stmt.start, known)
        for inner in ir.children(stmt):
            yield from _in_block(kernel, inner, known)


def _crossed(loop: ir.Parallel, known: _Values) -> list[Var]:
    """The buffers of which iterations of a loop read what others store."""
    import numpy as np

    inside = {stmt.buffer for stmt in ir.walk(loop.body) if isinstance(stmt, ir.Alloc)}
    shared = [buffer for buffer in _updated(loop.body) if buffer not in inside]
    if not shared or not all(isinstance(extent, int) for extent in loop.extents):
        return []
    count = math.prod(loop.extents)
    if not 1 < count <= _MOST:
        return []
    places = np.indices(loop.extents).reshape(len(loop.extents), -1)
    touches = _Touches(frozenset(shared))
    touches.block(loop.body, {**known, **dict(zip(loop.vars, places, strict=True))}, np.ones(count, bool))
    return [buffer for buffer in shared if touches.cross(buffer)]


def _updated(body: ir.Block) -> list[Var]:
    """The buffers that stores of a block write, that it reads at other indices, and that nothing else
    writes."""
    from tilec.ir.exprs import loads, same_all

    stmts = list(ir.walk(body))
    others = {buffer for stmt in stmts if not isinstance(stmt, ir.Store) for buffer in written_by(stmt)}
    stores = {stmt.buffer: stmt.indices for stmt in stmts if isinstance(stmt, ir.Store)}
    read = (load for stmt in stmts for expr in expressions_of(stmt) for load in loads(expr))
    found = dict.fromkeys(
        load.source
        for load in read
        if load.source in stores and not same_all(tuple(load.indices), stores[load.source])
    )
    return [buffer for buffer in found if buffer not in others]


@dataclass
class _Touches:
    """Elements that iterations store and read, of the buffers that are ``looked_at``."""

    looked_at: frozenset[Var]
    stored: dict[Var, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    read: dict[Var, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))

    def block(self, block: ir.Block, around: _Values, held: np.ndarray) -> None:
        """What a block does in the iterations that are ``held``."""
        known = dict(around)
        for stmt in block:
            for expr in expressions_of(stmt):
                self._reads(expr, known, held)
            if isinstance(stmt, ir.Store):
                self._note(self.stored, stmt.buffer, stmt.indices, known, held)
            elif isinstance(stmt, ir.Bind):
                known[stmt.var] = _evaluated(stmt.value, known)
            elif isinstance(stmt, ir.If):
                self._sides(stmt, known, held)
            elif isinstance(stmt, ir.For):
                for value in _trips(stmt, known):
                    self.block(stmt.body, {**known, stmt.var: value}, held)

    def _sides(self, stmt: ir.If, known: _Values, held: np.ndarray) -> None:
        cond = _evaluated(stmt.cond, known)
        if cond is not None:
            self.block(stmt.then, known, held & (cond != 0))
            self.block(stmt.orelse, known, held & (cond == 0))

    def _reads(self, expr: Expr, known: _Values, held: np.ndarray) -> None:
        """The reads of an expression: those of a choice where it takes them."""
        from tvm.ir import TensorLoad

        from tilec.ir.exprs import choice_of, operands

        choice = choice_of(expr)
        if choice is not None:
            cond = _evaluated(choice[0], known)
            if cond is not None:
                self._reads(choice[1], known, held & (cond != 0))
                self._reads(choice[2], known, held & (cond == 0))
            return
        if isinstance(expr, TensorLoad):
            self._note(self.read, expr.source, tuple(expr.indices), known, held)
        for part in operands(expr):
            self._reads(part, known, held)

    def _note(
        self, found: dict[Var, list[np.ndarray]], buffer: Var, indices: tuple[Expr, ...], known: _Values,
        held: np.ndarray,
    ) -> None:  # fmt: skip
        """Rows of an iteration and the indices of its element."""
        import numpy as np

        values = [_evaluated(index, known) for index in indices]
        if buffer in self.looked_at and not any(value is None for value in values):
            rows = np.broadcast_arrays(np.arange(len(held)), *values)
            found[buffer].append(np.stack(rows).astype(np.int64)[:, held])

    def cross(self, buffer: Var) -> bool:
        """Whether an iteration reads what another one, and no third, stores."""
        import numpy as np

        if not self.stored[buffer] or not self.read[buffer]:
            return False
        writers: dict[bytes, int] = {}
        stored, read = (np.concatenate(each[buffer], axis=1).T for each in (self.stored, self.read))
        for row in stored:
            if writers.setdefault(row[1:].tobytes(), row[0]) != row[0]:
                return False
        return any(writers.get(row[1:].tobytes(), row[0]) != row[0] for row in read)


def _trips(loop: ir.For, known: _Values) -> range:
    """The first values of a loop's variable, where they are the same in all iterations."""
    bounds = [_evaluated(bound, known) for bound in (loop.start, loop.stop, loop.step)]
    if any(bound is None or getattr(bound, "ndim", 0) for bound in bounds):
        return range(0)
    return range(*map(int, bounds))[:_MOST_TRIPS]


def _evaluated(expr: Expr, known: _Values) -> Any:
    """The value in each iteration; None where more than ``known`` variables tell it."""
    from tilec.ir.exprs import loads, variables_of
    from tilec.ir.interp.expressions import value_of

    if next(loads(expr), None) is not None:
        return None
    values = {var: known.get(var) for var in variables_of([expr])}
    if any(value is None for value in values.values()):
        return None
    try:
        return value_of(expr, values)
    except EvalError:
        return None


def _remark(kernel: ir.Kernel, loop: ir.Parallel, buffer: Var) -> Remark:
    place = Place(loop.loc.file, loop.loc.line) if loop.loc else Place(kernel.name)
    what = (
        f"iterations of the loop read elements of {buffer.name} that others of them store: "
        "before or after that is chance"
    )
    return Remark(what, place, "store to another tile, or read in a loop in front of this one")
