"""Loops and the fragments that they index: which layout one gives the other.

    for i, j in parallel(64, 128): f[i, j] = g[j]

The thread that holds ``f[i, j]`` runs iteration (i, j), and has to hold ``g[j]``, too. Each index is taken
for a line along a loop variable (`loop_lines`); `followed` gives the loop's layout from a fragment's. Indices
of other forms tell nothing, and their fragment goes through shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tvm import tirx
from tvm.ir import Var

from tilec.backends.cuda.analysis.layouts.fragments import WARP, extended, free_runs
from tilec.errors import UnsupportedError
from tilec.ir.exprs import dtype_of, int_value, linear_in, loads, substitute, uncast, uses
from tilec.ir.layout import Digit, Layout
from tilec.ir.layout_algebra import same_threads, select, thread_terms
from tilec.ir.nodes import Alloc, Parallel, Store, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.places import place_of
from tilec.lowering.analysis.accesses import Access, accesses, values_of
from tilec.lowering.analysis.distinct import distinct

if TYPE_CHECKING:
    from tvm.ir import Expr


def loop_extents(loop: Parallel) -> tuple[int, ...]:
    """The extents of a loop; UnsupportedError where one is a run-time value."""
    extents = tuple(int_value(extent) for extent in loop.extents)
    if None in extents:
        raise UnsupportedError(
            "T.Parallel with run-time extents has no CUDA code yet",
            place=place_of(loop, "T.Parallel"),
            remedy="loop over blocks of a constant size and let the bounds cut them",
        )
    return extents  # type: ignore[return-value]


def loop_axis(index: Expr, loop: Parallel) -> int | None:
    """The loop variable that an index is, as a position; None for any other index."""
    index = uncast(index)
    if not isinstance(index, Var):
        return None
    return next((axis for axis, var in enumerate(loop.vars) if var.same_as(index)), None)


#: How many elements of a fragment an iteration may hold by itself.
_FEW = 16


class Line(NamedTuple):
    """What an index has of the loop variable ``axis``: ``factor`` times it, or one of ``per`` values, and
    ``offset``; ``window`` is how many times it begins behind as many elements as it goes through."""

    axis: int
    factor: int
    per: int = 1
    offset: int = 0
    window: int = 0


#: The parts that an index is the sum of, each a multiple of all that those before it come to; none: an index
#: of a dimension of one element. The first one alone has an offset, less than its factor, and the last one a
#: window of the dimension: ``j + 64`` for a j below 64 is the second.
Lines: TypeAlias = tuple[Line, ...]


def loop_line(index: Expr, loop: Parallel) -> Lines | None:
    """The parts that an index has of loop variables: one where it is on a line along a variable, several
    where it goes through a view that splits the dimension (``j * 128 + k`` for a k below 128), one of several
    values where these are packed (``j // 2``); None for any other index."""
    axis = loop_axis(index, loop)
    if axis is not None:
        return (Line(axis, 1),)
    if isinstance(index, tirx.FloorDiv):
        return _packed_line(index, loop)
    used = [position for position, var in enumerate(loop.vars) if uses(index, (var,))]
    linear = linear_in(index, [loop.vars[axis] for axis in used]) if used else []
    numbers = [number for part in linear if (number := int_value(part)) is not None]
    if not numbers or len(numbers) < len(linear):
        return None
    *factors, start = numbers
    lines = sorted(
        (Line(axis, factor) for axis, factor in zip(used, factors, strict=True)), key=lambda line: line.factor
    )
    extents = loop_extents(loop)
    whole = all(line.factor * extents[line.axis] == above.factor for line, above in pairwise(lines))
    if not whole or lines[0].factor < 1 or start < 0:
        return None
    window, offset = divmod(start, lines[-1].factor * extents[lines[-1].axis])
    lines[0] = lines[0]._replace(offset=offset)
    lines[-1] = lines[-1]._replace(window=window)
    return tuple(lines) if offset < lines[0].factor else None


def _packed_line(index: tirx.FloorDiv, loop: Parallel) -> Lines | None:
    axis, per = loop_axis(index.a, loop), int_value(index.b)
    if axis is None or per is None or per < 1 or loop_extents(loop)[axis] % per:
        return None
    return (Line(axis, 1, per),)


def loop_lines(item: Access, loop: Parallel) -> tuple[Lines, ...] | None:
    """Per dimension of an access the parts of the index that indexes it, none for dimensions of one element;
    None as a whole for any other index."""
    found: list[Lines] = []
    for dimension, index in enumerate(item.indices):
        lines = loop_line(index, loop)
        single = int_value(item.buffer.shape[dimension]) == 1
        met = {line.axis for others in found for line in others}
        if (lines is None and not single) or (lines and not met.isdisjoint(line.axis for line in lines)):
            return None
        found.append(lines or ())
    return tuple(found)


def row_lines(item: Access, loop: Parallel, trips: Set[Var]) -> tuple[Lines, ...] | None:
    """As `loop_lines`, and none for dimensions that an iteration names at constant places, or at those that a
    few ``trips`` choose, few in all: what the other dimensions have of long variables tells whose they are,
    where the variables that they leave out (`left_out`) take few values. None as a whole for any other
    access, and for one that `loop_lines` knows."""
    shape = [int_value(extent) or 0 for extent in item.buffer.shape]
    lines = [loop_line(index, loop) for index in item.indices]
    apart = [at for at, own in enumerate(lines) if own is None and shape[at] > 1]
    known = all(_is_place(item.indices[at], shape[at], trips) for at in apart)
    met = [line.axis for own in lines for line in own or ()]
    if not apart or not known or len({*met}) < len(met):
        return None
    found, extents = tuple(own or () for own in lines), loop_extents(loop)
    few = (shape[at] for at in apart), (extents[axis] for axis in left_out(found, loop))
    return found if all(math.prod(sizes) <= _FEW for sizes in few) else None


def left_out(dimensions: Iterable[Lines], loop: Parallel) -> set[int]:
    """The variables of a loop of more than one value that an access leaves out, by position."""
    met = {line.axis for lines in dimensions for line in lines}
    return {axis for axis, extent in enumerate(loop_extents(loop)) if extent > 1} - met


def _is_place(index: Expr, extent: int, trips: Set[Var]) -> bool:
    """Whether an index is a constant of a dimension, or counts trips."""
    return int_value(index) in range(extent) or uncast(index) in trips


def thinned(layout: Layout, dimension: int, factor: int) -> tuple[Digit, ...] | None:
    """The digits of every ``factor``-th index of a dimension; None where threads hold those between."""
    digits = layout.digits[dimension]
    if factor == 1:
        return digits
    first = next(iter(digits), None)
    if first is None or first.space != "reg" or first.size % factor:
        return None
    left = Digit(first.size // factor, first.stride * factor, "reg")
    return (*((left,) if left.size > 1 else ()), *digits[1:])


def followed(layout: Layout, dimensions: tuple[Lines, ...]) -> Layout | None:
    """The layout of a fragment whose dimensions have these parts of the variables of a loop of ``layout``:
    what lies between two iterations is in registers. Threads that share what is packed hold copies. None
    where a digit goes through some of what is packed and through more."""
    packed = {line.axis: line.per for lines in dimensions for line in lines}
    digits_of = [_above(own, packed.get(axis, 1)) for axis, own in enumerate(layout.digits)]
    found = [own for own in digits_of if own is not None]
    if len(found) < len(digits_of):
        return None
    kept = select(Layout(tuple(found)), [line.axis for lines in dimensions for line in lines])
    apart = math.prod(lines[0].factor for lines in dimensions if lines)
    rest = iter(kept.digits)
    digits: list[tuple[Digit, ...]] = []
    between = 1
    for lines in dimensions:
        factor = lines[0].factor if lines else 1
        own = tuple(_apart(digit, apart) for _ in lines for digit in next(rest))
        digits.append((*((Digit(factor, between, "reg"),) if factor > 1 else ()), *own))
        between *= factor
    return Layout(tuple(digits))


def with_rows(layout: Layout, shape: Sequence[int]) -> Layout:
    """A layout whose dimensions without digits lie in registers."""
    held = [digit for digits in layout.digits for digit in digits if digit.space == "reg"]
    step = math.prod(digit.size for digit in held)
    made: list[tuple[Digit, ...]] = []
    for digits, extent in zip(layout.digits, shape, strict=True):
        if len(digits) > 0 or extent == 1:
            made.append(digits)
            continue
        made.append((Digit(extent, step, "reg"),))
        step *= extent
    return Layout(tuple(made))


def with_neighbours(layout: Layout, axes: Set[int]) -> Layout:
    """A layout whose threads have neighbours along some axes, and not what lies as far apart as lanes and
    warps have theirs."""

    def turned(digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
        return tuple(sorted(digits, key=lambda digit: digit.space != "reg"))

    return Layout(tuple(turned(own) if axis in axes else own for axis, own in enumerate(layout.digits)))


def _apart(digit: Digit, step: int) -> Digit:
    """A digit whose registers lie ``step`` times as far from each other."""
    return replace(digit, stride=digit.stride * step) if digit.space == "reg" else digit


def fitting_fragment(
    loop: Parallel, items: Sequence[Access], layouts: Mapping[Var, Layout], partly: bool
) -> Access | None:
    """The access that a loop takes its layout from: it covers every variable, or (``partly``) the most; of
    such ones rather one that is indexed by variables alone."""
    long = {axis for axis, extent in enumerate(loop_extents(loop)) if extent > 1}
    best: tuple[tuple[int, bool], Access] | None = None
    for item in items:
        whole = loop_lines(item, loop)
        lines = _followed_lines(item, loop)
        if lines is None or item.buffer not in layouts:
            continue
        layout = layouts[item.buffer]
        if any(_spread(layout, dimension, own, loop) is None for dimension, own in enumerate(lines)):
            continue
        axes = [line.axis for own in lines for line in own]
        count = (len(long & set(axes)), whole is not None)
        enough = long <= set(axes) or (partly and count[0] > 0)
        if enough and (best is None or count > best[0]):
            best = (count, item)
    return None if best is None else best[1]


def loop_layout(
    loop: Parallel, item: Access, layouts: Mapping[Var, Layout], warps: int, vector: int
) -> Layout:
    """The layout of a loop that follows a fragment; variables that do not index it take free threads."""
    dimensions = _followed_lines(item, loop)
    assert dimensions is not None
    extents, layout = loop_extents(loop), layouts[item.buffer]
    digits: list[tuple[Digit, ...]] = [()] * len(extents)
    for dimension, lines in enumerate(dimensions):
        for line, own in zip(lines, _spread(layout, dimension, lines, loop) or (), strict=False):
            digits[line.axis] = own
    axes = [line.axis for lines in dimensions for line in lines]
    if any(line.per > 1 for lines in dimensions for line in lines):
        digits = list(
            _with_packed(digits, {line.axis for lines in dimensions for line in lines if line.per > 1})
        )
    free = [axis for axis, extent in enumerate(extents) if axis not in axes and extent > 1]
    if not free:
        return Layout(tuple(digits))
    lanes, groups = free_runs(layout, "lane", WARP), free_runs(layout, "warp", warps)
    return extended(digits, extents, free, lanes, groups, vector)


def _followed_lines(item: Access, loop: Parallel) -> tuple[Lines, ...] | None:
    """As `loop_lines`, and of an access whose iterations have lines to themselves (`_has_own_line`) none for
    the dimensions along them."""
    whole = loop_lines(item, loop)
    if whole is not None or not _has_own_line(item, loop):
        return whole
    lines = [loop_line(index, loop) or () for index in item.indices]
    met = [line.axis for own in lines for line in own]
    return tuple(lines) if len(met) == len({*met}) else None


def _spread(
    layout: Layout, dimension: int, lines: Lines, loop: Parallel
) -> tuple[tuple[Digit, ...], ...] | None:
    """The digits of a dimension of a fragment along the parts of an index, which are those of its variables;
    None where threads hold parts of them, there are too few, a digit belongs to two variables, or threads
    hold windows of the dimension apart."""
    if not lines:
        return None if thread_terms(layout, dimension) else ()
    extents = loop_extents(loop)
    last = lines[-1]
    if layout.shape[dimension] * lines[0].per < last.factor * extents[last.axis] * (last.window + 1):
        return None
    if lines[0].per > 1:
        return ((Digit(lines[0].per, 1, "reg"), *layout.digits[dimension]),)
    left = thinned(layout, dimension, lines[0].factor)
    found: list[tuple[Digit, ...]] = []
    for line in lines[:-1]:
        cut = None if left is None else _cut(left, extents[line.axis])
        if cut is None:
            return None
        found.append(cut[0])
        left = cut[1]
    own = None if left is None else _window(left, extents[last.axis], last.window)
    return None if own is None else (*found, own)


def _window(digits: tuple[Digit, ...], extent: int, window: int) -> tuple[Digit, ...] | None:
    """The digits of ``extent`` indices, behind ``window`` times as many: those below, where each thread has
    its elements of all windows in registers. Elsewhere None, or for the first window all digits."""
    cut = _cut(digits, extent)
    if cut is not None and all(digit.space == "reg" or digit.size == 1 for digit in cut[1]):
        return cut[0]
    return None if window else digits


def _above(digits: Sequence[Digit], count: int) -> tuple[Digit, ...] | None:
    """The digits above those that go through the first ``count`` values."""
    cut = _cut(digits, count)
    return None if cut is None else cut[1]


def _cut(digits: Sequence[Digit], extent: int) -> tuple[tuple[Digit, ...], tuple[Digit, ...]] | None:
    """The digits that go through the first ``extent`` values, and the others; None where one goes through
    some of both."""
    below: list[Digit] = []
    for position, digit in enumerate(digits):
        if extent == 1:
            return tuple(below), tuple(digits[position:])
        size = min(digit.size, extent)
        if digit.size % size or extent % size:
            return None
        below.append(replace(digit, size=size))
        extent //= size
        if size < digit.size:
            rest = replace(digit, size=digit.size // size, stride=digit.stride * size)
            return (tuple(below), (rest, *digits[position + 1 :])) if extent == 1 else None
    return (tuple(below), ()) if extent == 1 else None


def _with_packed(digits: Sequence[tuple[Digit, ...]], axes: Set[int]) -> Iterator[tuple[Digit, ...]]:
    """The digits of a loop, of which the first of some ``axes`` go through what is packed: registers that lie
    side by side, the others as far apart as all of these are."""
    sizes = {axis: digits[axis][0].size for axis in axes}
    step = math.prod(sizes.values())
    between = 1
    for axis, own in enumerate(digits):
        first = (Digit(sizes[axis], between, "reg"),) if axis in axes else ()
        between *= sizes.get(axis, 1)
        yield (*first, *(_apart(digit, step) for digit in own[len(first) :]))


def fits(item: Access, loop: Parallel, layout: Layout, fragment: Layout) -> bool:
    """Whether every thread holds the elements that its iterations touch, in registers that it can name."""
    seen: set[int] = set()
    for dimension, index in enumerate(item.indices):
        lines = loop_line(index, loop)
        if not lines or not seen.isdisjoint(line.axis for line in lines):
            alone = int_value(item.buffer.shape[dimension]) == 1
            is_own = alone or not item.is_write or _has_own_line(item, loop)
            if thread_terms(fragment, dimension) or not is_own:
                return False
            continue
        seen.update(line.axis for line in lines)
        found = _spread(fragment, dimension, lines, loop)
        if found is None:
            return False
        if lines[0].per > 1:
            above = _packed_digits(layout.digits[lines[0].axis], lines[0].per, item.is_write)
            if above is None or not same_threads(Layout((above,)), 0, fragment, dimension):
                return False
            continue
        for line, own in zip(lines, found, strict=True):
            padded = line.window and layout.shape[line.axis] != loop_extents(loop)[line.axis]
            if padded or not same_threads(Layout((own,)), 0, layout, line.axis):
                return False
    return True


def _has_own_line(item: Access, loop: Parallel) -> bool:
    """Whether the elements that an iteration touches lie on a line that no other one comes to, at whatever
    places: some dimensions are indexed by every variable that takes more than one value."""
    met = {line.axis for index in item.indices for line in loop_line(index, loop) or ()}
    return {axis for axis, extent in enumerate(loop_extents(loop)) if extent > 1} <= met


def _packed_digits(digits: Sequence[Digit], per: int, is_write: bool) -> tuple[Digit, ...] | None:
    """The digits of a loop above ``per`` values that share an element; None where none are, or where threads
    share what they write."""
    below, above = _cut(digits, per) or (digits, None)
    return None if is_write and any(digit.space != "reg" for digit in below) else above


def repeated_write(loop: Parallel, fragments: set[Var]) -> Access | None:
    """A write of a fragment's element by several iterations of a loop, or by one and perhaps others."""
    inside = {stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc)}
    for item in accesses(loop.body):
        held = item.buffer in fragments or item.buffer.scope() in PER_THREAD
        if not item.is_write or not held or item.buffer in inside:
            continue
        if not one_to_one(written_out(item.indices, loop), long_variables(loop), loop):
            return item
    return None


def overwrites(loop: Parallel, fragment: Var) -> bool:
    """Whether a loop writes all elements of a fragment, whatever is true, and reads none."""
    if any(item.buffer.same_as(fragment) and not item.is_write for item in accesses(loop.body)):
        return False
    sizes, shape = loop_extents(loop), tuple(int_value(extent) for extent in fragment.shape)
    for stmt in loop.body:
        if isinstance(stmt, Store) and stmt.buffer.same_as(fragment):
            axes = [loop_axis(index, loop) for index in stmt.indices]
            known = [axis for axis in axes if axis is not None]
            if len({*known}) == len(axes) and tuple(sizes[axis] for axis in known) == shape:
                return True
    return False


def long_variables(loop: Parallel) -> tuple[Var, ...]:
    """The variables of a loop that take more than one value."""
    return tuple(var for var, extent in zip(loop.vars, loop_extents(loop), strict=True) if extent > 1)


def written_out(indices: Sequence[Expr], loop: Parallel) -> tuple[Expr, ...]:
    """Indices over the variables of a loop, without names that its body binds."""
    values = values_of(walk(loop.body))
    for _ in values:
        indices = tuple(substitute(index, values) for index in indices)
    return tuple(indices)


def one_to_one(indices: Sequence[Expr], variables: Sequence[Var], loop: Parallel) -> bool:
    """Whether different values of ``variables`` of a loop surely name different elements: each of them has an
    index that is linear in it and depends on none of the others, or all values show that it is so."""
    if all(any(is_line(index, var, variables) for index in indices) for var in variables):
        return True
    extents = dict(zip(loop.vars, loop_extents(loop), strict=True))
    alone = {var: tirx.const(0, dtype_of(var)) for var in loop.vars if extents[var] == 1}
    indices = [substitute(index, alone) for index in indices]
    return distinct(indices, variables, [extents[var] for var in variables])


def is_line(index: Expr, var: Var, variables: Sequence[Var]) -> bool:
    """Whether an index is linear in ``var`` and depends on none of the other ``variables``."""
    others = [other for other in variables if not other.same_as(var)]
    if not uses(index, (var,)) or uses(index, others) or next(loads(index), None) is not None:
        return False
    return step_along(index, var) != 0


def step_along(index: Expr, var: Var) -> int:
    """By how much an index grows with a variable; 0 where it does not, or by what is not known."""
    linear = linear_in(index, [var]) if uses(index, (var,)) else []
    return (int_value(linear[0]) or 0) if linear else 0
