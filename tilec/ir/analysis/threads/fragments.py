"""What lanes hold of the operands of mma.sync and mma.sp, and such statements as shuffles.

Lane l has g = l // 4 and t = l % 4 (PTX ISA, "Matrix Fragments for mma"). A register holds 4 bytes of a row:
e elements. Those of A are of row g and row g + 8, first from byte 4 t of the first 16 bytes of K on, then of
the second 16; those of B of column g, first and second. Sums: two of row g in columns 2 t and behind it, two
of row g + 8.

A sparse A is held as a dense one of half the K (PTX ISA, "Matrix fragments for multiply-accumulate operation
with sparse matrix A"). The places of four columns are four bits of a word. Of 16-bit types a lane gives those
of 16 columns, row g in the lower half of its word, row g + 8 in the upper one: for selector s and n = K / 16
these are the n lanes from t = n s on. Of 8-bit types and K = 64 each lane gives those of 32 columns, from
32 (t // 2) on, t = 0 and 2 of row g, 1 and 3 of row g + 8; the selector is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.dtypes import lookup
from tilec.ir.exprs import cast_to, dtype_of, int32
from tilec.ir.nodes import Alloc, Block, Stmt, Store
from tilec.ir.nodes.threads import Lane, LaneLoad, LaneMma, LaneSparseMma
from tilec.ir.serial import serial_loop

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

ROWS, COLUMNS, SUMS = 16, 8, 4
_SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32", "int8": "s8", "uint8": "u8",
          "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}  # fmt: skip
_HALVES = ("float16", "bfloat16")
_OCTETS = (("int8", "uint8"), ("float8_e4m3fn", "float8_e5m2"))


#: dtypes of A, B and the sums, and K.
_Form = tuple[str, str, str, int]


def _dense() -> Iterator[_Form]:
    yield from ((kind, kind, "float32", depth) for kind in _HALVES for depth in (8, 16))
    yield from (("float16", "float16", "float16", depth) for depth in (8, 16))
    yield from (("float32", "float32", "float32", depth) for depth in (4, 8))
    yield from _of_octets((16, 32), (32,))


def _sparse() -> Iterator[_Form]:
    yield from ((kind, kind, "float32", depth) for kind in _HALVES for depth in (16, 32))
    yield from _of_octets((64,), (64,))


def _of_octets(integers: tuple[int, ...], floats: tuple[int, ...]) -> Iterator[_Form]:
    for kinds, sums, depths in zip(_OCTETS, ("int32", "float32"), (integers, floats), strict=True):
        yield from ((a, b, sums, depth) for a in kinds for b in kinds for depth in depths)


def _products(forms: Iterator[_Form]) -> dict[tuple[str, tuple[str, str, str]], str]:
    """Shape and dtypes (a, b, c) -> the types in the instruction's name, in PTX's order d, a, b, c."""
    made = {}
    for a, b, c, depth in forms:
        sums = {"float32": "f32", "float16": "f16", "int32": "s32"}[c]
        made[f"m16n8k{depth}", (a, b, c)] = f"{sums}.{_SHORT[a]}.{_SHORT[b]}.{sums}"
    return made


#: Every product that there is; those of a sparse A.
PRODUCTS, SPARSE_PRODUCTS = _products(_dense()), _products(_sparse())
#: What holds places.
PLACES = ("int32", "uint32")


def depth_of(shape: str) -> int:
    """K of a shape such as "m16n8k16"."""
    return int(shape.rpartition("k")[2])


def selectors(shape: str) -> int:
    """How many choices there are of the lanes that hold the places of a sparse A."""
    return 64 // depth_of(shape)


def per_register(dtype: str) -> int:
    """Elements of 4 bytes."""
    return 32 // lookup(dtype).bits


def instruction_types(stmt: LaneMma) -> str | None:
    """The types in the instruction's name; None where there is no such instruction."""
    form = stmt.shape, dtypes(stmt)
    if not isinstance(stmt, LaneSparseMma):
        return PRODUCTS.get(form)
    known = dtype_of(stmt.e) in PLACES and stmt.selector in range(selectors(stmt.shape))
    return SPARSE_PRODUCTS.get(form) if known else None


def dtypes(stmt: LaneMma) -> tuple[str, str, str]:
    """Those of A, B and the sums."""
    return str(stmt.a.source.dtype), str(stmt.b.source.dtype), str(stmt.buffer.dtype)


def expanded(stmt: LaneMma | LaneLoad) -> Block:
    """The statement as shuffles and arithmetic of each lane."""
    return _product(stmt) if isinstance(stmt, LaneMma) else _load(stmt)


