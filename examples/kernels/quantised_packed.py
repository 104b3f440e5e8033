"""Products with weights of 4 or 8 bits in the order that tensor cores want them, in the factory form.

Weights are stored (N, K) like those of ``quantised.py``, with one difference: inside every group of 128
along K they lie in the order of :func:`place`, so that a lane of a warp finds the weights that it multiplies
side by side. :func:`pack` makes the stored form of plain integers. Scales are stored (K / 128, N), one row a
group; on GPUs groups may be less, such as the 32 of GGUF's Q4_0.
"""

from __future__ import annotations

import numpy as np
from quantised import per_byte, stored_type
from quantised_bytes import WORDS, dot4, integers
from quantised_unpacked import in_order, product, product_of_integers
from tile_math import f32

import tilec
import tilec.language as T

#: Weights along K that are packed together, and share a scale where nothing else is said.
GROUP = 128


def place(k, bits):
    """Where weight ``k`` of a group lies, counted in weights.

    Products take 16 weights at a time, and lane t of four takes 2t, 2t + 1, 2t + 8 and 2t + 9 of them. All of
    a lane's weights of a group lie together. With 8 bits they follow one another; with 4 bits two pairs of
    neighbours share a word of eight with two pairs of the next 16, the second of each pair 16 bits above the
    first, where one mask finds both.
    """
    low, lane, half = k % 2, k // 2 % 4, k // 8 % 2
    if bits == 8:
        return lane * 32 + k // 16 * 4 + half * 2 + low
    return lane * 32 + k // 32 * 8 + k // 16 % 2 * 2 + half + low * 4


def weight(at, bits):
    """Which weight of a group lies at ``at``: the inverse of :func:`place`."""
    lane, low = at // 32, (at % 2 if bits == 8 else at // 4 % 2)
    sixteenth = at // 4 % 8 if bits == 8 else at // 8 % 4 * 2 + at // 2 % 2
    half = at // 2 % 2 if bits == 8 else at % 2
    return sixteenth * 16 + half * 8 + lane * 2 + low


