"""Vectors between memory and a thread's registers, and pairs of small floats made at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST
from tilec.backends.cuda.device.atomics import add_vector
from tilec.backends.cuda.device.ends import realign
from tilec.backends.cuda.device.floats import PAIRED, pack, pack_small
from tilec.backends.cuda.device.moves import move, read_at, take
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loops.spots import bytes_of, rest
from tilec.backends.cuda.emit.numbers.quotients import bytes_to, quotient
from tilec.backends.cuda.emit.statements import call, once_tests
from tilec.ir.analysis.numbers.ranges import BEYOND_TYPE
from tilec.ir.exprs import all_of, as_expr, dtype_of, int_value, summands, walk
from tilec.ir.layout_algebra import extent_of
from tilec.lowering.analysis.conditions import is_quotient
from tilec.lowering.emission.statements import guarded, sequence
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var
    from tvm.sym import Analyzer

#: Bytes of vectors of which a fragment's reads are so many that their addresses count.
_SUMMED = (1, 2, 4, 8)
#: Bytes of what instructions take of two 16-bit floats.
_WORD = 4


def load_vector(
    buffer: Var,
    place: Expr,
    tmp: Var,
    start: Expr | int,
    width: int,
    tests: list[Expr],
    ctx: DeviceContext,
) -> tirx.Stmt:
    """``tmp[start : start + width]`` = the elements from ``place``, zeros where a test fails."""
    start = as_expr(start)
    if not tests:
        return read_vector(buffer, place, tmp, start, width, ctx)
    storage = ctx.storage(buffer)
    size = width * element_bytes(storage.dtype)
    arguments = [*_unit(tmp, start, size, ctx), *_unit(storage.data, place, size, ctx)]
    return call(take(size).call(*arguments, all_of(tests)))


def read_vector(buffer: Var, place: Expr, tmp: Var, start: Expr, width: int, ctx: DeviceContext) -> tirx.Stmt:
    """Reads a vector. One that is a part of a swizzle's chunk has its address in bytes, a sum."""
    storage = ctx.storage(buffer)
    size = width * element_bytes(storage.dtype)
    if size in _SUMMED and any(isinstance(node, tirx.BitwiseXor) for node in walk(place)):
        at = bytes_to(place, width, size, ctx.facts.analyzer)
        if at is not None:
            first = storage.data.ptr_to([tirx.const(0, "int32")])
            return call(read_at(size).call(tmp.ptr_to([start]), first, at))
    return _move(tmp, start, storage.data, place, size, ctx)


def put_together(above: Var) -> Callable[..., tirx.Stmt]:
    """What makes the vector that begins at a place of the two that hold it, which a thread has: the one from
    the multiple of the width in front of it on, and in ``above`` the next one."""

    def made(
        buffer: Var, place: Expr, tmp: Var, start: int, width: int, _: list[Expr], ctx: DeviceContext
    ) -> tirx.Stmt:
        low, high = (part.ptr_to([tirx.const(start, "int32")]) for part in (tmp, above))
        helper = realign(*bytes_of(buffer, width))
        return call(helper.call(low, high, rest(place, width)))

    return made


def store_vector(
    buffer: Var, place: Expr, tmp: Var, start: int, width: int, tests: list[Expr], ctx: DeviceContext
) -> tirx.Stmt:
    """Writes ``width`` elements from ``place`` on, where all tests hold. They are in ``tmp``, one after the
    other; ``start`` is the first."""
    storage = ctx.storage(buffer)
    size = width * element_bytes(storage.dtype)
    begin = start * element_bytes(storage.dtype) // element_bytes(str(tmp.dtype))
    write = _move(storage.data, place, tmp, tirx.const(begin, "int32"), size, ctx)
    return guarded(write, [*tests, *once_tests(buffer, ctx)])


