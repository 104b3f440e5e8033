"""Tiles of floats that one statement converts from bytes, or from numbers that bytes hold, for products of
few rows: a base for passes that leave them unwritten."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.cpu.passes.products.select_microkernel import plain_block
from tilec.ir.analysis.numbers.intervals import Interval, of_type
from tilec.ir.analysis.numbers.ranges import SHORT, bounds
from tilec.ir.exprs import (
    cast_to,
    choice_of,
    dtype_of,
    inlined,
    int_value,
    loads,
    same_all,
    substitute,
    uses,
    walk,
    with_part,
)
from tilec.ir.nodes import Bind, Copy, Launch, Parallel, Region, Stmt, Store, is_global
from tilec.ir.traits import written
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.regions import is_whole, static
from tilec.lowering.analysis.uses import addressed_in, changed_in, users
from tilec.lowering.math.float8 import FLOAT8_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Types of numbers of eight bits or fewer, all of which every wider float type has.
_STORED = ("int8", "uint8", *FLOAT8_TYPES)

#: The greatest whole number that numbers are taken off by: bfloat16 has all up to there.
_MOST = 128

#: Types of tiles that hold them exactly.
CONVERTED = ("float16", "bfloat16", "float32")

#: The form that gives way to them: that of aarch64's words and of matrix units was not measured beside them.
_WORDS = "vdpbf16ps"

#: Subexpressions of the longest value that is looked at, and ways in which choices of one may fall: sums of
#: choices have twice as many with each.
_LONGEST, _MOST_WAYS = 512, 256


class StoredTiles:
    """Looks at one launch."""

    def __init__(self, launch: Launch, target: Target) -> None:
        self.launch = launch
        self.target = target
        self.users = users(launch.body)
        self.unsure = changed_in(launch) | addressed_in(launch.body)

    def readers(self, tile: Var) -> list[Stmt]:
        """The statements that read ``tile``."""
        return [user for user in self.users[tile] if tile not in written(user)]

    def origin(self, source: Region, brought: dict[Var, Copy]) -> Region:
        """What one Copy brings to all of ``source`` from a tensor that stays as it is, else ``source``."""
        copy = brought.get(source.buffer)
        if copy is None or not is_whole(source) or not is_whole(copy.dst) or not _is_alike(copy):
            return source
        if not is_global(copy.src.buffer) or copy.src.buffer in self.unsure:
            return source
        if any(True for start in copy.src.start for _ in loads(start)):
            return source
        writers = [user for user in self.users[source.buffer] if source.buffer in written(user)]
        return copy.src if writers == [copy] else source

    def serves_few_rows(self, tile: Var, *, computed: bool) -> bool:
        """Whether one statement fills ``tile`` for nothing but products of few rows, as few as convert bytes
        that are stored, or ``computed``, faster than they would read floats."""
        readers = self.readers(tile)
        alone = len(readers) + 1 == len(self.users[tile])
        return alone and bool(readers) and all(self._is_few(user, tile, computed) for user in readers)

    def _is_few(self, user: Stmt, tile: Var, computed: bool) -> bool:
        """Whether ``user`` is a product that has ``tile`` as its ``b`` alone, and few rows beside it."""
        if not isinstance(user, MicroGemm):
            return False
        alone = not user.c.buffer.same_as(tile) and not user.a.region.buffer.same_as(tile)
        return alone and static(user.a.region.extent[user.a.row]) <= self._most_rows(user, computed)

    def _most_rows(self, gemm: MicroGemm, computed: bool) -> int:
        """Rows up to which multiply-adds of float32 convert each byte once and are ahead; 0 where sums have
        another type. Seven rows beside computed bytes have less to do with words of bfloat16, which are made
        of numbers at once (docs/performance/cpu-attention.md)."""
        if gemm.computed != "float32":
            return 0
        if gemm.block.form == _WORDS:
            rows = plain_block(self.target, gemm.computed, static(gemm.c.extent[-1])).rows
            return rows * 3 // 4 if computed else rows
        return gemm.block.rows if gemm.block.form == "fma" else 0


def conversion(stmt: Stmt) -> Copy | None:
    """``stmt`` as a Copy, if it fills all of a tile with converted bytes."""
    copy = stmt if isinstance(stmt, Copy) else _as_copy(stmt)
    if copy is None or not is_whole(copy.dst) or is_global(copy.dst.buffer):
        return None
    stored, converted = (str(region.buffer.dtype) for region in (copy.src, copy.dst))
    return copy if stored in _STORED and converted in CONVERTED else None


def _is_alike(copy: Copy) -> bool:
    return str(copy.src.buffer.dtype) == str(copy.dst.buffer.dtype)


def only_store(loop: Parallel) -> Store | None:
    """The store of an iteration of ``loop`` that does nothing but it, its value without names; None where it
    does something else, or the value is longer than one that bytes hold: names that read others twice double
    it with each link."""
    *names, store = loop.body
    if not isinstance(store, Store) or not all(isinstance(name, Bind) for name in names):
        return None
    value = inlined(store.value, values_of(names))
    is_long = next(islice(walk(value), _LONGEST, None), None) is not None
    return None if is_long else replace(store, value=value)


def _as_copy(stmt: Stmt) -> Copy | None:
    """A loop that stores one converted element in each iteration, at its variables; None for any other."""
    store = only_store(stmt) if isinstance(stmt, Parallel) else None
    if store is None or not isinstance(stmt, Parallel) or not same_all(store.indices, stmt.vars):
        return None
    load = _converted(store.value)
    start = None if load is None else _start(load, stmt.vars)
    if load is None or start is None:
        return None
    count = len(load.indices) - len(stmt.vars)
    source = Region(load.source, start, (*[1] * count, *stmt.extents))
    return Copy(source, Region(store.buffer, _zeros(stmt.vars), stmt.extents), loc=stmt.loc)


def _zeros(moving: tuple[Var, ...]) -> tuple[Expr, ...]:
    return tuple(tirx.const(0, dtype_of(var)) for var in moving)


def _converted(value: Expr) -> TensorLoad | None:
    """The element that ``value`` is, through types that hold it exactly."""
    number = stored_number(value)
    return number if isinstance(number, TensorLoad) else None


def of_numbers(stmt: Stmt) -> Store | None:
    """The store of an iteration of a loop that fills all of a tile of floats with integers that a byte holds,
    as a store of bytes; None for any other, and for bytes as they are stored."""
    store = only_store(stmt) if isinstance(stmt, Parallel) else None
    if store is None or not isinstance(stmt, Parallel) or not same_all(store.indices, stmt.vars):
        return None
    filled = Region(store.buffer, _zeros(stmt.vars), stmt.extents)
    if is_global(store.buffer) or not is_whole(filled) or str(store.buffer.dtype) not in CONVERTED:
        return None
    number = stored_number(store.value)
    if number is None or isinstance(number, TensorLoad):
        return None
    return replace(store, value=cast_to(number, _byte_type(number) or ""))


def stored_number(value: Expr) -> Expr | None:
    """The element of eight bits, or the integer that a byte holds, that a float is, through types that hold
    it exactly; sums and differences of integers are integers."""
    if isinstance(value, tirx.Cast) and dtype_of(value) in CONVERTED:
        inner = value.value
        return stored_number(inner) if dtype_of(inner) in CONVERTED else _held(inner)
    if not isinstance(value, (tirx.Add, tirx.Sub)) or dtype_of(value) not in CONVERTED:
        return None
    sides = [
        _whole(side) if isinstance(side, tirx.FloatImm) else stored_number(side)
        for side in (value.a, value.b)
    ]
    known = [cast_to(side, "int32") for side in sides if side is not None and dtype_of(side) in SHORT]
    return _held(type(value)(*known)) if len(known) == len(sides) else None


def _held(number: Expr) -> Expr | None:
    """``number`` if it is an element of eight bits, or an integer that a byte holds."""
    if isinstance(number, TensorLoad) and dtype_of(number) in _STORED:
        return number
    return number if dtype_of(number) in SHORT and _byte_type(number) is not None else None


def _whole(literal: tirx.FloatImm) -> Expr | None:
    """The whole number that a literal is, small enough for every type of a tile."""
    number = float(literal.value)
    return tirx.const(int(number), "int32") if number.is_integer() and abs(number) <= _MOST else None


def _byte_type(number: Expr) -> str | None:
    """The type of bytes that has all that an integer may be; None where there is none."""
    known = _range(number)
    return next((dtype for dtype in ("int8", "uint8") if known.fits(of_type(dtype))), None)


def _range(number: Expr) -> Interval:
    """What an integer may be, whichever sides its choices take; all that its type has where they have more
    ways to fall than are looked at."""
    ways = list(islice(_without_choices(number), _MOST_WAYS + 1))
    if len(ways) > _MOST_WAYS:
        return of_type(dtype_of(number))
    return reduce(Interval.joined, (Interval(*bounds(way, sym.Analyzer())) for way in ways))


def _without_choices(number: Expr) -> Iterator[Expr]:
    """An integer for each way in which its choices may fall."""
    choice = next((node for node in walk(number) if choice_of(node) is not None), None)
    if choice is None:
        yield number
        return
    for side in (choice_of(choice) or ())[1:]:
        yield from _without_choices(with_part(number, choice, side))


def _start(load: TensorLoad, moving: tuple[Var, ...]) -> tuple[Expr, ...] | None:
    """Where ``load`` is at the first iteration, if its last indices grow with one of the variables each, in
    their order, and its first with none."""
    first, analyzer = {var: tirx.const(0, dtype_of(var)) for var in moving}, sym.Analyzer()
    start = tuple(analyzer.simplify(substitute(index, first)) for index in load.indices)
    leading = len(start) - len(moving)
    if leading < 0 or any(uses(index, moving) for index in load.indices[:leading]):
        return None
    pairs = zip(load.indices[leading:], start[leading:], moving, strict=True)
    steps = (int_value(analyzer.simplify(index - at - var)) for index, at, var in pairs)
    return start if all(step == 0 for step in steps) else None
