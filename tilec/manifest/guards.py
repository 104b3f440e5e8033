"""The guard grammar of ``dims`` and reasoning over guards of one dimension.

    guard = "dynamic" | integer | part ("," part)*
    part  = "lo..hi" | ">=n" | "<=n" | "%n"

Dimensions are at least 1: coverage asks for 1, 2, 3, ...
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence

from tilec.ir.guards import Guard, largest_dim

_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_BOUND = re.compile(r"(>=|<=|%)\s*(\d+)")
_LARGEST = largest_dim(64)
#: What else is written for any value, for a range, for a bound that is not one of the values, and for a
#: range that is open on a side or a single value.
_ANY = ("*", "?", "_", "-1", "any", "all", "none", "auto", "dyn", "dynamic", "symbolic", "var")
_OTHER_RANGE = re.compile(r"\[?(\d+)\s*(?:-|:|to|\.{3}|\.\.=|,)\s*(\d+)\]?")
_STRICT = re.compile(r"([<>])\s*(\d+)")
_OPEN = re.compile(r"(?P<low>\d+)\s*(?:\.\.|:|\+)|(?:\.\.=?|:)\s*(?P<high>\d+)|={1,2}\s*(?P<only>\d+)")
_GRAMMAR = (
    'write an integer, "dynamic", "1..64", ">=128", "<=64", "%16", or a conjunction such as "%16,>=128"'
)


def parse_guard(value: object) -> Guard:
    """One entry of ``dims``. Raises ValueError, saying what may stand there."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"{value!r} is no guard: {_GRAMMAR}")
    if isinstance(value, int):
        return _pinned(value)
    text = value.strip()
    if text == "dynamic":
        return Guard()
    if text.isdecimal():
        return _pinned(int(text))
    guard = Guard()
    for part in text.split(","):
        guard = _meet(guard, _parse_part(part.strip(), text))
    _check_numbers(guard, f'"{text}"')
    if guard.smallest() is None:
        raise ValueError(f'"{text}" can never hold: no dimension of 1 or more satisfies it')
    return canonical(guard)


def _pinned(value: int) -> Guard:
    if value < 1:
        raise ValueError(f'{value} can never hold: a dimension is 1 or more, and "dynamic" is any')
    guard = Guard(eq=value)
    _check_numbers(guard, str(value))
    return guard


def _check_numbers(guard: Guard, text: str) -> None:
    """Libraries keep the numbers of guards in 64 bits."""
    if max(guard.parts.values(), default=0) > _LARGEST:
        raise ValueError(f"{text} has a number beyond {_LARGEST}, which a dimension never is")


def _parse_part(part: str, whole: str) -> Guard:
    """One conjunct."""
    span = _RANGE.fullmatch(part)
    if span:
        return Guard(min=int(span.group(1)), max=int(span.group(2)))
    bound = _BOUND.fullmatch(part)
    if not bound:
        raise ValueError(f'"{whole}" is no guard: {_meant(whole)}{_GRAMMAR}')
    sign, number = bound.group(1), int(bound.group(2))
    if sign == "%":
        if number == 0:
            raise ValueError(f'"{whole}" divides by zero')
        return Guard(div=number)
    return Guard(min=number) if sign == ">=" else Guard(max=number)


def _meant(text: str) -> str:
    """The guard that somebody probably meant, as a question; nothing where there is none."""
    span, strict, one = (form.fullmatch(text) for form in (_OTHER_RANGE, _STRICT, _OPEN))
    if text.lower() in _ANY:
        return 'did you mean "dynamic"? '
    if span:
        return f'did you mean "{span[1]}..{span[2]}", both of them included? '
    if one:
        low, high, only = one["low"], one["high"], one["only"]
        return f'did you mean "{f">={low}" if low else f"<={high}" if high else only}"? '
    if strict:
        number = int(strict[2])
        return f'did you mean "{f">={number + 1}" if strict[1] == ">" else f"<={number - 1}"}"? '
    return ""


def _meet(a: Guard, b: Guard) -> Guard:
    """The conjunction of two guards without ``eq``."""
    lows = [low for low in (a.min, b.min) if low is not None]
    highs = [high for high in (a.max, b.max) if high is not None]
    return Guard(
        div=math.lcm(a.div, b.div),
        min=max(lows) if lows else None,
        max=min(highs) if highs else None,
    )


def canonical(guard: Guard) -> Guard:
    """A guard that admits one dimension alone as that one; any other as it is."""
    if guard.eq is not None:
        return guard
    low = guard.smallest()
    high = _greatest(guard)
    if low is not None and low == high:
        return Guard(eq=low)
    return guard


def admitted(guard: Guard) -> tuple[int | None, ...]:
    """The dimensions that a guard admits, as what compares equal where two guards admit the same."""
    return (guard.eq, guard.div, guard.smallest(), _greatest(guard))


def _greatest(guard: Guard) -> int | None:
    """The greatest dimension that a guard without ``eq`` admits; None where there is none."""
    return None if guard.max is None else guard.max // guard.div * guard.div


def implies(a: Guard, b: Guard) -> bool:
    """Whether every dimension that ``a`` admits is admitted by ``b``."""
    if a.eq is not None:
        return bool(b.admits(a.eq))
    if b.eq is not None:
        return False
    low, high = a.smallest(), _greatest(a)
    below = b.min is None or (low is not None and low >= b.min)
    above = b.max is None or (high is not None and high <= b.max)
    return below and above and a.div % b.div == 0


def first_uncovered(guards: Sequence[Guard]) -> int | None:
    """The least dimension that none of the guards admits; None when they cover 1, 2, 3, ...

    Between two neighbouring bounds the set of applicable guards is constant, but for pinned values. Either
    one of them has no divisor, and the whole stretch is covered, or the first value that no divisor divides
    and nobody pins is the answer; that value is close, since divisors above 1 leave gaps.
    """
    pinned = {guard.eq for guard in guards if guard.eq is not None}
    others = [guard for guard in guards if guard.eq is None]
    starts = sorted({1, *_stretch_starts(others)})
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        found = _gap(start, end, others, pinned)
        if found is not None:
            return found
    return None


def _stretch_starts(guards: Iterable[Guard]) -> Iterable[int]:
    """Every value above 1 where the set of applicable guards, none of which pins, may change."""
    for guard in guards:
        bounds = (guard.min, guard.max and guard.max + 1)
        yield from (bound for bound in bounds if bound is not None and bound > 1)


def _gap(start: int, end: int | None, guards: Sequence[Guard], pinned: Collection[int]) -> int | None:
    """The first value in [start, end) that no guard admits and that is not pinned."""
    inside = [guard for guard in guards if _reaches(guard, start)]
    if any(guard.div == 1 for guard in inside):
        return None
    value = start
    while end is None or value < end:
        if value not in pinned and not any(guard.admits(value) for guard in inside):
            return value
        value += 1
    return None


def _reaches(guard: Guard, start: int) -> bool:
    """Whether the bounds of a guard admit the stretch that begins at ``start``."""
    return (guard.min or 1) <= start and (guard.max is None or start <= guard.max)
