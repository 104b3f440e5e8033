"""Words of memory that lanes read at any distance, by few whole vectors whose words change places: AVX-512
takes each of 16 words from one of two vectors by one instruction (`vpermt2d`), where joining pieces of a
vector takes one for each piece but the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.products.tir import index, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.targets import Target

_WORD = 4
#: Bytes of a vector, and its words.
_SIZE = 64
WORDS = _SIZE // _WORD
_HALF = 2
#: Vectors that one instruction takes words from.
_PAIR = 2


def has_windows(target: Target) -> bool:
    """Whether two vectors of a target give words to a third."""
    return target.arch == "x86_64" and target.vector_bits == 8 * _SIZE


def words_of_two(data: Var, first: Expr, places: Sequence[int]) -> Expr | None:
    """The words of ``data``, which are bytes, that begin ``places`` behind ``first``, one in each of 16
    lanes; None where they do not lie in two vectors between the first and the last byte of them."""
    starts = _starts(places)
    if starts is None:
        return None
    vectors = [_whole(data, first + start) for start in starts]
    order = [_place(place, starts) for place in places]
    return tirx.Shuffle(vectors, [index(at) for at in order])


def halves_of_windows(data: Var, first: Expr, places: Sequence[int]) -> Expr | None:
    """The 16-bit numbers of ``data``, which are bytes, that begin ``places`` behind ``first``, one in each of
    16 lanes; None where they do not lie in two to four vectors, at even distances. The words that have them
    are taken from two vectors at a time: instructions for halves of words take twice as long."""
    starts = _windows(places)
    if not _PAIR <= len(starts) <= 2 * _PAIR or any(place % _HALF for place in places):
        return None
    owners = [next(at for at, start in enumerate(starts) if _has(start, place)) for place in places]
    vectors = [_whole(data, first + start) for start in starts]
    halves = []
    for pair in range(0, len(starts), _PAIR):
        own = [
            (place - starts[at]) // _WORD + (at - pair) * WORDS
            for place, at in zip(places, owners, strict=True)
        ]
        order = [index(at if 0 <= at < _PAIR * WORDS else 0) for at in own]
        words = tirx.Shuffle(vectors[pair : pair + _PAIR], order)
        halves.append(tirx.reinterpret(f"uint16x{2 * WORDS}", words))
    upper = [(place - starts[at]) % _WORD // _HALF for place, at in zip(places, owners, strict=True)]
    return tirx.Shuffle(
        halves,
        [
            index((at // _PAIR * WORDS + lane) * 2 + half)
            for lane, (at, half) in enumerate(zip(owners, upper, strict=True))
        ],
    )


def _windows(places: Sequence[int]) -> list[int]:
    """Where vectors begin that have the numbers of two bytes at ``places``, and reach no further than these;
    none where a vector is longer."""
    left, high, starts = sorted(places), max(places) + _HALF - _SIZE, []
    while left:
        starts.append(min(left[0], high))
        left = [place for place in left if not _has(starts[-1], place)]
    return starts if high >= min(places) else []


def _has(start: int, place: int) -> bool:
    """Whether the vector at ``start`` has the two bytes at ``place``."""
    return start <= place <= start + _SIZE - _HALF


def _whole(data: Var, at: Expr) -> Expr:
    """The 16 words of the vector at ``at``."""
    return tirx.reinterpret(f"int32x{WORDS}", tirx.BufferLoad(data, [span(at, _SIZE)]))


def _starts(places: Sequence[int]) -> list[int] | None:
    """Where one or two vectors begin of which each place is a whole word."""
    low, high = min(places), max(places) + _WORD - _SIZE
    starts = []
    for rest in sorted({place % _WORD for place in places}):
        own = [place for place in places if place % _WORD == rest]
        start = min(*own, high)
        start -= (start - rest) % _WORD
        if start < low or max(own) > start + _SIZE - _WORD:
            return None
        starts.append(start)
    return starts if len(starts) <= 2 else None


def _place(place: int, starts: Sequence[int]) -> int:
    number = next(number for number, start in enumerate(starts) if (place - start) % _WORD == 0)
    return number * WORDS + (place - starts[number]) // _WORD
