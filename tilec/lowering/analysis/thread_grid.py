"""The threads of a block as numbers: which of them a condition admits, which element each of them names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.errors import TilecError
from tilec.ir.exprs import conjuncts, walk
from tilec.ir.interp.expressions import value_of

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.nodes import Launch


@dataclass(frozen=True, eq=False)
class ThreadGrid:
    """The thread indices of a launch (x, y, z) and how many there are along each axis."""

    vars: tuple[Var, ...]
    extents: tuple[int, int, int]

    @classmethod
    def of(cls, launch: Launch) -> ThreadGrid:
        """The threads of a launch."""
        return cls(launch.thread_vars, launch.threads)

    @property
    def count(self) -> int:
        """Threads of a block."""
        x, y, z = self.extents
        return x * y * z

    @property
    def loops(self) -> tuple[tuple[Var, int], ...]:
        """The axes that a loop over the threads has, x innermost; one at least."""
        axes = [(var, n) for var, n in zip(self.vars, self.extents, strict=True) if n > 1]
        return tuple(reversed(axes)) or ((self.vars[0], 1),)

    @property
    def number(self) -> Expr:
        """The number of a thread in its block, over its indices."""
        step, total = 1, tirx.const(0, "int32")
        for var, extent in zip(self.vars, self.extents, strict=True):
            if extent > 1:
                total = total + var * step
            step *= extent
        return total

    def indices_of(self, number: int) -> dict[Var, Expr]:
        """The indices of one thread."""
        found = {}
        for var, extent in zip(self.vars, self.extents, strict=True):
            found[var] = tirx.const(number % extent, "int32")
            number //= extent
        return found

    def values(self, expr: Expr, ranges: Mapping[Var, range] | None = None) -> np.ndarray | None:
        """The values of ``expr`` by thread (first axis) and by the values of ``ranges`` (second axis); None
        where it depends on anything else."""
        loops = dict(ranges or {})
        nodes = list(walk(expr))
        names = {node for node in nodes if isinstance(node, Var)}
        if not names <= {*self.vars, *loops} or any(isinstance(node, TensorLoad) for node in nodes):
            return None
        known = {}
        numbers = np.arange(self.count).reshape(-1, *[1] * len(loops))
        for var, extent in zip(self.vars, self.extents, strict=True):
            known[var] = (numbers % extent).astype(np.int32)
            numbers = numbers // extent
        for axis, (var, span) in enumerate(loops.items()):
            shape = [-1 if place == axis + 1 else 1 for place in range(len(loops) + 1)]
            values = np.asarray(list(span), np.dtype(str(var.ty.dtype)))
            known[var] = values.reshape(shape)
        try:
            with np.errstate(all="ignore"):
                found: Any = value_of(expr, known)
        except TilecError:
            return None
        shape = [self.count, *map(len, loops.values())]
        return np.broadcast_to(found, shape).reshape(self.count, -1)

    def admitted(self, conds: Iterable[Expr]) -> np.ndarray:
        """The threads that the conditions may admit: those of which more is not known while compiling
        count."""
        result = np.ones(self.count, np.bool_)
        for part in (part for cond in conds for part in conjuncts(cond)):
            found = self.values(part)
            result &= True if found is None else found[:, 0].astype(np.bool_)
        return result

    def exactly(self, conds: Iterable[Expr]) -> np.ndarray | None:
        """The threads that the conditions admit; None where that is not known while compiling."""
        conds = tuple(conds)
        known = all(self.values(cond) is not None for cond in conds)
        return self.admitted(conds) if known else None