def _product(stmt: LaneMma) -> Block:
    """Each lane gets the elements of its rows and columns from those that hold them, K after K."""
    each, kind = per_register(str(stmt.a.source.dtype)), str(stmt.buffer.dtype)
    wide = _wide(stmt)
    total = tirx.decl_buffer((SUMS,), wide, "total", scope="local")
    k = tirx.Var("k", "int32")
    half, within = _divided(k, 4 * each)
    owner, element = _divided(within, each)
    column = _divided(stmt.lane, 4)[1]
    steps: list[Stmt] = []
    left = [
        _spread(steps, stmt, k, side) if isinstance(stmt, LaneSparseMma) else _value(steps, stmt, k, side)
        for side in range(2)
    ]
    right = [
        _shuffled(
            steps, stmt, stmt.b, half * int32(each) + element, (column * 2 + int32(side)) * int32(4) + owner
        )
        for side in range(2)
    ]
    for place in range(SUMS):
        product = cast_to(left[place // 2], wide) * cast_to(right[place % 2], wide)
        old = tirx.BufferLoad(total, [int32(place)])
        steps.append(Store(total, (int32(place),), old + product, loc=stmt.loc))
    before = [
        Store(total, (int32(place),), cast_to(_element(stmt, place), wide), loc=stmt.loc)
        for place in range(SUMS)
    ]
    sums = [cast_to(tirx.BufferLoad(total, [int32(place)]), kind) for place in range(SUMS)]
    after = [
        Store(stmt.buffer, _behind(stmt.indices, place), each, loc=stmt.loc)
        for place, each in enumerate(sums)
    ]
    loop = serial_loop(k, depth_of(stmt.shape), tuple(steps), stmt.loc)
    return Alloc(total, loc=stmt.loc), *before, loop, *after


def _wide(stmt: LaneMma) -> str:
    """The dtype of sums on their way."""
    kind = str(stmt.buffer.dtype)
    return "float32" if kind == "float16" else kind


def _value(steps: list[Stmt], stmt: LaneMma, number: Expr, side: int) -> Expr:
    """An element of what is held of A's row g + 8 ``side``, by its number."""
    each = per_register(str(stmt.a.source.dtype))
    half, within = _divided(number, 4 * each)
    owner, element = _divided(within, each)
    row = _divided(stmt.lane, 4)[0]
    further = (half * int32(2) + int32(side)) * int32(each) + element
    return _shuffled(steps, stmt, stmt.a, further, row * 4 + owner)


def _spread(steps: list[Stmt], stmt: LaneSparseMma, k: Expr, side: int) -> Expr:
    """The element of a sparse A in column k: one of the two values of its group, or 0."""
    group, column = _divided(k, 4)
    places = _places(steps, stmt, group, side)
    found: Expr = tirx.const(0, _wide(stmt))
    for number, shift in ((1, 2), (0, 0)):
        value = cast_to(_value(steps, stmt, group * int32(2) + int32(number), side), _wide(stmt))
        place = tirx.bitwise_and(tirx.shift_right(places, int32(shift)), int32(3))
        found = tirx.Select(tirx.EQ(place, column), value, found)
    return found


def _places(steps: list[Stmt], stmt: LaneSparseMma, group: Expr, side: int) -> Expr:
    """The four bits of a group of row g + 8 ``side``, and what is above them, int32."""
    row = _divided(stmt.lane, 4)[0]
    if per_register(str(stmt.a.source.dtype)) == 2:
        part, within = _divided(group, 4)
        holder = part + int32(stmt.selector * depth_of(stmt.shape) // 16)
        shift = within * int32(4) + int32(16 * side)
    else:
        part, within = _divided(group, 8)
        holder, shift = part * int32(2) + int32(side), within * int32(4)
    word = _received(steps, stmt, stmt.e, row * 4 + holder)
    return cast_to(tirx.shift_right(word, cast_to(shift, dtype_of(word))), "int32")


def _load(stmt: LaneLoad) -> Block:
    """Each lane learns which rows it reads from, and reads its elements: matrix after matrix."""
    each = per_register(str(stmt.buffer.dtype))
    row, column = _divided(stmt.lane, 4)
    matrix = tirx.Var("matrix", "int32")
    steps: list[Stmt] = []
    # turned round, the elements of a lane lie in rows that follow each other, else side by side in one
    lines = [column * int32(each) + int32(place) for place in range(each)] if stmt.trans else [row]
    starts = [_row(steps, stmt, matrix * int32(8) + line) for line in lines]
    for place in range(each):
        *lead, last = starts[place % len(starts)]
        along = row if stmt.trans else column * int32(each) + int32(place)
        value = tirx.BufferLoad(stmt.source.source, [*lead, last + along])
        target = _behind(stmt.indices, matrix * int32(each) + int32(place))
        steps.append(Store(stmt.buffer, target, cast_to(value, str(stmt.buffer.dtype)), loc=stmt.loc))
    return (serial_loop(matrix, stmt.count, tuple(steps), stmt.loc),)


def _row(steps: list[Stmt], stmt: LaneLoad, lane: Expr) -> list[Expr]:
    """The indices of the first element of the row that another lane names."""
    return [_received(steps, stmt, cast_to(index, "int32"), lane) for index in stmt.source.indices]


def _shuffled(steps: list[Stmt], stmt: LaneMma, first: Expr, further: Expr, lane: Expr) -> Expr:
    """An element of what another lane holds of an operand."""
    value = tirx.BufferLoad(first.source, list(_behind(tuple(first.indices), further)))
    return _received(steps, stmt, value, lane)


def _received(steps: list[Stmt], stmt: Stmt, value: Expr, lane: Expr) -> Expr:
    """A value of another lane; 8-bit floats travel as what they are computed in."""
    carried = cast_to(value, "float32") if dtype_of(value).startswith("float8") else value
    var = tirx.Var("received", dtype_of(carried))
    steps.append(Lane("shfl", var, (carried, lane), loc=stmt.loc))
    return var


def _element(stmt: LaneMma, place: int) -> Expr:
    return tirx.BufferLoad(stmt.buffer, list(_behind(stmt.indices, place)))


def _behind(indices: tuple[Expr, ...], further: Expr | int) -> tuple[Expr, ...]:
    """Indices further along the last axis."""
    distance = int32(further) if isinstance(further, int) else further
    return (*indices[:-1], indices[-1] + tirx.Cast(dtype_of(indices[-1]), distance))


def _divided(value: Var | Expr, by: int) -> tuple[Expr, Expr]:
    return tirx.floordiv(value, int32(by)), tirx.floormod(value, int32(by))
