"""What lanes hold of the operands of mma.sync, and its statements as shuffles.

Lane l has g = l // 4 and t = l % 4 (PTX ISA, "Matrix Fragments for mma"). A register holds 4 bytes of a row:
e elements. Those of A are of row g and row g + 8, first from byte 4 t of the first 16 bytes of K on, then of
the second 16; those of B of column g, first and second. Sums: two of row g in columns 2 t and behind it, two
of row g + 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.dtypes import lookup
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, Block, For, Stmt, Store
from tilec.ir.nodes.threads import Lane, LaneLoad, LaneMma

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

ROWS, COLUMNS, SUMS = 16, 8, 4
_SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32", "int8": "s8", "uint8": "u8",
          "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}  # fmt: skip
_HALVES = ("float16", "bfloat16")
_OCTETS = (("int8", "uint8"), ("float8_e4m3fn", "float8_e5m2"))


def _products() -> dict[tuple[str, tuple[str, str, str]], str]:
    """Shape and dtypes (a, b, c) -> the types in the instruction's name, in PTX's order d, a, b, c."""
    made = {}
    pairs = [(kind, kind, "float32", depth) for kind in _HALVES for depth in (8, 16)]
    pairs += [("float16", "float16", "float16", depth) for depth in (8, 16)]
    pairs += [("float32", "float32", "float32", depth) for depth in (4, 8)]
    pairs += [
        (a, b, "int32" if kinds[0] == "int8" else "float32", depth)
        for kinds in _OCTETS
        for a in kinds
        for b in kinds
        for depth in ((16, 32) if kinds[0] == "int8" else (32,))
    ]
    for a, b, c, depth in pairs:
        sums = {"float32": "f32", "float16": "f16", "int32": "s32"}[c]
        made[f"m16n8k{depth}", (a, b, c)] = f"{sums}.{_SHORT[a]}.{_SHORT[b]}.{sums}"
    return made


#: Every product that there is.
PRODUCTS = _products()


def depth_of(shape: str) -> int:
    """K of a shape such as "m16n8k16"."""
    return int(shape.rpartition("k")[2])


def per_register(dtype: str) -> int:
    """Elements of 4 bytes."""
    return 32 // lookup(dtype).bits


def instruction_types(stmt: LaneMma) -> str | None:
    """The types in the instruction's name; None where there is no such instruction."""
    return PRODUCTS.get((stmt.shape, dtypes(stmt)))


def dtypes(stmt: LaneMma) -> tuple[str, str, str]:
    """Those of A, B and the sums."""
    return str(stmt.a.source.dtype), str(stmt.b.source.dtype), str(stmt.buffer.dtype)


def expanded(stmt: LaneMma | LaneLoad) -> Block:
    """The statement as shuffles and arithmetic of each lane."""
    return _product(stmt) if isinstance(stmt, LaneMma) else _load(stmt)


def _product(stmt: LaneMma) -> Block:
    """Each lane gets the elements of its rows and columns from those that hold them, K after K."""
    each, kind = per_register(str(stmt.a.source.dtype)), str(stmt.buffer.dtype)
    wide = "float32" if kind == "float16" else kind
    total = tirx.decl_buffer((SUMS,), wide, "total", scope="local")
    k = tirx.Var("k", "int32")
    half, within = _divided(k, 4 * each)
    owner, element = _divided(within, each)
    row, column = _divided(stmt.lane, 4)
    steps: list[Stmt] = []
    left = [
        _shuffled(steps, stmt, stmt.a, (half * _int(2) + _int(side)) * _int(each) + element, row * 4 + owner)
        for side in range(2)
    ]
    right = [
        _shuffled(
            steps, stmt, stmt.b, half * _int(each) + element, (column * 2 + _int(side)) * _int(4) + owner
        )
        for side in range(2)
    ]
    for place in range(SUMS):
        product = _cast(left[place // 2], wide) * _cast(right[place % 2], wide)
        old = tirx.BufferLoad(total, [_int(place)])
        steps.append(Store(total, (_int(place),), old + product, loc=stmt.loc))
    before = [
        Store(total, (_int(place),), _cast(_element(stmt, place), wide), loc=stmt.loc)
        for place in range(SUMS)
    ]
    after = [
        Store(stmt.buffer, _behind(stmt.indices, place), _cast(tirx.BufferLoad(total, [_int(place)]), kind),
              loc=stmt.loc)
        for place in range(SUMS)
    ]  # fmt: skip
    depth = _int(depth_of(stmt.shape))
    loop = For("serial", k, _int(0), depth, _int(1), tuple(steps), loc=stmt.loc)
    return Alloc(total, loc=stmt.loc), *before, loop, *after


def _load(stmt: LaneLoad) -> Block:
    """Each lane learns which rows it reads from, and reads its elements: matrix after matrix."""
    each = per_register(str(stmt.buffer.dtype))
    row, column = _divided(stmt.lane, 4)
    matrix = tirx.Var("matrix", "int32")
    steps: list[Stmt] = []
    # turned round, the elements of a lane lie in rows that follow each other, else side by side in one
    lines = [column * _int(each) + _int(place) for place in range(each)] if stmt.trans else [row]
    starts = [_row(steps, stmt, matrix * _int(8) + line) for line in lines]
    for place in range(each):
        *lead, last = starts[place % len(starts)]
        along = row if stmt.trans else column * _int(each) + _int(place)
        value = tirx.BufferLoad(stmt.source.source, [*lead, last + along])
        target = _behind(stmt.indices, matrix * _int(each) + _int(place))
        steps.append(Store(stmt.buffer, target, _cast(value, str(stmt.buffer.dtype)), loc=stmt.loc))
    return (For("serial", matrix, _int(0), _int(stmt.count), _int(1), tuple(steps), loc=stmt.loc),)


def _row(steps: list[Stmt], stmt: LaneLoad, lane: Expr) -> list[Expr]:
    """The indices of the first element of the row that another lane names."""
    return [_received(steps, stmt, _cast(index, "int32"), lane) for index in stmt.source.indices]


def _shuffled(steps: list[Stmt], stmt: LaneMma, first: Expr, further: Expr, lane: Expr) -> Expr:
    """An element of what another lane holds of an operand."""
    value = tirx.BufferLoad(first.source, list(_behind(tuple(first.indices), further)))
    return _received(steps, stmt, value, lane)


def _received(steps: list[Stmt], stmt: Stmt, value: Expr, lane: Expr) -> Expr:
    """A value of another lane; 8-bit floats travel as what they are computed in."""
    carried = _cast(value, "float32") if dtype_of(value).startswith("float8") else value
    var = tirx.Var("received", dtype_of(carried))
    steps.append(Lane("shfl", var, (carried, lane), loc=stmt.loc))
    return var


def _element(stmt: LaneMma, place: int) -> Expr:
    return tirx.BufferLoad(stmt.buffer, list(_behind(stmt.indices, place)))


def _behind(indices: tuple[Expr, ...], further: Expr | int) -> tuple[Expr, ...]:
    """Indices further along the last axis."""
    distance = _int(further) if isinstance(further, int) else further
    return (*indices[:-1], indices[-1] + tirx.Cast(dtype_of(indices[-1]), distance))


def _divided(value: Var | Expr, by: int) -> tuple[Expr, Expr]:
    return tirx.floordiv(value, _int(by)), tirx.floormod(value, _int(by))


def _cast(value: Expr, dtype: str) -> Expr:
    return value if dtype_of(value) == dtype else tirx.Cast(dtype, value)


def _int(value: int) -> Expr:
    return tirx.const(value, "int32")