def added_vector(
    buffer: Var, place: Expr, tmp: Var, start: int, width: int, tests: list[Expr], ctx: DeviceContext
) -> tirx.Stmt:
    """Adds to ``width`` elements from ``place`` on, each atomically, as `store_vector` writes them. ``tmp``:
    float32 elements, smaller ones, or words of two of these. TVM writes names out in what it takes the
    address of: a place that quotients tell has a register."""
    storage = ctx.storage(buffer)
    size = width * element_bytes(storage.dtype)
    if element_bytes(str(tmp.dtype)) < _WORD:
        pairs = tirx.decl_buffer((size // _WORD,), "uint32", f"{buffer.name}_words", scope="local")
        joined = _move(pairs, tirx.const(0, "int32"), tmp, tirx.const(start, "int32"), size, ctx)
        added = added_vector(buffer, place, pairs, 0, width, tests, ctx)
        return sequence([tirx.AllocBuffer(pairs), joined, added])
    count = size // element_bytes(str(tmp.dtype))
    begin = start * element_bytes(storage.dtype) // element_bytes(str(tmp.dtype))
    words = [tirx.BufferLoad(tmp, [tirx.const(begin + word, "int32")]) for word in range(count)]
    add = add_vector(storage.dtype, width)
    tests = [*tests, *once_tests(buffer, ctx)]
    if not any(is_quotient(node) for node in walk(ctx.facts.inline(place))):
        return guarded(call(add.call(storage.data.ptr_to([place]), *words)), tests)
    zero, at = tirx.const(0, "int32"), tirx.decl_buffer((1,), "int64", "at", scope="local")
    kept = tirx.BufferStore(at, tirx.Cast("int64", place), [zero])
    added = call(add.call(storage.data.ptr_to([tirx.BufferLoad(at, [zero])]), *words))
    return guarded(tirx.SeqStmt([tirx.AllocBuffer(at), kept, added]), tests)


def store_registers(
    fragment: Var, indices: tuple[Expr, ...], tmp: Var, width: int, ctx: DeviceContext
) -> list[tirx.Stmt]:
    """Writes ``width`` elements of a fragment, in the words of ``tmp``, from ``indices`` on."""
    data, place = ctx.fragments[fragment].data, ctx.register(fragment, indices)
    size = element_bytes(str(data.dtype))
    each = min(width, WIDEST // size)
    words = size * each // element_bytes(str(tmp.dtype))
    return [
        _move(data, place + part * each, tmp, tirx.const(part * words, "int32"), size * each, ctx)
        for part in range(width // each)
    ]


def move_registers(source: Var, target: Var, width: int, ctx: DeviceContext) -> tirx.Stmt:
    """Copies the registers of a fragment to those of another one of its layout, ``width`` at once or as many
    as a vector has."""
    held, to = ctx.fragments[source], ctx.fragments[target]
    each = min(width, WIDEST // element_bytes(str(held.data.dtype)))
    size = each * element_bytes(str(held.data.dtype))
    places = (tirx.const(first, "int32") for first in range(0, extent_of(held.layout, "reg"), each))
    return sequence([_move(to.data, place, held.data, place, size, ctx) for place in places])


def packed_pairs(values: Var, bits: Var, count: int, dtype: str) -> list[tirx.Stmt]:
    """``bits`` (uint32, uint16 for 8 bits each) = ``count`` float32 ``values`` rounded to ``dtype``, two to a
    word."""
    packed = pack(dtype) if dtype in PAIRED else pack_small(dtype)

    def word(pair: int) -> tirx.Stmt:
        low, high = (tirx.BufferLoad(values, [tirx.const(2 * pair + half, "int32")]) for half in range(2))
        made = packed.call(low, high)
        return tirx.BufferStore(bits, made, [tirx.const(pair, "int32")])

    return [word(pair) for pair in range(count // 2)]


def _move(to: Var, to_place: Expr, source: Var, place: Expr, size: int, ctx: DeviceContext) -> tirx.Stmt:
    """Moves ``size`` bytes at once; both places are multiples of that."""
    arguments = [*_unit(to, to_place, size, ctx), *_unit(source, place, size, ctx)]
    return call(move(size).call(*arguments))


def _unit(data: Var, place: Expr, size: int, ctx: DeviceContext) -> tuple[Expr, Expr]:
    """The start of a buffer, and the place of an element as a number of vectors of ``size`` bytes: compilers
    lose the alignment of an address that is a sum, and then take the vector apart. Of a place in a tile each
    part is divided for itself, so that vectors at constant distances have one address."""
    start = data.ptr_to([tirx.const(0, "int32")])
    count = size // element_bytes(str(data.dtype))
    if dtype_of(place) == "int64":
        return start, _vector_number(place, count, ctx.facts.analyzer)
    near = quotient(place, count, ctx.facts.analyzer)
    if near is not None:
        return start, tirx.Cast("int64", near)
    return start, _vector_number(tirx.Cast("int64", place), count, ctx.facts.analyzer)


def _vector_number(place: Expr, count: int, analyzer: Analyzer) -> Expr:
    """A multiple of ``count`` divided by it. Each summand that is known to be one is divided for itself: of
    vectors at constant distances compilers then see one address."""
    simple: list[Expr] = []
    others: list[Expr] = []
    for term in summands(place):
        made = _quotient(term, count, analyzer)
        (others if made is None else simple).append(term if made is None else made)
    if others:
        bits = tirx.const(count.bit_length() - 1, "int64")
        simple.append(tirx.shift_right(reduce(tirx.Add, others), bits))
    return reduce(tirx.Add, simple)


def _quotient(term: Expr, count: int, analyzer: Analyzer) -> Expr | None:
    """A term that is known to be a multiple of ``count``, divided by it; None for another one."""
    number = tirx.const(count, "int64")
    try:
        made = analyzer.simplify(tirx.floordiv(term, number))
        rest = int_value(analyzer.simplify(tirx.floormod(term, number)))
    except BEYOND_TYPE:  # of a place in front of a tile, which is tested
        return None
    return None if rest != 0 or any(isinstance(node, tirx.FloorDiv) for node in walk(made)) else made
