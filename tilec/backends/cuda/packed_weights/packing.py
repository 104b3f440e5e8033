"""Where the bits of packed weights lie, and whether a lane finds its own side by side.

The arithmetic that turns a stored byte into a weight is not matched by its form: it is evaluated for every
column and every byte, so that any spelling of a packing is known by what it does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import loads, transform
from tilec.ir.interp.expressions import value_of

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

#: Weights that a lane of wgmma's A operand takes in one step along K: two neighbours, and those 8 above.
STEP, HALVES, LANES, NEIGHBOURS = 16, 2, 4, 2
#: Columns that one warp takes at a time where warps share K.
CHUNK = 128
#: Bits of one vector load and of one word.
_VECTOR, _WORD = 128, 32


@dataclass(frozen=True)
class Place:
    """Two neighbouring weights of a lane: in word ``word`` of the vector that lies ``vector`` vectors after
    the lane's first; ``bits`` are their first bits in the word."""

    vector: int
    word: int
    bits: tuple[int, int]


@dataclass(frozen=True)
class Packing:
    """Unsigned weights of ``width`` bits that stand for themselves minus ``zero``; ``signed`` bytes have
    their sign bit flipped first. ``places`` are those of a lane by step of 16 along K and by half of the
    step; ``stride`` is the distance of neighbouring lanes' vectors."""

    width: int
    zero: int
    signed: bool
    stride: int
    places: tuple[tuple[Place, Place], ...]

    @property
    def vectors(self) -> tuple[int, ...]:
        """The vectors that a lane loads of each row."""
        return tuple(sorted({place.vector for step in self.places for place in step}))

    @property
    def chunk_stride(self) -> int | None:
        """Vectors from one chunk of CHUNK columns to the next, None where chunks differ in more than that."""
        steps = CHUNK // STEP
        first, rest = self.places[:steps], self.places[steps:]
        if len(first) < steps or len(rest) % steps:
            return None
        stride = rest[0][0].vector - first[0][0].vector if rest else self.stride * LANES
        alike = (
            place == replace(twin, vector=twin.vector + (number // steps + 1) * stride)
            for number, step in enumerate(rest)
            for place, twin in zip(step, first[number % steps], strict=True)
        )
        return stride if all(alike) else None


def packing_of(number: Expr, load: TensorLoad, column: Var, depth: int) -> Packing:
    """The packing of a weight ``number(column)`` that is made of one byte (``load``, whose last index is the
    byte's place in its row), for ``depth`` columns. Unfit where a lane's weights are scattered."""
    width, zero, shifts = _meaning(number, load, column, depth)
    first = evaluated(load.indices[-1], {column: np.arange(depth, dtype=np.int32)}, depth) * 8 + shifts
    stride, places = _lane_places(first, depth)
    _check_pairs(places, width)
    return Packing(width, zero, str(load.source.dtype) == "int8", stride, places)


def _meaning(number: Expr, load: TensorLoad, column: Var, depth: int) -> tuple[int, int, np.ndarray]:
    """Width, zero point, and per column the first bit within its byte."""
    dtype = str(load.source.dtype)
    stored = tirx.Var("stored", dtype)
    formula = transform(number, lambda node: stored if node is load or node.same_as(load) else None)
    if any(True for _ in loads(formula)):
        raise Unfit("a weight depends on more than one stored byte")
    raw = np.arange(256, dtype=np.uint8)
    columns = np.arange(depth, dtype=np.int32)[:, None]
    table = evaluated(formula, {column: columns, stored: raw.view(dtype)[None, :]}, depth, 256)
    plain = raw.astype(np.int64) ^ (128 if dtype == "int8" else 0)
    shifts = np.zeros(depth, dtype=np.int64)
    zero = int(plain[0] - table[0, 0])
    if (table == plain - zero).all():
        return 8, zero, shifts
    zero = -int(table[0, 0])
    for shift in (0, 4):
        shifts[(table == (raw.astype(np.int64) >> shift & 15) - zero).all(axis=1)] = shift
    if not (table == (raw.astype(np.int64)[None, :] >> shifts[:, None] & 15) - zero).all():
        raise Unfit("its weights are neither bytes nor halves of bytes less a constant")
    return 4, zero, shifts


def evaluated(expr: Expr, values: dict[Var, np.ndarray], *shape: int) -> np.ndarray:
    """An integer expression over arrays of its variables."""
    return np.broadcast_to(np.asarray(value_of(expr, values)), shape).astype(np.int64)


def _lane_places(first: np.ndarray, depth: int) -> tuple[int, tuple[tuple[Place, Place], ...]]:
    """The distance of lanes, and the places of the first one."""
    spread = first.reshape(depth // STEP, HALVES, LANES, NEIGHBOURS)
    vectors, inside = spread // _VECTOR, spread % _VECTOR
    away = vectors - vectors[:, :, :1]
    stride = int(away[0, 0, 1, 0])
    same = (inside == inside[:, :, :1]).all()
    if not same or not (away == stride * np.arange(LANES)[None, None, :, None]).all() or stride == 0:
        raise Unfit("the weights that a lane multiplies do not lie together in vectors of 16 bytes")
    words, bits = inside[:, :, 0] // _WORD, inside[:, :, 0] % _WORD
    if (words[..., 0] != words[..., 1]).any() or (vectors[:, :, 0, 0] != vectors[:, :, 0, 1]).any():
        raise Unfit("two neighbouring weights lie in different words")
    places = tuple(
        (_place(vectors, words, bits, step, 0), _place(vectors, words, bits, step, 1))
        for step in range(depth // STEP)
    )
    return stride, places


def _place(vectors: np.ndarray, words: np.ndarray, bits: np.ndarray, step: int, half: int) -> Place:
    low, high = (int(bit) for bit in bits[step, half])
    return Place(int(vectors[step, half, 0, 0]), int(words[step, half, 0]), (low, high))


def _check_pairs(places: tuple[tuple[Place, Place], ...], width: int) -> None:
    if width == 8:
        return
    if any(place.bits[1] - place.bits[0] != 16 for step in places for place in step):
        raise Unfit("neighbouring weights of 4 bits are not 16 bits apart, where one mask finds both")
