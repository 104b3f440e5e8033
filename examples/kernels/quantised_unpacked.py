"""Products with packed weights for many rows, for CPUs, in the factory form.

A tile of weights becomes numbers once, in the order in which it is stored, and is multiplied by up to ``bM``
rows of activations; these are brought into that order ahead, once per call.
"""

from __future__ import annotations

import tilec.language as T

#: Activations that are brought into the order of the weights together.
RUN = 128


@T.macro
def in_order(K, ordered, activation):
    """A launch that brings rows of K activations, a multiple of 128, into ``ordered`` (M, another one): place
    ``at`` of 128 has ``activation(row, which 128, at)``, 0 behind K."""
    M, width = ordered.shape
    with T.Kernel(T.ceildiv(K, RUN), M, threads=128) as (run, m):
        for at in T.Parallel(RUN):
            ordered[m, run * RUN + at] = activation(m, run, at)
        if run == 0:
            for behind in T.serial((width - K) // RUN):
                for at in T.Parallel(RUN):
                    ordered[m, K + behind * RUN + at] = 0


@T.macro
def product(A, K, C, unpack, dtype, bM, bN, bK, threads):
    """A launch that computes C = A @ W.T for A (M, K and zeros to a multiple of bK). ``unpack(tile, first,
    ko)`` writes the weights of rows ``first`` to first + bN and of step ``ko`` of K into ``tile`` (bN, bK),
    which is of ``dtype``; those behind N and K it leaves as they are, which are numbers."""
    (M, N), depth = C.shape, A.shape[1]
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
        rows = T.alloc_shared((bM, bK), dtype)
        tile = T.alloc_fragment((bN, bK), dtype)
        acc = T.alloc_fragment((bN, bM), "float32")
        T.clear(acc)
        for ko in T.serial(depth // bK):
            T.copy(A[by * bM, ko * bK], rows)
            if bx * bN + bN > N or ko * bK + bK > K:
                T.clear(tile)
            unpack(tile, bx * bN, ko)
            T.gemm(tile, rows, acc, transpose_B=True)
        for j, i in T.Parallel(bN, bM):
            C[by * bM + i, bx * bN + j] = acc[j, i]


@T.macro
def product_of_integers(numbers, units, added, C, unpack, groups, offset, bM, bN, threads, together=1):
    """A launch that computes C = A @ W.T for A of integers of 8 or 16 bits as ``quantised_bytes.integers``
    makes them in one plane: ``numbers`` (M, runs, 1, size, 128), high bytes first, ``units`` (M, runs),
    ``added`` (M, runs * groups).
    ``unpack(tile, steps, first, run)`` writes the weights of rows ``first`` to first + bN and of a run as
    uint8 into ``tile`` (bN, 128), too large by ``offset``, and the steps of its groups as float32 into
    ``steps`` (bN, groups). Without an offset ``steps`` (bN, 2 * groups) has then what groups are too large
    by, their minima. Steps of ``together`` runs, which then come one run behind the other in either part of
    ``steps``, are written with the first of these. Products of a group are added up as integers, exact."""
    (M, N), (runs, _, size), depth = C.shape, numbers.shape[1:4], RUN // groups
    per_group, kept = 1 if offset else 2, groups * together
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
        tile = T.alloc_fragment((bN, RUN), "uint8")
        steps = T.alloc_fragment((bN, kept * per_group), "float32")
        own, total = T.alloc_fragment((bM,), "float32"), T.alloc_fragment((bN, bM), "float32")
        rows = [T.alloc_shared((bM, RUN), "int8") for _ in range(size)]
        T.clear(total)
        for run in T.serial(runs):
            unpack(tile, steps, bx * bN, run)
            for byte, tile_of_bytes in enumerate(rows):
                T.copy(numbers[by * bM : by * bM + bM, run, 0, byte, :], tile_of_bytes)
            for i in T.Parallel(bM):
                own[i] = units[by * bM + i, run]
            first_step = run % together * groups if together > 1 else 0
            for group in tuple(range(groups)):
                part, own_step = slice(group * depth, (group + 1) * depth), first_step + group
                less, acc = T.alloc_fragment((bM,), "float32"), T.alloc_fragment((bN, bM), "int32")
                for i in T.Parallel(bM):
                    less[i] = (-offset if offset else -1.0) * added[by * bM + i, run * groups + group]
                T.gemm(tile[:, part], rows[0][:, part], acc, transpose_B=True, clear_accum=True)
                if size == 2:
                    for j, i in T.Parallel(bN, bM):
                        acc[j, i] = acc[j, i] * 256
                    T.gemm(tile[:, part], rows[1][:, part], acc, transpose_B=True)
                for j, i in T.Parallel(bN, bM):
                    found = T.cast(acc[j, i], "float32")
                    if offset:
                        total[j, i] = T.fma(T.fma(found, own[i], less[i]), steps[j, own_step], total[j, i])
                    else:
                        value = T.fma(steps[j, kept + own_step], less[i], total[j, i])
                        total[j, i] = T.fma(found * own[i], steps[j, own_step], value)
        for j, i in T.Parallel(bN, bM):
            C[by * bM + i, bx * bN + j] = total[j, i]
