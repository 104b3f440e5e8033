"""``total = total * factor + part``: statements that add a part to a total, element by element."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.nodes import REPEATING, ThreadLoop
from tilec.ir.exprs import dtype_of, loads, same_all
from tilec.ir.nodes import Block, If, Parallel, Stmt, Store, children, walk
from tilec.ir.traits import buffers

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: What names the result of a reduction that is added to a total and goes nowhere else.
_USERS = len(("reduce", "update"))


def users(stmts: Iterable[Stmt]) -> Counter[Var]:
    """How many statements read or write each buffer."""
    return Counter(buffer for stmt in stmts for buffer in set(buffers(stmt)))


def blocks_in(block: Block) -> Iterator[Block]:
    """A block, and those inside of its loops and branches."""
    yield block
    for stmt in block:
        for inner in children(stmt) if isinstance(stmt, (If, *REPEATING)) else ():
            yield from blocks_in(inner)


def addition_of(part: Var, behind: Block, named: Mapping[Var, int]) -> tuple[Stmt, Store, Expr] | None:
    """The statement ``behind`` a reduction that adds its result, ``part``, to a total of its type, its store,
    and what the total is multiplied by; None where there is none, or ``part``, which so many statements
    name, goes elsewhere."""
    update = next((stmt for stmt in behind if part in users(walk((stmt,)))), None)
    store = None if update is None else store_of_each(update)
    if update is None or store is None or named[part] != _USERS or store.buffer.dtype != part.dtype:
        return None
    factor = factor_of(store, part)
    return None if factor is None else (update, store, factor)


def store_of_each(stmt: Stmt) -> Store | None:
    """What stores every element of a tile, each by itself: the store of a loop over them that has no other
    statement, or one to a tile of one element."""
    if isinstance(stmt, Store):
        return stmt if math.prod(static_extents(stmt.buffer)) == 1 else None
    if not isinstance(stmt, (Parallel, ThreadLoop)) or len(stmt.body) != 1:
        return None
    (store,) = stmt.body
    return store if isinstance(store, Store) and same_all(store.indices, stmt.vars) else None


def factor_of(store: Store, part: Var, fixed: Sequence[Var] = ()) -> Expr | None:
    """What the element is multiplied by before that of ``part`` is added to it, 1 for nothing; None for other
    stores, and for factors that read ``part``, the total or what is ``fixed``."""
    value = store.value
    if not isinstance(value, tirx.Add) or not _is_element(value.b, part, store):
        return None
    if _is_element(value.a, store.buffer, store):
        return tirx.const(1, dtype_of(value.a))
    if not isinstance(value.a, tirx.Mul) or not _is_element(value.a.a, store.buffer, store):
        return None
    sources = {load.source for load in loads(value.a.b)}
    return None if sources & {part, store.buffer, *fixed} else value.a.b


def _is_element(value: Expr, buffer: Var, store: Store) -> bool:
    own = isinstance(value, TensorLoad) and value.source.same_as(buffer)
    return own and same_all(tuple(value.indices), store.indices)
