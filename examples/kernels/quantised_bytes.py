"""Products with packed weights by products of bytes, for CPUs, in the factory form.

Rows of activations become integers with a step per :data:`RUN` along K: of 16 bits, each of them two bytes,
256 * high + low, or of 8. Weights stay the bytes, or halves of bytes, that are stored: numbers from 0 on.
Each lane of a vector adds up the products of its own words of four bytes; steps of groups are applied to
sums. What an offset of the weights comes to is what sums begin with, or is taken off the results.
"""

from __future__ import annotations

import tilec.language as T

#: Words of a vector: 64 bytes of a row of weights.
WORDS = 16
#: Activations that share a step.
RUN = 128
#: Weights of a row that are taken in a loop of a known length; a row of a tile may have several of these.
PIECE = 4096
#: The largest integer that an activation becomes, by its bytes: the upper one, rounded, is at most 127.
LARGEST = {1: 127, 2: 127 * 256}
#: Runs that a task brings into integers.
_RUNS = 8


def pieces_of(bK):
    """The weights of a piece of a row of ``bK``, and how many pieces it has."""
    piece = min(bK, PIECE)
    assert bK % piece == 0, f"bK = {bK} is no multiple of {PIECE}"
    return piece, bK // piece


def dot4(left, right):
    """The products of four bytes, added up: both are functions of the number of a byte in its word."""
    return sum(T.cast(left(byte), "int32") * T.cast(right(byte), "int32") for byte in range(4))


def _places(planes, width, p):
    """The places that lane ``p`` multiplies in planes of ``width`` bytes: plane and byte."""
    runs, planes = range(0, width, 4 * WORDS), range(planes)
    return [(plane, run + p * 4 + byte) for plane in planes for run in runs for byte in range(4)]


@T.macro
def integers(A, numbers, steps, sums, order, parts=1, offset=0):
    """A launch that brings rows of A into integers: ``numbers`` (M, runs, planes, size, RUN / planes) has the
    bytes of a run, high ones first, in the order of the weights' planes, ``order(plane, at)`` in the run;
    ``steps`` (M, runs) what an integer stands for. ``sums`` (M, runs * parts) has what parts of a run add up
    to; or, of weights that are too large by ``offset``, (M, runs, WORDS) the int32 that the products of a run
    begin with in each lane. Runs behind K are 0."""
    (M, _), (planes, size, width), part = A.shape, numbers.shape[2:], RUN // parts
    largest = LARGEST[size]
    with T.Kernel(T.ceildiv(numbers.shape[1], _RUNS), M, threads=128) as (ko, m):
        values = T.alloc_fragment((_RUNS, RUN), "float32")
        tops, factors = T.alloc_fragment((_RUNS,), "float32"), T.alloc_fragment((_RUNS,), "float32")
        whole = T.alloc_fragment((_RUNS, RUN), "int32")
        for g, k in T.Parallel(_RUNS, RUN):
            values[g, k] = A[m, (ko * _RUNS + g) * RUN + k]
        T.reduce_absmax(values, tops, dim=1, nan_propagate=True)
        for g in T.Parallel(_RUNS):
            factors[g] = T.if_then_else(tops[g] > 0.0, largest / tops[g], 0.0)
            steps[m, ko * _RUNS + g] = tops[g] * (1.0 / largest)
        for g, k in T.Parallel(_RUNS, RUN):
            whole[g, k] = T.cast(T.nearbyint(values[g, k] * factors[g]), "int32")
        if offset:
            for g, p in T.Parallel(_RUNS, WORDS):
                own = sum(whole[g, order(*place)] for place in _places(planes, width, p))
                sums[m, ko * _RUNS + g, p] = -offset * own
        for number in () if offset else tuple(range(parts)):
            added = T.alloc_fragment((_RUNS,), "int32")
            T.reduce_sum(whole[:, number * part : (number + 1) * part], added, dim=1)
            for g in T.Parallel(_RUNS):
                sums[m, (ko * _RUNS + g) * parts + number] = added[g] * (tops[g] * (1.0 / largest))
        for plane in range(planes):
            for g, at in T.Parallel(_RUNS, width):
                number = whole[g, order(plane, at)]
                if size == 1:
                    numbers[m, ko * _RUNS + g, plane, 0, at] = number
                else:
                    high = (number + 128) >> 8
                    numbers[m, ko * _RUNS + g, plane, 0, at] = high
                    numbers[m, ko * _RUNS + g, plane, 1, at] = number - high * 256
