"""Products with weights of 4 bits in groups of 32, 64 or 128 along K, for CPUs, in the factory form.

Weights are stored as :func:`quantised_packed.pack` stores them, whose words of eight come from 32 neighbours
each; scales (N, K / group), those of a row side by side. Activations become integers of 8 or of 16 bits
(``quantised_bytes.py``).
"""

from __future__ import annotations

import numpy as np
from quantised_bytes import LARGEST, PIECE, RUN, WORDS, dot4, integers, pieces_of
from quantised_packed import pack, stored, unpack, weight
from quantised_unpacked import in_order, product, product_of_integers
from tile_math import f32

import tilec
import tilec.language as T

FOUR, FIFTEEN = T.uint8(4), T.uint8(15)


def words(W, j, numbers, starts, m, run, p):
    """The products of 128 weights of W's row ``j`` and of row ``m`` of the activations, in the words of lane
    ``p``."""
    _, _, planes, size, width = numbers.shape

    def products(part):
        return sum(
            dot4(
                lambda byte, plane=plane: stored(W[j, run * width + p * 4 + byte], plane, 4),
                lambda byte, plane=plane: numbers[m, run, plane, part, p * 4 + byte],
            )
            for plane in range(planes)
        )

    last = products(size - 1) if starts is None else starts[m, run, p] + products(size - 1)
    return last if size == 1 else products(0) * 256 + last


