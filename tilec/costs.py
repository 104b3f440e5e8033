"""How long a schedule is expected to take, as a text over dims: ``"3 + waves(ceil(M / 64)) * 1.5"``.

In microseconds, computed in single precision, of which a vector has twice as many numbers as of double: what
is estimated has three digits. A library evaluates the same operations in the same order
(`tilec.package.tables.costs`), so that what is chosen here is what is chosen there.
"""

from __future__ import annotations

import ctypes
import math
import operator
import struct
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from tilec.capacity import CAPACITY
from tilec.cpu_bits import CpuBit
from tilec.sizes import (
    ARITHMETIC,
    NEGATE,
    SELECT,
    Apply,
    Grammar,
    Literal,
    Name,
    Node,
    Operation,
    SizeError,
    parse,
    value_of,
    walk,
)
from tilec.targets import FEATURE_BITS

#: What ``rounds`` multiplies by. It is a little less than 1 / units, so that rounding never makes a whole
#: number of rounds more than that; what is rounded up is exact below 2**21 blocks.
SHARE = "_share"
#: What makes up for what rounding adds at most where few operations lead to a number that is rounded up.
_BELOW_ONE = 1 - 2.0**-22
_NUMBERS = CAPACITY.max_choices - 1
#: What has one cost on processors with a feature of targets and another on the rest.
_ON = "on"
#: Of single precision: the largest number, and the least one with an inverse.
_LARGEST, _LEAST_DIVISOR = (2 - 2.0**-23) * 2.0**127, 2.0**-126


def _single(value: float) -> float:
    """The nearest number of single precision; what is too large becomes an infinity."""
    return ctypes.c_float(value).value


def _rounded(operation: Operation) -> Operation:
    """An operation of single precision: of `+ - * /` rounding twice gives what rounding once does."""

    def run(*values: float) -> float:
        return _single(operation.run(*values))

    return replace(operation, run=run)


def _raised(value: float) -> float:
    return float(math.ceil(value)) if math.isfinite(value) else value


_GRAMMAR = Grammar(
    article="a",
    what="cost",
    offered="numbers, dims, + - *, / by a number or by max(number, ...), min and max of two, ceil, brackets, "
    "rounds(blocks), which is blocks over the number of multiprocessors, waves(blocks), which rounds that "
    "up, and on(feature, cost there, cost elsewhere) of processors",
    longest=2500,
    constants=(int, float),
    operations={
        **{symbol: _rounded(ARITHMETIC[symbol]) for symbol in ("+", "-", "*")},
        NEGATE: ARITHMETIC[NEGATE],
        "/": _rounded(Operation(operator.truediv)),
        "min": Operation(min),
        "max": Operation(max),
        "ceil": Operation(_raised, 1, 1),
        "rounds": Operation(float, 1, 1),
        "waves": Operation(float, 1, 1),
        _ON: SELECT,
    },
)


def check_cost(text: str, dims: Collection[str]) -> None:
    """Raises SizeError where a text is no cost of a kernel with such dims."""
    names, _ = _read_by(text)
    unknown = next((name for name in names if name not in dims), None)
    if unknown is not None:
        raise SizeError(f'"{text}" reads {unknown}, and the dims are {", ".join(dims) or "none"}')


def features_in(text: str) -> Mapping[str, CpuBit]:
    """The features of processors that a cost asks for, and what each is found by."""
    _, features = _read_by(text)
    return {name: FEATURE_BITS[name] for name in features}


