"""What loops read and write, and whether two of them may trade places or run as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad, Var

from tilec.ir.exprs import inlined, int_value, linear_in, loads, operands, same, same_all, uses
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.foreign import is_address
from tilec.ir.nodes import Alloc, Atomic, Bind, Block, Parallel, Stmt, Store, walk
from tilec.ir.traits import defined, expressions

if TYPE_CHECKING:
    from tvm.ir import Expr


@dataclass(frozen=True, eq=False)
class Access:
    """One element that a statement reads or writes."""

    buffer: Var
    indices: tuple[Expr, ...]
    is_write: bool

    def matches(self, other: Access) -> bool:
        """Whether another access does the same with the same element."""
        alike = self.buffer.same_as(other.buffer) and self.is_write == other.is_write
        return alike and same_all(self.indices, other.indices)


def accesses(block: Block) -> list[Access]:
    """All elements that a block of plain statements (Store, Atomic, Bind, If, loops) names, in program
    order."""
    return [item for stmt in walk(block) for item in own_accesses(stmt)]


def own_accesses(stmt: Stmt) -> list[Access]:
    """The elements that a plain statement names itself, without those of the blocks inside it. Where foreign
    code gets the address of an element, one that nobody knows is among them."""
    found = [item for expr in expressions(stmt) for item in _reads(expr)]
    if isinstance(stmt, Atomic):
        found.append(Access(stmt.buffer, stmt.indices, False))
    if isinstance(stmt, (Store, Atomic)):
        found.append(Access(stmt.buffer, stmt.indices, True))
    if isinstance(stmt, Store) and is_touch(stmt):
        found.append(_anywhere(stmt.buffer, True))
    return found


def element_of(stmt: Store | Atomic) -> Expr:
    """What the element holds that a statement writes."""
    return tirx.BufferLoad(stmt.buffer, list(stmt.indices))


def is_touch(store: Store) -> bool:
    """Whether a store says that foreign code may write here and behind: it stores an element to itself.
    Fragments have no addresses for such code: what an author stores to itself there is that element alone."""
    value = store.value
    if store.buffer.scope() == "local.fragment":
        return False
    is_own = type(value) is TensorLoad and value.source.same_as(store.buffer)
    return is_own and same_all(operands(value), store.indices)


def _reads(expr: Expr) -> Iterator[Access]:
    for node in walk_expr(expr):
        if type(node) is TensorLoad:
            yield Access(node.source, operands(node), False)
        elif is_address(node):
            yield _anywhere(node.args[1].source, False)


def _anywhere(buffer: Var, is_write: bool) -> Access:
    """An element that nobody knows."""
    return Access(buffer, tuple(tirx.Var("anywhere", "int32") for _ in buffer.shape), is_write)


def values_of(stmts: Iterable[Stmt]) -> dict[Var, Expr]:
    """What the names among statements stand for."""
    return {stmt.var: stmt.value for stmt in stmts if isinstance(stmt, Bind)}


def computed_values_of(stmts: Iterable[Stmt]) -> dict[Var, Expr]:
    """The same of those names whose values read no element: they may be written out anywhere."""
    return {var: value for var, value in values_of(stmts).items() if next(loads(value), None) is None}


def tensor_reads(block: Block, names: Mapping[Var, Expr]) -> Iterator[Access]:
    """The elements of tensors that ``block`` reads at places that are known outside of it: no variable of its
    own moves them, and nothing is looked up. ``names`` stand for values."""
    return (item for item in _at_known_places(block, names) if not item.is_write)


def tensor_writes(block: Block, names: Mapping[Var, Expr]) -> Iterator[Access]:
    """The elements of tensors that ``block`` writes at such places (:func:`tensor_reads`)."""
    return (item for item in _at_known_places(block, names) if item.is_write)


def _at_known_places(block: Block, names: Mapping[Var, Expr]) -> Iterator[Access]:
    inner = [var for stmt in walk(block) for var in defined(stmt)]
    for item in accesses(block):
        indices = tuple(inlined(index, names) for index in item.indices)
        moves = any(next(loads(index), None) is not None or uses(index, inner) for index in indices)
        if not moves and item.buffer.scope() == "global":
            yield replace(item, indices=indices)


def names_one_element(buffer: Var, named: Sequence[Access]) -> bool:
    """Whether all of the accesses of a buffer, of which there is one, name the same element."""
    first, *others = (item for item in named if item.buffer.same_as(buffer))
    return all(same_all(item.indices, first.indices) for item in others)


def updates_atomically(block: Block, buffer: Var) -> bool:
    """Whether ``block`` holds an atomic update of ``buffer``."""
    return any(isinstance(stmt, Atomic) and stmt.buffer.same_as(buffer) for stmt in walk(block))


def updated_in_place(body: Block, var: Var, count: int | None = None) -> set[Var]:
    """The buffers of which an iteration reads elements before it writes any, each of which it writes, too, or
    no other of ``count`` values of ``var`` does; None for any number of them."""
    stores = [stmt for stmt in body if isinstance(stmt, Store)]
    written = {store.buffer for store in stores}
    return {buffer for buffer in written if _is_in_place(buffer, body, var, count)}


def _is_in_place(buffer: Var, body: Block, var: Var, count: int | None) -> bool:
    """Whether the stores of a body to a buffer follow all its reads, and write what these read or what these
    never do."""
    written: list[Access] = []
    read: list[Access] = []
    for stmt in body:
        items = [item for item in accesses((stmt,)) if item.buffer.same_as(buffer)]
        reads = [item for item in items if not item.is_write]
        if (reads and written) or (len(items) > len(reads) and not isinstance(stmt, Store)):
            return False
        read += reads
        written += [item for item in items if item.is_write]
    values = values_of(walk(body))
    return all(
        any(same_all(one.indices, place.indices) for place in written)
        or all(stay_apart(one, place, var, count, values) for place in written)
        for one in read
    )


def stay_apart(one: Access, other: Access, var: Var, count: int | None, values: Mapping[Var, Expr]) -> bool:
    """Whether two accesses of a buffer never name the same element at two of ``count`` values of ``var``:
    one of their indices moves with it and is apart. ``values``: what names stand for."""
    pairs = zip(one.indices, other.indices, strict=True)
    return any(_is_apart(inlined(a, values), inlined(b, values), var, count) for a, b in pairs)


def _is_apart(index: Expr, other: Expr, var: Var, count: int | None) -> bool:
    """Whether two indices that look nothing up differ at two values of ``var``, whichever these are."""
    if any(next(loads(each), None) is not None for each in (index, other)):
        return False
    sides = [linear_in(each, [var]) for each in (index, other)]
    if not all(sides):
        return False
    (step, rest), (beside, behind) = sides
    stride, distance = int_value(step), int_value(sym.Analyzer().simplify(rest - behind))
    if not stride or stride != int_value(beside) or distance is None:
        return False
    return distance % stride != 0 or distance == 0 or (count is not None and abs(distance // stride) >= count)


def conflicts(first: Sequence[Access], second: Sequence[Access]) -> set[Var]:
    """The buffers that both touch and at least one writes."""
    written = [{item.buffer for item in side if item.is_write} for side in (first, second)]
    touched = [{item.buffer for item in side} for side in (first, second)]
    return (written[0] & touched[1]) | (written[1] & touched[0])


def commute(first: Stmt, second: Stmt) -> bool:
    """Whether two statements of one block, ``first`` before ``second``, may trade places."""
    if isinstance(first, Alloc) or isinstance(second, Alloc):
        return _is_free_of_alloc(first, second)
    if isinstance(first, Bind) and _names(second, first.var):
        return False
    return not conflicts(accesses((first,)), accesses((second,)))


def _is_free_of_alloc(first: Stmt, second: Stmt) -> bool:
    if not isinstance(first, Alloc):
        return isinstance(second, Alloc) and second.init is None and second.buffer.scope() != "local.var"
    theirs = accesses((second,))
    uses_it = any(item.buffer.same_as(first.buffer) for item in theirs)
    return not uses_it and not conflicts(accesses((first,)), theirs)


def _names(stmt: Stmt, var: Var) -> bool:
    return any(uses(expr, (var,)) for inner in walk((stmt,)) for expr in expressions(inner))


def is_elementwise(indices: Sequence[Expr], variables: Sequence[Var]) -> bool:
    """Whether ``indices`` name a different element for every iteration over ``variables``: each variable
    moves an index of its own, one for one."""
    taken: set[int] = set()
    for var in variables:
        axis = next(
            (
                axis
                for axis, index in enumerate(indices)
                if axis not in taken and _is_unit(index, var, variables)
            ),
            None,
        )
        if axis is None:
            return False
        taken.add(axis)
    return True


def _is_unit(index: Expr, var: Var, variables: Sequence[Var]) -> bool:
    """Whether ``index`` is ``var`` plus something that no variable of the loop moves."""
    if index.same_as(var):
        return True
    others = [
        node for node in walk_expr(index) if isinstance(node, Var) and any(node.same_as(v) for v in variables)
    ]
    if len(others) != 1 or not others[0].same_as(var):
        return False
    return type(index).__name__ == "Add" and (index.a.same_as(var) or index.b.same_as(var))


def long_vars(loop: Parallel) -> tuple[Var, ...]:
    """The variables of a Parallel that take more than one value."""
    return tuple(var for var, extent in zip(loop.vars, loop.extents, strict=True) if int_value(extent) != 1)


def share_elements(items: Sequence[Access], variables: Sequence[Var]) -> bool:
    """Whether all accesses (to one buffer) are to one element of each iteration alone."""
    first = items[0].indices
    return is_elementwise(first, variables) and all(same_all(first, item.indices) for item in items[1:])


def same_extents(first: Parallel, second: Parallel) -> bool:
    """Whether two loops have the same iterations."""
    if len(first.extents) != len(second.extents):
        return False
    return all(same_extent(a, b) for a, b in zip(first.extents, second.extents, strict=True))


def same_extent(a: int | Expr, b: int | Expr) -> bool:
    """Whether two extents are known to be the same."""
    known = int_value(a), int_value(b)
    if None not in known:
        return known[0] == known[1]
    return known == (None, None) and same(a, b)
