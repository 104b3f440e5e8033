"""What Python objects keep of a kernel's values: what reads memory is evaluated where it is put in.

`t = [v * 2, s[0] + 1]` has the values of this place, as names have, whatever is stored to v and s later.
Variables and elements stay what they are: places, which stores, tile operations and T.Ref parameters take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tilec.language.tiles.memory.buffers import Element, Slice
from tilec.language.values.itself import Itself
from tilec.language.values.value import Value, Vector

#: Evaluates a value here, under a name.
_Evaluate = Callable[[Any, str], Any]


def evaluated(value: Any, name: str, evaluate: _Evaluate, before: Iterable[Any] = ()) -> Any:
    """``value``, with what is in it evaluated, but for what it has held ``before``: lists and dicts are
    changed, tuples made anew."""
    if type(value) not in (list, dict, tuple):
        return value
    held = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    known = set(map(Itself, before))
    made = {key: item if Itself(item) in known else _item(item, name, evaluate) for key, item in held.items()}
    changed = {key: item for key, item in made.items() if item is not held[key]}
    if changed and isinstance(value, tuple):
        return tuple(made.values())
    for key, item in changed.items():
        value[key] = item
    return value


def _item(item: Any, name: str, evaluate: _Evaluate) -> Any:
    if isinstance(item, Slice):
        return evaluate(item, name)
    if isinstance(item, Vector) or (isinstance(item, Value) and not isinstance(item, Element)):
        return evaluate(item, name) if _reads(item) else item
    return evaluated(item, name, evaluate)


def _reads(value: Any) -> bool:
    from tilec.ir.exprs import loads

    lanes = value.lanes if isinstance(value, Vector) else (value,)
    exprs = (lane.expr for lane in lanes if isinstance(lane, Value))
    return any(next(loads(expr), None) is not None for expr in exprs)