def few_rows(M, N, K, bits, dtype, bM, bN, bK, threads):
    """The product of :func:`linear_packed` for ``bM`` rows of A at a time by products of bytes: those of W as
    they are stored, plus 128 where they have a sign, those of A as :func:`integers` makes them."""
    planes, offset = per_byte(bits), 8 if bits == 4 else 128
    width, groups = GROUP // planes, bK // GROUP

    def order(plane, at):
        return weight(at * planes + plane, bits)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // planes), stored_type(bits)),
        scales: T.Tensor((T.ceildiv(K, GROUP), N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W of few bits in packed order with a scale per 128 along K."""
        numbers = T.alloc_global((M, T.ceildiv(K, GROUP), planes, 2, width), "int8")
        units = T.alloc_global((M, T.ceildiv(K, GROUP)), "float32")
        added = T.alloc_global((M, T.ceildiv(K, GROUP)), "float32")
        integers(A, numbers, units, added, order)
        with T.Kernel(T.ceildiv(N, bN), threads=threads) as bx:
            steps = T.alloc_fragment((bM, groups, bN), "float32")
            total = T.alloc_fragment((bM, bN, WORDS), "float32")
            shift, result = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, bN), "float32")
            for mo in T.serial(T.ceildiv(M, bM)):
                rows = [T.max(T.min(mo * bM + i, M - 1), 0) for i in range(bM)]
                T.clear(total)
                T.clear(shift)
                for ko in T.serial(T.ceildiv(K, bK)):
                    for i, m in enumerate(rows):
                        for g in T.serial(T.min(groups, K // GROUP - ko * groups)):
                            for j in T.Parallel(bN):
                                at = ko * groups + g
                                steps[i, g, j] = scales[at, bx * bN + j] * units[m, at]
                                shift[i, j] += scales[at, bx * bN + j] * added[m, at]
                    for j in T.serial(T.min(bN, N - bx * bN)):
                        sums = [T.alloc_fragment((WORDS,), "float32") for _ in rows]
                        for own in sums:
                            T.clear(own)
                        for g in T.serial(T.min(groups, K // GROUP - ko * groups)):
                            at = ko * groups + g
                            for p in T.Parallel(WORDS):
                                for i, m in enumerate(rows):
                                    found = words(W, bx * bN + j, numbers, m, at, p, bits)
                                    sums[i][p] = T.fma(T.cast(found, "float32"), steps[i, g, j], sums[i][p])
                        for p in T.Parallel(WORDS):
                            for i, own in enumerate(sums):
                                total[i, j, p] += own[p]
                T.reduce_sum(total, result, dim=2)
                for i, j in T.Parallel(bM, bN):
                    C[mo * bM + i, bx * bN + j] = result[i, j] - offset * shift[i, j]

    return main


@T.macro
def unpack_tile(W, scales, tile, first, ko, bits):
    """The weights of ``tile`` (`quantised_unpacked.product`): of 4 bits, half of each 128 by the lower halves
    of bytes, then the others."""
    (rows, depth), each, (runs, N) = tile.shape, per_byte(bits), scales.shape
    groups, width = depth // GROUP, GROUP // each
    steps = T.alloc_fragment((groups, rows), "float32")
    for g, j in T.Parallel(groups, rows):
        steps[g, j] = T.cast(scales[ko * groups + g, first + j], "float32")
    for j in T.serial(T.min(rows, N - first)):
        for g in T.serial(T.min(groups, runs - ko * groups)):
            for at in T.Parallel(width):
                byte = T.cast(W[first + j, (ko * groups + g) * width + at], "int32")
                for plane in range(each):
                    number = byte if bits == 8 else (byte >> 4 if plane else byte & 15) - 8
                    tile[j, g * GROUP + plane * width + at] = T.cast(number, "float32") * steps[g, j]


def many_rows(M, N, K, bits, dtype, unpacked, bM, bN, bK, threads):
    """The product of :func:`linear_packed` by numbers of type ``unpacked``, which tiles of W become once for
    ``bM`` rows of A."""
    each = per_byte(bits)
    width = GROUP // each

    def order(at):
        return weight(at % width * each + at // width, bits)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // each), stored_type(bits)),
        scales: T.Tensor((T.ceildiv(K, GROUP), N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W of few bits in packed order with a scale per 128 along K."""
        ordered = T.alloc_global((M, T.ceildiv(K, bK) * bK), unpacked)
        in_order(K, ordered, lambda m, run, at: A[m, run * GROUP + order(at)])
        sizes = (unpacked, bM, bN, bK, threads)
        product(ordered, K, C, lambda *place: unpack_tile(W, scales, *place, bits), *sizes)

    return main


@T.macro
def unpack_integers(W, scales, tile, steps, first, run, bits):
    """The weights of ``tile`` and their steps (`quantised_unpacked.product_of_integers`), in the order of
    :func:`unpack_tile`."""
    rows, width, N = tile.shape[0], GROUP // per_byte(bits), W.shape[0]
    for j in T.serial(T.min(rows, N - first)):
        for at in T.Parallel(GROUP):
            byte = W[first + j, run * width + at % width]
            if bits == 8:
                tile[j, at] = T.reinterpret(byte, "uint8") ^ T.uint8(128)
            else:
                tile[j, at] = T.if_then_else(at // width == 1, byte >> T.uint8(4), byte & T.uint8(15))
    for j in T.Parallel(rows):
        steps[j, 0] = T.cast(scales[run, first + j], "float32")


def many_rows_by_bytes(M, N, K, bits, dtype, bM, bN, threads):
    """The product of :func:`linear_packed` by bytes, which tiles of W become once for ``bM`` rows of A, whose
    activations are two bytes each."""
    each, runs, offset = per_byte(bits), K // GROUP, 8.0 if bits == 4 else 128.0

    def order(_, at):
        return weight(at % (GROUP // each) * each + at // (GROUP // each), bits)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // each), stored_type(bits)),
        scales: T.Tensor((T.ceildiv(K, GROUP), N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W of few bits in packed order with a scale per 128 along K."""
        numbers = T.alloc_global((M, runs, 1, 2, GROUP), "int8")
        units, added = (T.alloc_global((M, runs), "float32") for _ in range(2))
        integers(A, numbers, units, added, order)
        sizes = (1, offset, bM, bN, threads)
        product_of_integers(
            numbers, units, added, C, lambda *at: unpack_integers(W, scales, *at, bits), *sizes
        )

    return main


def words(W, j, numbers, m, g, p, bits):
    """The products of group ``g`` of W's row ``j`` and of row ``m`` of the activations, in the words of lane
    ``p``."""
    planes, width = numbers.shape[2], numbers.shape[4]

    def products(part):
        return sum(
            dot4(
                lambda byte, plane=plane, at=at: stored(W[j, g * width + at + byte], plane, bits),
                lambda byte, plane=plane, at=at: numbers[m, g, plane, part, at + byte],
            )
            for plane in range(planes)
            for at in (p * 4 + run for run in range(0, width, 4 * WORDS))
        )

    return products(0) * 256 + products(1)


def stored(byte, plane, bits):
    """The number from 0 on that a byte of W has in one of its halves, or is."""
    value = T.cast(byte, "int32")
    if bits == 8:
        return value + 128
    return value >> 4 if plane else value & 15


@T.macro
def unpack_words(packed, steps, Ws, bits, part):
    """Ws (N, K) = the weights of ``packed``, times their steps (K / ``part``, N): what products in registers
    take."""
    each = per_byte(bits)
    for j, k in T.Parallel(*Ws.shape):
        at = k // GROUP * GROUP + place(k % GROUP, bits)
        byte = T.cast(packed[j, at // each], "int32")
        number = byte if bits == 8 else ((byte >> (at % 2 * 4)) & 15) - 8
        Ws[j, k] = T.cast(number, "float32") * steps[k // part, j]


@tilec.jit(out_idx=[-1])
def linear_packed(
    M,
    N,
    K,
    bits=4,
    dtype="float16",
    bM=64,
    bN=128,
    bK=256,
    num_stages=4,
    threads=256,
    gemv=False,
    unpacked="",
    part=GROUP,
):
    """C = A @ W.T with W packed: tiles of W become 16-bit numbers in registers, and rows of W rows of the
    product, so that few rows of A cost little. ``part`` weights along K, a multiple of 16 that divides 128,
    share a scale. For processors that have no tensor cores, and parts of 128, ``gemv``: by products of bytes
    (:func:`few_rows`); ``unpacked``: by numbers of that type (:func:`many_rows`), ``"int8"`` by bytes
    (:func:`many_rows_by_bytes`)."""
    assert part in (16, 32, 64, GROUP), f"parts of {part} are no steps of a product in {GROUP}"
    assert part == GROUP or not (gemv or unpacked), f"this form takes parts of {GROUP}, not {part}"
    if gemv:
        return few_rows(M, N, K, bits, dtype, bM, bN, bK, threads)
    assert bK % GROUP == 0, f"bK = {bK} is no multiple of {GROUP}"
    if unpacked == "int8":
        assert bK == GROUP, f"bK = {bK}: bytes are multiplied {GROUP} at a time"
        return many_rows_by_bytes(M, N, K, bits, dtype, bM, bN, threads)
    if unpacked:
        return many_rows(M, N, K, bits, dtype, unpacked, bM, bN, bK, threads)
    each = per_byte(bits)
    groups = bK // part

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // each), stored_type(bits)),
        scales: T.Tensor((T.ceildiv(K, part), N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W of few bits in packed order with a scale per part along K."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            As = T.alloc_shared((bM, bK), dtype)
            packed = T.alloc_shared((bN, bK // each), stored_type(bits))
            steps = T.alloc_shared((groups, bN), dtype)
            Ws = T.alloc_fragment((bN, bK), dtype)
            acc = T.alloc_fragment((bN, bM), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], As)
                T.copy(W[bx * bN, ko * (bK // each)], packed)
                T.copy(scales[ko * groups, bx * bN], steps)
                unpack_words(packed, steps, Ws, bits, part)
                T.gemm(Ws, As, acc, transpose_B=True)
            for j, i in T.Parallel(bN, bM):
                C[by * bM + i, bx * bN + j] = acc[j, i]

    return main


def pack(numbers, bits=4):
    """The stored form of int8 ``numbers`` of shape (N, K), those of 4 bits from -8 to 7; K is a multiple of
    128."""
    rows, columns = numbers.shape
    groups = numbers.reshape(rows, columns // GROUP, GROUP)
    ordered = np.empty_like(groups)
    ordered[..., place(np.arange(GROUP), bits)] = groups
    ordered = ordered.reshape(rows, columns)
    if bits == 8:
        return ordered
    nibbles = (ordered + 8).astype(np.uint8)
    return nibbles[:, 0::2] | nibbles[:, 1::2] << 4


def unpack(W, bits=4):
    """The integers that packed weights stand for; the inverse of :func:`pack`."""
    ordered = W
    if bits == 4:
        ordered = np.stack([W & 15, W >> 4], axis=-1).reshape(W.shape[0], -1).astype(np.int8) - 8
    rows, columns = ordered.shape
    groups = ordered.reshape(rows, columns // GROUP, GROUP)
    return groups[..., place(np.arange(GROUP), bits)].reshape(rows, columns)


def linear_packed_reference(A, W, scales):
    """NumPy twin of :func:`linear_packed`."""
    bits = 4 if W.dtype == np.uint8 else 8
    weights = f32(unpack(W, bits))
    return f32(A) @ (weights * np.repeat(f32(scales).T, weights.shape[1] // len(scales), axis=1)).T


def linear_packed_inputs(dims, rng, bits=4, part=GROUP):
    """Normal activations, weights of all values, scales that keep the result near 1."""
    M, N, K = (dims[name] for name in ("M", "N", "K"))
    limit, size = (8, 4.0) if bits == 4 else (128, 64.0)
    numbers = rng.integers(-limit, limit, (N, K)).astype(np.int8)
    scales = rng.uniform(0.5, 1.5, (K // part, N)) / (size * K**0.5)
    return [rng.standard_normal((M, K)), pack(numbers, bits), scales]


def linear_packed8_inputs(dims, rng):
    """:func:`linear_packed_inputs` with weights of 8 bits."""
    return linear_packed_inputs(dims, rng, bits=8)


def linear_packed_parts_inputs(dims, rng):
    """:func:`linear_packed_inputs` with a scale for each 32 weights."""
    return linear_packed_inputs(dims, rng, part=32)
