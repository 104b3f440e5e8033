"""Products with weights of 4 bits as GGUF files store them, for CPUs, in the factory form.

A row of W is a row of blocks of bytes: of 32 weights (``q4_0``), a 16-bit float ``d`` and 16 bytes, in 18;
or of 256 (``q4_k``), ``d``, a second float ``dmin``, eight steps and eight minima of 6 bits each in 12 bytes,
and 128 bytes, in 144. Bytes have two weights, numbers from 0 to 15: ``d * (number - 8)``, or
``d * step * number - dmin * minimum`` with the step and the minimum of 32. Activations become integers of 16
bits (``quantised_bytes.py``).
"""

from __future__ import annotations

import numpy as np
from quantised_bytes import PIECE, RUN, WORDS, dot4, integers, pieces_of
from quantised_unpacked import in_order, product, product_of_integers
from tile_math import f32

import tilec
import tilec.language as T

#: Weights that share a step.
PART = 32
#: Weights and bytes of a block.
SIZES = {"q4_0": (32, 18), "q4_k": (256, 144)}
_PARTS = RUN // PART
#: Parts of a block.
PARTS = {form: size // PART for form, (size, _) in SIZES.items()}
#: Words of four numbers of 6 bits, their lower 4 and their upper 2, as ``q4_k`` stores them.
SIX_BITS, FOUR_BITS, TWO_BITS = (T.uint32(bits * 0x01010101) for bits in (0x3F, 0x0F, 0x30))
#: Weights that are taken together: whole blocks, at least a run of activations.
UNITS = {form: max(size, RUN) for form, (size, _) in SIZES.items()}


def order(form, plane, at):
    """Which of 128 weights lies in half ``plane`` of byte ``at`` of 64."""
    half = 16 if form == "q4_0" else 32
    return at // half * (2 * half) + plane * half + at % half


def byte_of(form, unit, half, at):
    """The block and the place in it of byte ``at`` of the 64 that have 128 weights: a unit of ``q4_0``, one
    half of a unit of ``q4_k``."""
    if form == "q4_0":
        return unit * 4 + at // 16, 2 + at % 16
    return unit, 16 + half * 64 + at


def half_at(W, j, block, at):
    """The bits of the 16-bit float that two bytes of a block are."""
    return T.cast(W[j, block, at], "uint16") | T.cast(W[j, block, at + 1], "uint16") << T.uint16(8)


def word_at(W, j, block, at):
    """Four bytes of a block."""
    low, high = (T.cast(half_at(W, j, block, at + 2 * half), "uint32") for half in range(2))
    return low | high << 16


@T.macro
def stored_steps(form, W, j, unit, s, floats, codes):
    """Brings what the steps of a unit of row ``j`` are made of to place ``s``: the bits of its ``floats``,
    and for ``q4_k`` words of four ``codes`` of 6 bits, of its steps and of its minima."""
    if form == "q4_0":
        for b in tuple(range(_PARTS)):
            floats[0, s * _PARTS + b] = half_at(W, j, unit * _PARTS + b, 0)
    else:
        for number in (0, 1):
            floats[number, s] = half_at(W, j, unit, 2 * number)
        x, y, z = (word_at(W, j, unit, 4 + 4 * word) for word in range(3))
        codes[0, s * 2] = x & SIX_BITS
        codes[0, s * 2 + 1] = z & FOUR_BITS | (x >> 2) & TWO_BITS
        codes[1, s * 2] = y & SIX_BITS
        codes[1, s * 2 + 1] = (z >> 4) & FOUR_BITS | (y >> 2) & TWO_BITS


def step_of(form, floats, codes, part):
    """The step of a part, and what its weights are too large by."""
    d, dmin = (float_of(floats[number, part // PARTS[form]]) for number in range(2))
    if form == "q4_0":
        return d, 8.0 * d
    step, minimum = (T.cast(codes[number, part], "float32") for number in range(2))
    return d * step, dmin * minimum


def part_of(form, plane, p):
    """The part of 128 weights that lane ``p`` has, in half ``plane`` of its bytes."""
    return order(form, plane, p * 4) // PART


def codes_of(W, j, unit, p):
    """The number of 6 bits that lane ``p`` of 16 has of a block of ``q4_k``: eight steps, eight minima."""
    own, minimum = p % 4, p // 8
    first = T.cast(W[j, unit, 4 + minimum * 4 + own], "int32")
    other = (T.cast(W[j, unit, 12 + own], "int32") >> (minimum * 4)) & 15
    return T.if_then_else(p % 8 < 4, first & 63, other | first >> 6 << 4)


@T.macro
def add_q4_0(W, j, unit, count, numbers, scale, added, rows, sums, less):
    """Adds the products of ``count`` units of W's row ``j``, each lane to its own of ``sums``, and to
    ``less`` what the offset comes to, an eighth of it, a lane for each step."""
    steps = T.alloc_fragment((count * _PARTS,), "float32")
    alone = len(rows) == 1
    for part in T.Parallel(count * _PARTS):
        unscaled = float_of(half_at(W, j, unit * _PARTS + part, 0))
        steps[part] = unscaled * scale[rows[0], unit + part // _PARTS] if alone else unscaled
        for i, m in enumerate(rows):
            less[i][part] = T.fma(unscaled, added[m, unit * _PARTS + part], less[i][part])
    for u in tuple(range(count)):
        for p in T.Parallel(WORDS):
            step = steps[u * _PARTS + p // 4]
            for i, m in enumerate(rows):
                value = T.cast(words("q4_0", W, j, numbers, m, unit + u, 0, p, (0, 1)), "float32")
                if alone:
                    sums[i][p] = T.fma(value, step, sums[i][p])
                else:
                    sums[i][p] = T.fma(value * step, scale[m, unit + u], sums[i][p])


@T.macro
def add_q4_k(W, j, unit, count, numbers, scale, added, rows, sums, less):
    """As :func:`add_q4_0`; what the minima come to is taken off in eight of the lanes of ``sums``."""
    floats, steps = T.alloc_fragment((2,), "uint16"), T.alloc_fragment((WORDS,), "float32")
    for number in (0, 1):
        floats[number] = half_at(W, j, unit, 2 * number)
    for p in T.Parallel(WORDS):
        steps[p] = T.cast(codes_of(W, j, unit, p), "float32") * float_of(floats[p // 8])
        for i, m in enumerate(rows):
            less = T.if_then_else(p >= 8, added[m, unit * 8 + p % 8], 0.0)
            sums[i][p] = T.fma(steps[p], -less, sums[i][p])
    for p in T.Parallel(WORDS):
        for i, m in enumerate(rows):
            for half in (0, 1):
                values = []
                for plane in (0, 1):
                    found = words("q4_k", W, j, numbers, m, unit, half, p, (plane,))
                    step = steps[half * _PARTS + part_of("q4_k", plane, p)]
                    values.append((T.cast(found, "float32"), step))
                (low, step), (high, other) = values
                value = T.fma(high, other, low * step)
                sums[i][p] = T.fma(value, scale[m, unit * 2 + half], sums[i][p])


def float_of(bits):
    """The number that the bits of a 16-bit float are."""
    return T.cast(T.reinterpret(bits, "float16"), "float32")


def words(form, W, j, numbers, m, unit, half, p, planes):
    """The products of 128 weights of W's row ``j`` (`byte_of`), ``planes`` of the halves of their bytes, and
    of row ``m`` of the activations, in the words of lane ``p``."""
    run = unit * (UNITS[form] // RUN) + half

    def weights(plane, byte):
        block, at = byte_of(form, unit, half, p * 4)
        value = T.cast(W[j, block, at + byte], "int32")
        return value >> 4 if plane else value & 15

    def products(part):
        return sum(
            dot4(
                lambda byte, plane=plane: weights(plane, byte),
                lambda byte, plane=plane: numbers[m, run, plane, part, p * 4 + byte],
            )
            for plane in planes
        )

    return products(0) * 256 + products(1)


@T.macro
def unpack_tile(form, W, tile, first, ko):
    """The weights of ``tile`` (`quantised_unpacked.product`), in their own order."""
    (N, blocks, _), (rows, depth) = W.shape, tile.shape
    units = depth // UNITS[form]
    for j in T.serial(T.min(rows, N - first)):
        for s in T.serial(T.min(units, blocks * SIZES[form][0] // UNITS[form] - ko * units)):
            unpack_unit(form, W, first + j, ko * units + s, tile, j, s * UNITS[form])


@T.macro
def unpack_blocks(form, blocks, tile):
    """The weights of ``blocks`` (rows, blocks of a row, bytes of a block) as ``tile`` (rows, K)."""
    rows, depth = tile.shape
    for j in T.serial(rows):
        for s in range(depth // UNITS[form]):
            unpack_unit(form, blocks, j, s, tile, j, s * UNITS[form])


@T.macro
def unpack_unit(form, W, j, unit, tile, row, column):
    """The weights of a unit of W's row ``j`` as those of a row of ``tile`` from ``column`` on."""
    half, parts = order(form, 1, 0), UNITS[form] // PART
    floats = T.alloc_fragment((2, parts // PARTS[form]), "uint16")
    packed = T.alloc_fragment((2, parts // 4), "uint32")
    codes = T.view(packed, (2, parts), "uint8")
    stored_steps(form, W, j, unit, 0, floats, packed)
    for pair in range(UNITS[form] // (2 * half)):
        block, start = (unit * _PARTS + pair, 2) if form == "q4_0" else (unit, 16 + pair * half)
        parts_of = (pair, pair) if form == "q4_0" else (2 * pair, 2 * pair + 1)
        (step, offset), (other, another) = (step_of(form, floats, codes, part) for part in parts_of)
        for at in T.Parallel(half):
            byte = T.cast(W[j, block, start + at], "int32")
            start_of_pair = column + pair * 2 * half
            tile[row, start_of_pair + at] = T.fma(T.cast(byte & 15, "float32"), step, -offset)
            tile[row, start_of_pair + half + at] = T.fma(T.cast(byte >> 4, "float32"), other, -another)


@T.macro
def unpack_integers(form, W, tile, steps, first, run):
    """The weights of ``tile`` and their steps (`quantised_unpacked.product_of_integers`), in their own order;
    of ``q4_k`` with the first half of a block steps and minima of all of it."""
    (rows, _), N, runs, half = tile.shape, W.shape[0], UNITS[form] // RUN, order(form, 1, 0)
    part, first_block = run % runs, run // runs * (UNITS[form] // SIZES[form][0])
    for j in T.serial(T.min(rows, N - first)):
        for at in T.Parallel(RUN):
            block, place = byte_of(form, 0, part, at // (2 * half) * half + at % half)
            byte = W[first + j, first_block + block, place]
            tile[j, at] = T.if_then_else(at // half % 2 == 1, byte >> T.uint8(4), byte & T.uint8(15))
    if form == "q4_0":
        for j, group in T.Parallel(rows, _PARTS):
            steps[j, group] = float_of(half_at(W, first + j, first_block + group, 0))
    else:
        if part == 0:
            for j in T.serial(T.min(rows, N - first)):
                floats = [half_at(W, first + j, first_block, 2 * number) for number in (0, 1)]
                for p in T.Parallel(WORDS):
                    code = T.cast(codes_of(W, first + j, first_block, p), "float32")
                    steps[j, p] = code * T.if_then_else(p < 8, float_of(floats[0]), float_of(floats[1]))


def many_rows_by_bytes(M, N, K, form, dtype, bM, bN, threads):
    """The product of :func:`linear_gguf` by bytes, which tiles of W become once for ``bM`` rows of A, whose
    activations are two bytes each."""
    (size, stored), runs = SIZES[form], K // RUN

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // size, stored), "uint8"),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W in blocks of 4-bit weights as GGUF files have them."""
        numbers = T.alloc_global((M, runs, 1, 2, RUN), "int8")
        units, added = (T.alloc_global((M, count), "float32") for count in (runs, runs * _PARTS))
        integers(A, numbers, units, added, lambda _, at: at, _PARTS)
        sizes = (_PARTS, 8.0 if form == "q4_0" else 0.0, bM, bN, threads, UNITS[form] // RUN)
        product_of_integers(numbers, units, added, C, lambda *at: unpack_integers(form, W, *at), *sizes)

    return main


def many_rows(M, N, K, form, dtype, unpacked, bM, bN, bK, threads):
    """The product of :func:`linear_gguf` by numbers of type ``unpacked``, which tiles of W become once for
    ``bM`` rows of A."""
    size, stored = SIZES[form]

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // size, stored), "uint8"),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W in blocks of 4-bit weights as GGUF files have them."""
        ordered = T.alloc_global((M, T.ceildiv(K, bK) * bK), unpacked)
        in_order(K, ordered, lambda m, run, at: A[m, run * RUN + at])
        product(ordered, K, C, lambda *at: unpack_tile(form, W, *at), unpacked, bM, bN, bK, threads)

    return main


@tilec.jit(out_idx=[-1])
def linear_gguf(
    M, N, K, form="q4_0", dtype="float16", bM=1, bN=64, bK=4096, together=1, threads=128, unpacked=""
):
    """C = A @ W.T for ``bM`` rows of A at a time; K is a multiple of 128, for ``q4_k`` of 256. ``together``:
    of how many times 128 weights of ``q4_0`` the steps become numbers at once; 4 fill a vector of 512 bits.
    ``unpacked``: by numbers of that type (:func:`many_rows`), ``"int8"`` by bytes
    (:func:`many_rows_by_bytes`)."""
    if unpacked == "int8":
        assert bK == RUN, f"bK = {bK}: bytes are multiplied {RUN} at a time"
        return many_rows_by_bytes(M, N, K, form, dtype, bM, bN, threads)
    several = UNITS[form] * (1 if unpacked else together)
    assert bK % several == 0, f"bK = {bK} is no multiple of {several}"
    wide, pieces = pieces_of(bK)
    assert together == 1 or form == "q4_0", f"together = {together}: a block of {form} has steps of its own"
    if unpacked:
        return many_rows(M, N, K, form, dtype, unpacked, bM, bN, bK, threads)
    size, stored = SIZES[form]
    units, runs = wide // UNITS[form], UNITS[form] // RUN
    #: Units of K and what the last tile lacks, whose activations are 0.
    padded = T.ceildiv(K, bK) * pieces * units
    add = add_q4_0 if form == "q4_0" else add_q4_k

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // size, stored), "uint8"),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W in blocks of 4-bit weights as GGUF files have them."""
        numbers = T.alloc_global((M, padded * runs, 2, 2, RUN // 2), "int8")
        scale = T.alloc_global((M, padded * runs), "float32")
        added = T.alloc_global((M, padded * runs * _PARTS), "float32")
        integers(A, numbers, scale, added, lambda plane, at: order(form, plane, at), _PARTS)
        operands = (numbers, scale, added)
        with T.Kernel(T.ceildiv(N, bN), threads=threads) as bx:
            total = T.alloc_fragment((bM, bN, WORDS), "float32")
            result = T.alloc_fragment((bM, bN), "float32")
            for mo in T.serial(T.ceildiv(M, bM)):
                rows = [T.max(T.min(mo * bM + i, M - 1), 0) for i in range(bM)]
                T.clear(total)
                for tile, column in T.grid(T.ceildiv(K, bK), T.min(bN, N - bx * bN)):
                    for piece in T.serial(T.min(pieces, T.ceildiv(K - tile * bK, PIECE))):
                        ko = tile * pieces + piece
                        first, count = ko * units, T.min(units, K // UNITS[form] - ko * units)
                        whole = T.min(units // together, K // several - ko * (units // together))
                        sums = [T.alloc_fragment((WORDS,), "float32") for _ in rows]
                        less = [T.alloc_fragment((WORDS,), "float32") for _ in rows]
                        for own in (*sums, *less):
                            T.clear(own)
                        for s in T.serial(whole):
                            add(
                                W,
                                bx * bN + column,
                                first + s * together,
                                together,
                                *operands,
                                rows,
                                sums,
                                less,
                            )
                        if together > 1:
                            for s in T.serial(T.max(whole, 0) * together, count):
                                add(W, bx * bN + column, first + s, 1, *operands, rows, sums, less)
                        for p in T.Parallel(WORDS):
                            for i, (own, offsets) in enumerate(zip(sums, less, strict=True)):
                                total[i, column, p] += own[p] - 8.0 * offsets[p]
                T.reduce_sum(total, result, dim=2)
                for i, j in T.Parallel(bM, bN):
                    C[mo * bM + i, bx * bN + j] = result[i, j]

    return main


@tilec.jit(out_idx=[-1])
def unpack_q4_0(N, K, dtype="bfloat16", rows=4, threads=128):
    """Y = the weights of N rows of ``q4_0`` blocks, rounded to ``dtype``: many rows of activations are
    multiplied by them faster."""
    half = SIZES["q4_0"][0] // 2

    @T.prim_func
    def main(W: T.Tensor((N, K // 32, 18), "uint8"), Y: T.Tensor((N, K // 32, 2, half), dtype)):
        """Weights of 4 bits as numbers."""
        with T.Kernel(T.ceildiv(N, rows), threads=threads) as b:
            for i, s in T.grid(rows, K // 32):
                j = b * rows + i
                if j < N:
                    step = float_of(half_at(W, j, s, 0))
                    for at in T.Parallel(half):
                        Y[j, s, 0, at] = step * (T.cast(W[j, s, 2 + at] & 15, "float32") - 8.0)
                        Y[j, s, 1, at] = step * (T.cast(W[j, s, 2 + at] >> 4, "float32") - 8.0)

    return main


def unpack_q4_0_reference(W):
    """NumPy twin of :func:`unpack_q4_0`."""
    return weights_q4_0(W).reshape(*W.shape[:2], 2, -1)


def unpack_q4_0_inputs(dims, rng):
    """Blocks of all bytes whose steps are near 1."""
    return linear_q4_0_inputs({**dims, "M": 1}, rng)[1:]


def weights_q4_0(W):
    """The float32 weights of rows of ``q4_0`` blocks."""
    d = W[..., :2].copy().view(np.float16).astype(np.float32)
    numbers = np.concatenate([W[..., 2:] & 15, W[..., 2:] >> 4], axis=-1)
    return (d * (numbers.astype(np.float32) - 8)).reshape(len(W), -1)


def weights_q4_k(W):
    """The float32 weights of rows of ``q4_k`` blocks."""
    d, dmin = np.split(W[..., :4].copy().view(np.float16).astype(np.float32), 2, axis=-1)
    x, y, z = np.split(W[..., 4:16], 3, axis=-1)
    steps = np.concatenate([x & 63, z & 15 | x >> 6 << 4], axis=-1)
    minima = np.concatenate([y & 63, z >> 4 | y >> 6 << 4], axis=-1)
    pairs = W[..., 16:].reshape(*W.shape[:2], 4, 1, 32)
    numbers = np.concatenate([pairs & 15, pairs >> 4], axis=-2).reshape(*W.shape[:2], 8, 32)
    weights = (d * steps)[..., None] * numbers - (dmin * minima)[..., None]
    return weights.astype(np.float32).reshape(len(W), -1)


def linear_q4_0_reference(A, W):
    """NumPy twin of :func:`linear_gguf` for ``q4_0``."""
    return f32(A) @ weights_q4_0(W).T


def linear_q4_k_reference(A, W):
    """NumPy twin of :func:`linear_gguf` for ``q4_k``."""
    return f32(A) @ weights_q4_k(W).T


def _blocks(dims, rng, form, floats):
    """Normal activations, and blocks of all bytes whose floats keep the result near 1."""
    M, N, K = (dims[name] for name in ("M", "N", "K"))
    size, stored = SIZES[form]
    W = rng.integers(0, 256, (N, K // size, stored)).astype(np.uint8)
    for number, scale in enumerate(floats):
        halves = (rng.uniform(0.5, 1.5, (N, K // size, 1)) * scale / K**0.5).astype(np.float16)
        W[..., 2 * number : 2 * number + 2] = halves.view(np.uint8)
    return [rng.standard_normal((M, K)), W]


def linear_q4_0_inputs(dims, rng):
    """Inputs of :func:`linear_gguf` for ``q4_0``."""
    return _blocks(dims, rng, "q4_0", [0.2])


def linear_q4_k_inputs(dims, rng):
    """Inputs of :func:`linear_gguf` for ``q4_k``."""
    return _blocks(dims, rng, "q4_k", [0.004, 0.03])
