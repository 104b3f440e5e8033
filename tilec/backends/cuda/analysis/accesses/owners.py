"""Accesses of shared and global memory that stay with one thread.

Two loops that give an element to the same thread need no barrier between them. Which thread that is follows
from the dimensions that the loop's variables index: `Owner` says per dimension which variables its index
spells. A base is allowed that is a multiple of what they span, since the element then still tells them, and
a rest that is the same wherever the launch's blocks are (`Known`): it only moves all elements. A variable may
step over some elements (8 * i + v for a v below 8), whose chunk tells it. What threads do one by one is a
loop over the threads (`Each`), whose indices count by the digits that the author takes them apart into.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx
from tvm.ir import Range, Var
from tvm.sym import Analyzer

from tilec.backends.cuda.analysis.blocks.thread_digits import ThreadDigits
from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import dtype_of, inlined, int_value, linear_in, loads, uncast, uses, variables_of
from tilec.ir.layout import Digit, Layout
from tilec.ir.layout_algebra import Term, thread_terms
from tilec.ir.nodes import Bind, Block, For, If, Launch, Stmt, children, walk
from tilec.ir.nodes.barriers import Group
from tilec.ir.traits import defined, expressions
from tilec.lowering.analysis.accesses import Access

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.nodes import ThreadLoop

#: Variables that spell an index: how far they count, and the threads along it.
Spread: TypeAlias = "tuple[int, tuple[Term, ...]]"
#: What moves all elements of a dimension, as text, and its variables; or how many elements make a chunk.
Rest: TypeAlias = "tuple[str, tuple[Var, ...]]"
#: Per dimension what the variables that index it spread, and what it is moved by.
Owner: TypeAlias = "tuple[tuple[Spread, Rest], ...]"

#: Numbers that no index reaches: what a type alone says is no bound.
_ENDLESS = 1 << 30


@dataclass(frozen=True)
class Known:
    """What is known of the variables in indices: the values of ``names`` (`bound_names`), those that
    statements of the launch ``define``, whose values are others from trip to trip or from thread to thread,
    and between which numbers those of loops lie (`loop_ends`)."""

    names: Mapping[Var, Expr] = field(default_factory=dict)
    defined: Set[Var] = frozenset()
    ends: Mapping[Var, Range] = field(default_factory=dict)

    @staticmethod
    def of(launch: Launch) -> Known:
        """What a launch tells."""
        names = bound_names(launch.body)
        every = {var for stmt in walk(launch.body) for var in defined(stmt)}
        return Known(names, every - steady_names(launch), loop_ends(launch.body))

    def within(self, value: Expr, size: int) -> bool:
        """Whether a value is known to lie between 0 and ``size``, that excluded."""
        found = self.bound(value)
        return found is not None and found[0] >= 0 and found[1] < size

    def bound(self, value: Expr, ranges: Mapping[Var, Range] | None = None) -> tuple[int, int] | None:
        """Between which numbers a value lies, both included, where variables lie in ``ranges``; None where
        nothing says it."""
        analyzer, ends = Analyzer(), {**self.ends, **(ranges or {})}
        for var in variables_of([value]):
            if var in ends:
                analyzer.bind(var, ends[var])
        found = analyzer.const_int_bound(value)
        low, high = int(found.min_value), int(found.max_value)
        return (low, high) if low > -_ENDLESS and high < _ENDLESS else None


@dataclass(frozen=True)
class Each:
    """The threads of a launch as a loop over the digits of their indices, of which each runs one
    iteration."""

    digits: ThreadDigits
    layout: Layout

    @staticmethod
    def of(launch: Launch) -> Each | None:
        """None where indices are no digits of lanes and warps, or where the author has none."""
        if not launch.thread_vars:
            return None
        names = bound_names(launch.body)
        exprs = (inlined(expr, names) for stmt in walk(launch.body) for expr in expressions(stmt))
        taken_apart = ThreadDigits.of(launch.thread_vars, launch.threads, exprs)
        for digits in (taken_apart, ThreadDigits(launch.thread_vars, launch.threads)):
            layout = _layout(digits.extents)
            if layout is not None:
                return Each(digits, layout)
        return None

    @property
    def vars(self) -> tuple[Var, ...]:
        """The digits, as variables."""
        return self.digits.vars

    @property
    def extents(self) -> tuple[int, ...]:
        """How many values each has."""
        return self.digits.extents

    @property
    def warps(self) -> int:
        """How many warps they are."""
        return math.prod(self.extents) // WARP


def _layout(extents: Iterable[int]) -> Layout | None:
    """The lanes and warps that digits of threads count, fastest first; None where they count neither."""
    digits, stride = [], 1
    for extent in extents:
        lanes = min(extent, max(1, WARP // stride))
        if extent % lanes or (lanes < extent and stride * lanes % WARP):
            return None
        warps = Digit(extent // lanes, max(1, stride * lanes // WARP), "warp")
        digits.append((Digit(lanes, stride, "lane"), warps) if lanes > 1 else (warps,))
        stride *= extent
    return Layout(tuple(digits))


def in_loop(item: Access, loop: ThreadLoop | Each, known: Known) -> Access:
    """An access by the variables of ``loop``, as `owner` and `reach` read it."""
    indices = tuple(inlined(index, known.names) for index in item.indices)
    if isinstance(loop, Each):
        indices = tuple(loop.digits.spell(index) for index in indices)
    return replace(item, indices=indices)


def owner(item: Access, loop: ThreadLoop | Each, warps: int, known: Known) -> Owner | None:
    """Who has the element that an access names, which is as `in_loop` spells it; None where that is not one
    thread by a rule that another loop could share. Of threads that have an iteration together one alone
    writes (`over_layout`)."""
    found = _owner(item.indices, item, loop, warps, known)
    flat = _flat(item.indices, item) if found is None else None
    return found if flat is None else _owner([flat], item, loop, warps, known)


def _owner(
    indices: Sequence[Expr], item: Access, loop: ThreadLoop | Each, warps: int, known: Known
) -> Owner | None:
    """Who has the element at indices."""
    found = []
    for index in indices:
        axes, rest = _axes(index, loop, known)
        found.append((_along(axes, loop), rest))
    spread = _spread([along for along, _ in found])
    once = item.is_write and spread == _spread([_along((axis,), loop) for axis in range(len(loop.extents))])
    return tuple(found) if once or spread == {"lane": WARP, "warp": warps} else None


def _flat(indices: Sequence[Expr], item: Access) -> Expr | None:
    """The one index that says what those of rows and columns together say: of ``e // 34`` and ``e % 34`` in
    rows of 34 elements that is e. None where the shape is open, or there is one index."""
    extents = [int_value(extent) for extent in item.buffer.shape]
    if len(extents) < 2 or None in extents:
        return None
    flat = indices[0]
    for index, extent in zip(indices[1:], extents[1:], strict=True):
        flat = flat * tirx.const(extent, dtype_of(flat)) + index
    return _analyzer().simplify(flat)


def bound_names(block: Block) -> dict[Var, Expr]:
    """What the names that a block binds once stand for, where they are no reads of memory."""
    binds = [stmt for stmt in walk(block) if isinstance(stmt, Bind)]
    times = Counter(stmt.var for stmt in binds)
    return {
        stmt.var: stmt.value
        for stmt in binds
        if times[stmt.var] == 1 and next(loads(stmt.value), None) is None
    }


def steady_names(launch: Launch) -> set[Var]:
    """The names that a launch binds once, in no loop, to values that are the same for all threads."""
    times = Counter(stmt.var for stmt in walk(launch.body) if isinstance(stmt, Bind))
    once = (stmt.var for stmt in _once(launch.body) if isinstance(stmt, Bind) and times[stmt.var] == 1)
    found = set(once)
    return found - Uniformity(launch).varying if found else found


def _once(block: Block) -> Iterator[Stmt]:
    """The statements of a block that run once at most."""
    for stmt in block:
        yield stmt
        if isinstance(stmt, (If, Group)):
            for inner in children(stmt):
                yield from _once(inner)


def loop_ends(block: Block) -> dict[Var, Range]:
    """From where to where the variables go that one loop of a block counts between two numbers."""
    loops = [stmt for stmt in walk(block) if isinstance(stmt, For)]
    times = Counter(stmt.var for stmt in loops)
    found = {stmt.var: known_trips(stmt) for stmt in loops if times[stmt.var] == 1}
    return {
        var: Range(*(tirx.const(end, dtype_of(var)) for end in (min(trips), max(trips) + 1)))
        for var, trips in found.items()
        if trips
    }


def _axes(index: Expr, loop: ThreadLoop | Each, known: Known) -> tuple[list[int], Rest]:
    """The variables that an index spells like digits (j, or i * 8 + j for a j below 8), as positions, fastest
    first, up to a base that is a multiple of what they span but for a rest, which stays within a chunk where
    the fastest one steps over that; none for any other index."""
    nothing: tuple[list[int], Rest] = [], ("", ())
    index = uncast(index)
    own = [axis for axis, var in enumerate(loop.vars) if uses(index, (var,))]
    if not own or next(loads(index), None) is not None:
        return nothing
    linear = linear_in(index, [loop.vars[axis] for axis in own])
    if not linear:
        return nothing
    steps = [int_value(step) or 0 for step in linear[:-1]]
    chunk = span = min(steps)
    if chunk < 1:
        return nothing
    found = []
    for step, axis in sorted(zip(steps, own, strict=True)):
        if step != span:
            return nothing
        span *= loop.extents[axis]
        found.append(axis)
    rest = _rest(linear[-1], span)
    if chunk > 1:
        return (found, (f"chunks of {chunk}", ())) if known.within(rest, chunk) else nothing
    variables = tuple(variables_of([rest]))
    return nothing if known.defined & set(variables) else (found, (str(rest), variables))


def _rest(base: Expr, span: int) -> Expr:
    """``base`` without the terms that are known for multiples of ``span``."""
    base = _analyzer().simplify(base)
    zero = tirx.const(0, dtype_of(base))
    if _is_multiple(base, span):
        return zero
    return _analyzer().simplify(sum((term for term in _terms(base) if not _is_multiple(term, span)), zero))


def _terms(value: Expr) -> list[Expr]:
    """What is added, or with a sign taken away."""
    if isinstance(value, tirx.Add):
        return [*_terms(value.a), *_terms(value.b)]
    if isinstance(value, tirx.Sub):
        return [*_terms(value.a), *(tirx.const(0, dtype_of(term)) - term for term in _terms(value.b))]
    return [value]


def _is_multiple(base: Expr, extent: int) -> bool:
    """Whether ``base`` is known for a multiple of ``extent``."""
    found = _analyzer().modular_set(base)
    return bool(found.coeff % extent == 0 and found.base % extent == 0)


@cache
def _analyzer() -> Analyzer:
    return Analyzer()


def _along(axes: Sequence[int], loop: ThreadLoop | Each) -> Spread:
    """How far variables count together, fastest first, and the threads along that: one below 4 and one below
    8 spread as one below 32 does whose digits are theirs. No threads where a layout has more places than a
    variable values, and the next one does not follow."""
    parts = [loop.layout.digits[axis] for axis in axes]
    whole = zip(axes[:-1], parts, strict=False)
    if any(math.prod(digit.size for digit in part) != loop.extents[axis] for axis, part in whole):
        return 1, ()
    digits = tuple(digit for part in parts for digit in part)
    return math.prod(loop.extents[axis] for axis in axes), thread_terms(Layout((digits,)), 0)


def _spread(found: Sequence[Spread]) -> dict[str, int]:
    """How many lanes and warps have different values of the dimensions: all of them where none holds a
    copy."""
    total = {"lane": 1, "warp": 1}
    for _, terms in found:
        for term in terms:
            total[term.space] = total.get(term.space, 1) * term.size
    return total