@lru_cache(maxsize=1024)
def _read_by(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that a cost reads, and the features that it asks for. Raises SizeError where a text is no
    cost."""
    nodes = list(walk(parse(_GRAMMAR, text)))
    asked = [node.parts[0] for node in nodes if isinstance(node, Apply) and node.op == _ON]
    for node in nodes:
        if isinstance(node, Literal) and not _is_finite(node.value):
            raise SizeError(f'"{text}" has a number that is too large for single precision')
        if isinstance(node, Apply) and node.op == "/" and not _is_divisor(node.parts[1]):
            raise SizeError(
                f'"{text}" divides by something else than a number other than 0, or max(number, ...) of one '
                "above 0"
            )
    features = dict.fromkeys(_feature(text, part) for part in asked)
    read = [node for node in nodes if not any(node is part for part in asked)]
    names = dict.fromkeys(node.name for node in read if isinstance(node, Name))
    return tuple(names), tuple(features)


def _feature(text: str, node: Node) -> str:
    """The feature that ``on`` names. Raises SizeError where it names none."""
    if not isinstance(node, Name) or node.name not in FEATURE_BITS:
        raise SizeError(f'"{text}" asks with {_ON} for no feature of CPUs: {", ".join(FEATURE_BITS)}')
    return node.name


def _is_finite(value: float) -> bool:
    """Of integers, too, which may have more digits than a double's range."""
    return abs(value) <= _LARGEST


def _is_divisor(node: Node) -> bool:
    """Whether a part is never 0, whatever the dims."""
    if isinstance(node, Literal):
        return bool(abs(node.value) >= _LEAST_DIVISOR)
    parts = node.parts if isinstance(node, Apply) and node.op == "max" else ()
    return any(isinstance(part, Literal) and part.value >= _LEAST_DIVISOR for part in parts)


@lru_cache(maxsize=1024)
def cost_tree(
    text: str, pins: tuple[tuple[str, int], ...] = (), features: frozenset[str] = frozenset()
) -> Node:
    """A cost as arithmetic, min, max and ceil of dims and `SHARE`, on processors with these features, with
    quotients by what varies alone, and what follows from dims of known values as numbers. Raises SizeError
    where it is none."""
    tree = _plain(_there(parse(_GRAMMAR, text), features))
    return _decided(tree, {name: _single(value) for name, value in pins})


def _there(node: Node, features: frozenset[str]) -> Node:
    """A tree on processors with some features."""
    if not isinstance(node, Apply):
        return node
    if node.op != _ON:
        return Apply(node.op, tuple(_there(part, features) for part in node.parts))
    feature, there, elsewhere = node.parts
    has_feature = isinstance(feature, Name) and feature.name in features
    return _there(there if has_feature else elsewhere, features)


def _decided(node: Node, pins: Mapping[str, float]) -> Node:
    """A tree with the values that the pins decide. What has none stays, as infinities are no texts of C."""
    if isinstance(node, Name):
        return Literal(pins[node.name]) if node.name in pins else node
    if isinstance(node, Literal):
        return node
    left = Apply(node.op, tuple(_decided(part, pins) for part in node.parts))
    if not all(isinstance(part, Literal) for part in left.parts):
        return left
    with suppress(OverflowError, ValueError):
        value = float(value_of(_GRAMMAR, left, {}))
        return Literal(value) if math.isfinite(value) else left
    return left


def _plain(node: Node) -> Node:
    if isinstance(node, Literal):
        return Literal(_single(node.value))
    if isinstance(node, Name):
        return node
    parts = tuple(map(_plain, node.parts))
    if node.op == "/" and isinstance(node.parts[1], Literal):
        return Apply("*", (parts[0], Literal(_inverse(node.parts[1]))))
    if node.op == "*":
        return _product(*parts)
    if node.op == "ceil" and not _is_exact(node.parts[0]):
        return Apply("ceil", (_product(parts[0], Literal(_BELOW_ONE)),))
    if node.op not in ("rounds", "waves"):
        return Apply(node.op, parts)
    rounds = Apply("*", (*parts, Name(SHARE)))
    return rounds if node.op == "rounds" else Apply("ceil", (rounds,))


def _product(left: Node, right: Node) -> Node:
    """Numbers that follow each other are multiplied here, but to an infinity."""
    if isinstance(right, Literal) and isinstance(left, Apply) and left.op == "*":
        first, last = left.parts
        if isinstance(last, Literal) and math.isfinite(_single(last.value * right.value)):
            return Apply("*", (first, Literal(_single(last.value * right.value))))
    return Apply("*", (left, right))


def _inverse(divisor: Literal) -> float:
    """What a quotient multiplies by, as the divisions of many costs would take longer than all else: of a
    number that is no power of two a little less than its inverse, so that rounding up gives what it would."""
    return _single((1.0 if _is_power(divisor) else _BELOW_ONE) / _single(divisor.value))


def _is_power(number: Literal) -> bool:
    """Of two, or its negative."""
    return math.frexp(_single(number.value))[0] in (0.5, -0.5)


def _is_exact(node: Node) -> bool:
    """Whether a part may be rounded up as it is: a whole number, a quotient of two, which a division rounds
    to another whole number nowhere below 2**24, or one that is less by an `_inverse`. Beyond, one more or
    less changes a cost by less than what it is known to."""
    if not isinstance(node, Apply) or node.op != "/":
        return _is_whole(node)
    number, divisor = node.parts
    if isinstance(divisor, Literal):
        return not _is_power(divisor) or _is_whole(number)
    return _is_whole(number) and _is_whole(divisor)


def _is_whole(node: Node) -> bool:
    """Whether a part is a whole number, whatever the dims."""
    if isinstance(node, Literal):
        return float(node.value).is_integer()
    if isinstance(node, Name) or node.op in ("ceil", "waves"):
        return True
    return node.op in ("+", "-", "*", NEGATE, "min", "max") and all(map(_is_whole, node.parts))


def cost(text: str, dims: Mapping[str, int], units: int, features: Collection[str] = ()) -> float:
    """Microseconds on a device of so many multiprocessors, on a CPU by so many workers, of a machine whose
    processor has these features."""
    names = {name: _single(value) for name, value in dims.items()}
    tree = cost_tree(text, features=frozenset(features))
    return float(value_of(_GRAMMAR, tree, {**names, SHARE: _single(_BELOW_ONE / units)}))


def kept_cost(text: str, dims: Mapping[str, int], units: int, features: Collection[str] = ()) -> float:
    """The cost without the last bits, for which a library has no room."""
    return _marked(cost(text, dims, units, features), 0)


def cheapest(
    texts: Sequence[str], dims: Mapping[str, int], units: int, features: Collection[str] = ()
) -> int:
    """Which of several costs is the least; the first of those that agree in all but the last bits."""
    each = [_marked(cost(text, dims, units, features), number) for number, text in enumerate(texts)]
    return min(range(len(each)), key=each.__getitem__)


def _marked(value: float, number: int) -> float:
    """A cost with its number in the last bits, where a library has it; a zero without a sign."""
    (bits,) = struct.unpack("<i", struct.pack("<f", value + 0.0))
    (marked,) = struct.unpack("<f", struct.pack("<i", bits & ~_NUMBERS | number))
    return float(marked)
