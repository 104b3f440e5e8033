"""Whether the iterations of a loop name different elements, by looking at all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm.ir import Var

from tilec.errors import EvalError
from tilec.ir.exprs import linear_in, loads, variables_of, walk
from tilec.ir.interp.expressions import value_of

if TYPE_CHECKING:
    from tvm.ir import Expr

#: More iterations are not looked at.
_MOST = 2**18


def distinct(indices: Sequence[Expr], variables: Sequence[Var], extents: Sequence[int]) -> bool:
    """Whether no two values of ``variables``, which run from 0 to ``extents``, have the same ``indices``:
    those of a tile seen under another shape, such as i * 32 + j. False for indices that read memory or mix
    the variables with others or divide by 0, and for more than 2**18 values."""
    if math.prod(extents) > _MOST:
        return False
    own = [_own(index, variables) for index in indices]
    if any(part is None for part in own):
        return False
    axes = np.ogrid[tuple(slice(0, extent) for extent in extents)]
    known = {var: np.asarray(axis, np.int64) for var, axis in zip(variables, axes, strict=True)}
    place = np.zeros(tuple(extents), np.int64)
    for part in own:
        try:
            values = np.asarray(value_of(part, known)).astype(np.int64)
        except EvalError:  # a divisor is 0 for some of them
            return False
        place = place * (np.ptp(values) + 1) + (values - values.min())
    return bool(len(np.unique(place)) == place.size)


def _own(index: Expr, variables: Sequence[Var]) -> Expr | None:
    """What an index adds for ``variables`` alone; None where other names do more than to move all of them."""
    if next(loads(index), None) is not None:
        return None
    others = [name for name in variables_of([index]) if not any(name.same_as(var) for var in variables)]
    if not others:
        return index
    linear = linear_in(index, others)
    if not linear or any(isinstance(node, Var) for step in linear[:-1] for node in walk(step)):
        return None
    return linear[-1]