@T.macro
def unpack_tile(W, scales, tile, first, ko, group):
    """The weights of ``tile`` (`quantised_unpacked.product`): half of each 128 by the lower halves of bytes,
    then the others. Four bytes in a row are of one quarter of the 128."""
    (rows, depth), half = tile.shape, RUN // 2
    N, runs, own = W.shape[0], W.shape[1] // half, depth // RUN
    for j in T.serial(T.min(rows, N - first)):
        for r in T.serial(T.min(own, runs - ko * own)):
            run, steps = ko * own + r, T.alloc_fragment((WORDS,), "float32")
            for p in T.Parallel(WORDS):
                steps[p] = T.cast(scales[first + j, (run * RUN + p // 4 * 32) // group], "float32")
            for part in range(half // WORDS):
                for p in T.Parallel(WORDS):
                    byte = T.cast(W[first + j, run * half + part * WORDS + p], "int32")
                    for plane in range(2):
                        number = (byte >> 4 if plane else byte & 15) - 8
                        at = r * RUN + plane * half + part * WORDS + p
                        tile[j, at] = T.cast(number, "float32") * steps[p]


def many_rows(M, N, K, group, size, dtype, unpacked, bM, bN, bK, threads):
    """The product of :func:`linear_groups` by numbers of type ``unpacked``, which tiles of W become once for
    ``bM`` rows of A. Activations are what they are, or what integers of one byte (``size``) stand for."""

    def order(at):
        return weight(at % (RUN // 2) * 2 + at // (RUN // 2), 4)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W of 4 bits in packed order with a scale for each group along K."""
        ordered = T.alloc_global((M, T.ceildiv(K, bK) * bK), unpacked)
        if size == 1:
            numbers = T.alloc_global((M, K // RUN, 1, 1, RUN), "int8")
            units, added = (T.alloc_global((M, K // RUN), "float32") for _ in range(2))
            integers(A, numbers, units, added, lambda _, at: order(at))
            in_order(K, ordered, lambda m, run, at: numbers[m, run, 0, 0, at] * units[m, run])
        else:
            in_order(K, ordered, lambda m, run, at: A[m, run * RUN + order(at)])
        product(ordered, K, C, lambda *at: unpack_tile(W, scales, *at, group), unpacked, bM, bN, bK, threads)

    return main


@T.macro
def unpack_integers(W, scales, tile, steps, first, run):
    """The weights of ``tile`` and their steps (`quantised_unpacked.product_of_integers`): of each 32 along
    K the lower halves of 16 bytes, then the others."""
    (rows, groups), N = steps.shape, W.shape[0]
    for j in T.serial(T.min(rows, N - first)):
        for at in T.Parallel(RUN):
            byte = W[first + j, run * (RUN // 2) + byte_at(at)]
            tile[j, at] = T.if_then_else(at // WORDS % 2 == 1, byte >> FOUR, byte & FIFTEEN)
    for j, group in T.Parallel(rows, groups):
        steps[j, group] = T.cast(scales[first + j, run * groups + group], "float32")


def byte_at(at):
    """Which byte of a run has weight ``at`` of :func:`unpack_integers`: of each 16 four are of its 32."""
    return at // 4 % 4 * WORDS + at // 32 * 4 + at % 4


def many_rows_by_bytes(M, N, K, group, size, dtype, bM, bN, threads):
    """The product of :func:`linear_groups` by bytes, which tiles of W become once for ``bM`` rows of A, and
    of which an activation has ``size``."""
    runs, groups = K // RUN, RUN // group

    def order(_, at):
        return weight(byte_at(at) * 2 + at // WORDS % 2, 4)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W of 4 bits in packed order with a scale for each group along K."""
        numbers = T.alloc_global((M, runs, 1, size, RUN), "int8")
        units, added = (T.alloc_global((M, count), "float32") for count in (runs, runs * groups))
        integers(A, numbers, units, added, order, groups)
        sizes = (groups, 8.0, bM, bN, threads)
        product_of_integers(numbers, units, added, C, lambda *at: unpack_integers(W, scales, *at), *sizes)

    return main


@tilec.jit(out_idx=[-1])
def linear_groups(
    M,
    N,
    K,
    group=32,
    activations=8,
    dtype="float16",
    bM=1,
    bN=64,
    bK=4096,
    threads=128,
    unpacked="",
):
    """C = A @ W.T for ``bM`` rows of A at a time, these by integers of 8 or 16 bits (``activations``), or by
    numbers of a type as exact (``unpacked``, :func:`many_rows`), or by products of tiles of bytes
    (``unpacked="int8"``, :func:`many_rows_by_bytes`); K is a multiple of 128."""
    assert bK % RUN == 0, f"bK = {bK} is no multiple of {RUN}"
    wide, pieces = pieces_of(bK)
    if unpacked == "int8":
        assert bK == RUN, f"bK = {bK}: bytes are multiplied {RUN} at a time"
        return many_rows_by_bytes(M, N, K, group, activations // 8, dtype, bM, bN, threads)
    if unpacked:
        return many_rows(M, N, K, group, activations // 8, dtype, unpacked, bM, bN, bK, threads)
    runs, parts = wide // RUN, RUN // group
    #: Whether a run has one step: several are brought to float32 together, and what the offset of the weights
    #: comes to is added up there, a number for a run in place of one for each lane.
    shared = parts == 1
    assert not shared or runs % WORDS == 0, f"bK = {bK} is no multiple of {RUN * WORDS}"
    padded = T.ceildiv(K, bK) * pieces

    def order(plane, at):
        return weight(at * 2 + plane, 4)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W of 4 bits in packed order with a scale for each group along K."""
        numbers = T.alloc_global((M, padded * runs, 2, activations // 8, RUN // 2), "int8")
        units = T.alloc_global((M, padded * runs), "float32")
        if shared:
            starts, added = None, T.alloc_global((M, padded * runs), "float32")
            integers(A, numbers, units, added, order)
        else:
            starts = T.alloc_global((M, padded * runs, WORDS), "int32")
            integers(A, numbers, units, starts, order, offset=8)
        with T.Kernel(T.ceildiv(N, bN), threads=threads) as bx:
            steps = T.alloc_fragment((bM, runs), "float32")
            total, result = (
                T.alloc_fragment((bM, bN, WORDS), "float32"),
                T.alloc_fragment((bM, bN), "float32"),
            )
            for mo in T.serial(T.ceildiv(M, bM)):
                rows = [T.max(T.min(mo * bM + i, M - 1), 0) for i in range(bM)]
                T.clear(total)
                for tile, column in T.grid(T.ceildiv(K, bK), T.min(bN, N - bx * bN)):
                    for piece in T.serial(T.min(pieces, T.ceildiv(K - tile * bK, PIECE))):
                        ko, j = tile * pieces + piece, bx * bN + column
                        sums = [T.alloc_fragment((WORDS,), "float32") for _ in rows]
                        less = [T.alloc_fragment((WORDS,), "float32") for _ in rows]
                        for own in (*sums, *less):
                            T.clear(own)
                        if shared:
                            for v in T.serial(runs // WORDS):
                                for p in T.Parallel(WORDS):
                                    run = ko * runs + v * WORDS + p
                                    step = T.cast(scales[j, run], "float32")
                                    for i, m in enumerate(rows):
                                        steps[i, v * WORDS + p] = step * units[m, run]
                                        less[i][p] = T.fma(8.0 * step, added[m, run], less[i][p])
                        for g in T.serial(T.min(runs, K // RUN - ko * runs)):
                            run = ko * runs + g
                            for p in T.Parallel(WORDS):
                                for i, m in enumerate(rows):
                                    found = T.cast(words(W, j, numbers, starts, m, run, p), "float32")
                                    if shared:
                                        sums[i][p] = T.fma(found, steps[i, g], sums[i][p])
                                    else:
                                        step = T.cast(scales[j, run * parts + p % 4 * parts // 4], "float32")
                                        sums[i][p] = T.fma(found * step, units[m, run], sums[i][p])
                        for p in T.Parallel(WORDS):
                            for i, (own, offsets) in enumerate(zip(sums, less, strict=True)):
                                total[i, column, p] += own[p] - offsets[p]
                T.reduce_sum(total, result, dim=2)
                for i, j in T.Parallel(bM, bN):
                    C[mo * bM + i, bx * bN + j] = result[i, j]

    return main


def linear_w4a16_reference(A, W, scales):
    """NumPy twin of :func:`linear_groups` with activations of 16 bits, which are not rounded here."""
    weights = f32(unpack(W))
    return f32(A) @ (weights * np.repeat(f32(scales), weights.shape[1] // scales.shape[1], axis=1)).T


def linear_w4a8_reference(A, W, scales):
    """NumPy twin of :func:`linear_groups` with activations of 8 bits, which are rounded as there."""
    runs = f32(A).reshape(A.shape[0], -1, RUN)
    tops = np.abs(runs).max(axis=-1, keepdims=True)
    factors = np.where(tops > 0, LARGEST[1] / np.maximum(tops, np.float32(1e-30)), 0).astype(np.float32)
    rounded = np.rint(runs * factors) * (tops * np.float32(1 / LARGEST[1]))
    return linear_w4a16_reference(rounded.reshape(A.shape), W, scales)


def linear_groups_inputs(dims, rng, group=32):
    """Normal activations, weights of all values, scales that keep the result near 1."""
    M, N, K = (dims[name] for name in ("M", "N", "K"))
    numbers = rng.integers(-8, 8, (N, K)).astype(np.int8)
    scales = rng.uniform(0.5, 1.5, (N, K // group)) / (4.0 * K**0.5)
    return [rng.standard_normal((M, K)), pack(numbers), scales]


def linear_groups128_inputs(dims, rng):
    """:func:`linear_groups_inputs` with groups of 128."""
    return linear_groups_inputs(dims, rng, group=128)
