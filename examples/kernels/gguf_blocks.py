"""Products with weights of 4 bits as GGUF files store them, for CPUs, in the factory form.

A row of W is a row of blocks of bytes: of 32 weights (``q4_0``), a 16-bit float ``d`` and 16 bytes, in 18;
or of 256 (``q4_k``), ``d``, a second float ``dmin``, eight steps and eight minima of 6 bits each in 12 bytes,
and 128 bytes, in 144. Bytes have two weights, numbers from 0 to 15: ``d * (number - 8)``, or
``d * step * number - dmin * minimum`` with the step and the minimum of 32. Activations become integers of 16
bits (``quantised_bytes.py``).
"""

from __future__ import annotations

import numpy as np
from quantised_bytes import RUN, WORDS, dot4, integers
from tile_math import f32

import tilec
import tilec.language as T

#: Weights that share a step.
PART = 32
#: Weights and bytes of a block.
SIZES = {"q4_0": (32, 18), "q4_k": (256, 144)}
_PARTS = RUN // PART
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
    """The 16-bit float that two bytes of a block are."""
    bits = T.cast(W[j, block, at], "uint16") | T.cast(W[j, block, at + 1], "uint16") << 8
    return T.cast(T.reinterpret(bits, "float16"), "float32")


@T.macro
def steps_of(form, W, j, first, count, steps, minima):
    """The steps and minima of row ``j``, of ``count`` units from the unit ``first`` on."""
    if form == "q4_0":
        for s in T.serial(count):
            for b in T.unroll(_PARTS):
                steps[s * _PARTS + b] = half_at(W, j, (first + s) * _PARTS + b, 0)
    else:
        for s in T.serial(count):
            block = first + s
            d, dmin = half_at(W, j, block, 0), half_at(W, j, block, 2)
            for b in T.Parallel(4):
                x, y, z = (T.cast(W[j, block, 4 + 4 * word + b], "int32") for word in range(3))
                steps[s * 8 + b] = d * T.cast(x & 63, "float32")
                minima[s * 8 + b] = dmin * T.cast(y & 63, "float32")
                steps[s * 8 + 4 + b] = d * T.cast(z & 15 | x >> 6 << 4, "float32")
                minima[s * 8 + 4 + b] = dmin * T.cast(z >> 4 | y >> 6 << 4, "float32")


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


@tilec.jit(out_idx=[-1])
def linear_gguf(M, N, K, form="q4_0", dtype="float16", bM=1, bN=64, bK=4096, threads=128):
    """C = A @ W.T for ``bM`` rows of A at a time; K is a multiple of 128, for ``q4_k`` of 256."""
    size, stored = SIZES[form]
    units, runs = bK // UNITS[form], UNITS[form] // RUN
    #: Halves of bytes that have the same steps.
    together = [(0, 1)] if form == "q4_0" else [(0,), (1,)]

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // size, stored), "uint8"),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W in blocks of 4-bit weights as GGUF files have them."""
        numbers = T.alloc_global((M, T.ceildiv(K, RUN), 2, 2, RUN // 2), "int8")
        scale = T.alloc_global((M, T.ceildiv(K, RUN)), "float32")
        added = T.alloc_global((M, T.ceildiv(K, RUN), _PARTS), "float32")
        integers(A, numbers, scale, added, lambda plane, at: order(form, plane, at))
        with T.Kernel(T.ceildiv(N, bN), threads=threads) as bx:
            steps = T.alloc_fragment((units * runs * _PARTS,), "float32")
            minima = T.alloc_fragment((units * runs * _PARTS,), "float32")
            total = T.alloc_fragment((bM, bN, WORDS), "float32")
            result = T.alloc_fragment((bM, bN), "float32")
            for mo in T.serial(T.ceildiv(M, bM)):
                rows = [T.max(T.min(mo * bM + i, M - 1), 0) for i in range(bM)]
                T.clear(total)
                for ko in T.serial(T.ceildiv(K, bK)):
                    first, count = ko * units, T.min(units, K // UNITS[form] - ko * units)
                    for column in T.serial(T.min(bN, N - bx * bN)):
                        j = bx * bN + column
                        steps_of(form, W, j, first, count, steps, minima)
                        sums = [T.alloc_fragment((WORDS,), "float32") for _ in rows]
                        less = [T.alloc_fragment((_PARTS,), "float32") for _ in rows]
                        for own in (*sums, *less):
                            T.clear(own)
                        for s in T.serial(count):
                            for half in range(runs):
                                run, part = (first + s) * runs + half, (s * runs + half) * _PARTS
                                for p in T.Parallel(WORDS):
                                    for i, m in enumerate(rows):
                                        for planes in together:
                                            found = words(form, W, j, numbers, m, first + s, half, p, planes)
                                            step = steps[part + order(form, planes[0], p * 4) // PART]
                                            value = T.cast(found, "float32") * scale[m, run]
                                            sums[i][p] = T.fma(value, step, sums[i][p])
                                for p in T.Parallel(_PARTS):
                                    for i, m in enumerate(rows):
                                        offset = 8.0 * steps[part + p] if form == "q4_0" else minima[part + p]
                                        less[i][p] = T.fma(offset, added[m, run, p], less[i][p])
                        for p in T.Parallel(WORDS):
                            for i, own in enumerate(sums):
                                total[i, column, p] += own[p]
                        for p in T.Parallel(_PARTS):
                            for i, own in enumerate(less):
                                total[i, column, p] -= own[p]
                T.reduce_sum(total, result, dim=2)
                for i, j in T.Parallel(bM, bN):
                    C[mo * bM + i, bx * bN + j] = result[i, j]

    return main


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
