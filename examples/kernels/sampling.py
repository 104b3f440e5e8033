"""Which token comes next, in the factory form: the likeliest one, or one drawn among the likeliest.

A draw takes the largest weight / e, where e is an exponential random number of each token: the first of
exponential clocks to ring, which is the same as the largest logit with Gumbel noise (Gumbel, 1954; Maddison
et al., "A* sampling", 2014). It needs no sums in the order of tokens. The numbers are Philox's
(`T.rng_init`), whose counter is the token and its place in the sequence: draws depend on nothing else.
"""

from __future__ import annotations

import numpy as np
from tile_math import LOG2_E, f32

import tilec
import tilec.language as T

#: Leading bits of a float32 that tell numbers of a type apart.
PLACES = {"float32": 32, "bfloat16": 16, "float16": 19}


def ordered(value):
    """The bits of a float32 as uint32 of the same order."""
    word = T.reinterpret(value, "int32")
    return T.reinterpret(word ^ ((word >> 31) | T.int32(-(2**31))), "uint32")


@T.macro
def sum_above(X, m, N, bound, is_mass, top, rate, sums, total, bN):
    """total = how many of row m's elements have a place in order of ``bound`` or above, or their weights."""
    T.clear(sums)
    for c in T.serial(T.ceildiv(N, bN)):
        for j in T.Parallel(bN):
            at = c * bN + j
            x = T.cast(X[m, at], "float32")
            weight = T.exp2((x - top[0]) * rate) if is_mass else 1.0
            sums[j] += T.if_then_else((at < N) & (ordered(x) >= bound[0]), weight, 0.0)
    T.reduce_sum(sums, total, dim=0)


@T.macro
def raise_bound(X, m, N, trips, low, wanted, is_mass, top, rate, sums, total, bound, bN):
    """low = the largest place in order with a sum of ``wanted`` at or above it, from the highest bit down."""
    for r in T.serial(trips):
        for i in T.Parallel(1):
            bound[i] = low[i] | (T.uint32(1) << T.cast(31 - r, "uint32"))
        sum_above(X, m, N, bound, is_mass, top, rate, sums, total, bN)
        for i in T.Parallel(1):
            low[i] = T.if_then_else(total[i] >= wanted[i], bound[i], low[i])


@tilec.jit(out_idx=[-1])
def sample(M, N, dtype="bfloat16", bN=4096, threads=128):
    """Y[m] = a column of the logits X[m].

    Temperature 0 takes the first of the largest. Otherwise one is drawn by exp(X / temperature) among the
    ``top_k`` largest (0: all), of these among the fewest that hold ``top_p`` of their weight; elements equal
    to the least of them are among them, too. ``seeds`` are two words each, ``positions`` count a row's draws.
    """
    places = PLACES[dtype]

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        temperature: T.Tensor((M,), "float32"),
        top_k: T.Tensor((M,), "int32"),
        top_p: T.Tensor((M,), "float32"),
        seeds: T.Tensor((M, 2), "int32"),
        positions: T.Tensor((M,), "int32"),
        Y: T.Tensor((M,), "int32"),
    ):
        """The next token of each row of logits."""
        with T.Kernel(M, threads=threads) as m:
            best, sums = T.alloc_fragment((bN,), "float32"), T.alloc_fragment((bN,), "float32")
            place = T.alloc_fragment((bN,), "int32")
            top, total, wanted = (T.alloc_fragment((1,), "float32") for _ in range(3))
            low, bound = T.alloc_fragment((1,), "uint32"), T.alloc_fragment((1,), "uint32")
            found = T.alloc_fragment((1,), "int32")
            steps = T.ceildiv(N, bN)
            draws = temperature[m] > 0.0
            rate = LOG2_E / T.if_then_else(draws, temperature[m], 1.0)
            T.fill(best, -T.infinity("float32"))
            T.fill(place, N)
            for c in T.serial(steps):
                for j in T.Parallel(bN):
                    at = c * bN + j
                    x = T.cast(X[m, at], "float32")
                    is_better = (at < N) & (x > best[j])
                    place[j] = T.if_then_else(is_better, at, place[j])
                    best[j] = T.if_then_else(is_better, x, best[j])
            T.reduce_max(best, top, dim=0)
            T.clear(low)
            T.fill(wanted, T.cast(top_k[m], "float32"))
            trips = T.if_then_else(draws & (top_k[m] > 0) & (top_k[m] < N), places, 0)
            raise_bound(X, m, N, trips, low, wanted, False, top, rate, sums, total, bound, bN)
            trips = T.if_then_else(draws & (top_p[m] < 1.0), places, 0)
            if trips > 0:
                sum_above(X, m, N, low, True, top, rate, sums, total, bN)
                for i in T.Parallel(1):
                    wanted[i] = total[i] * top_p[m]
                T.clear(low)
            raise_bound(X, m, N, trips, low, wanted, True, top, rate, sums, total, bound, bN)
            if draws:
                T.fill(best, -1.0)
            for c in T.serial(T.if_then_else(draws, steps, 0)):
                for j in T.Parallel(bN):
                    at = c * bN + j
                    x = T.cast(X[m, at], "float32")
                    low_word = T.cast(T.reinterpret(seeds[m, 0], "uint32"), "uint64")
                    high_word = T.cast(T.reinterpret(seeds[m, 1], "uint32"), "uint64")
                    T.rng_init(low_word | (high_word << T.uint64(32)), positions[m], at)
                    uniform = (T.cast(T.rng_rand(), "float32") + 0.5) * 2.0**-32
                    score = T.exp2((x - top[0]) * rate) / -T.log1p(-uniform)
                    is_better = (at < N) & (ordered(x) >= low[0]) & (score > best[j])
                    place[j] = T.if_then_else(is_better, at, place[j])
                    best[j] = T.if_then_else(is_better, score, best[j])
            T.reduce_max(best, total, dim=0)
            for j in T.Parallel(bN):
                place[j] = T.if_then_else(best[j] == total[0], place[j], N - 1)
            T.reduce_min(place, found, dim=0)
            for i in T.Parallel(1):
                Y[m] = T.min(found[i], N - 1)

    return main


@tilec.jit(out_idx=[-1])
def resolve(n, sampled, block=256, threads=128):
    """Y[i] = given[i], or chosen[-1 - given[i]] where that is negative: ids that the caller has not read."""

    @T.prim_func
    def main(
        given: T.Tensor((n,), "int32"), chosen: T.Tensor((sampled,), "int32"), Y: T.Tensor((n,), "int32")
    ):
        """Token ids, some of which are those that were sampled last."""
        with T.Kernel(T.ceildiv(n, block), threads=threads) as b:
            for i in T.Parallel(block):
                given_id = given[b * block + i]
                Y[b * block + i] = T.if_then_else(given_id < 0, chosen[T.max(-1 - given_id, 0)], given_id)

    return main


def philox(counter, key):
    """The four words of counters, four uint64 arrays below 2^32, by Philox4x32-10 (Salmon et al., "Parallel
    random numbers: as easy as 1, 2, 3", 2011)."""
    low, wide = np.uint64(0xFFFFFFFF), np.uint64(32)
    words, (left, right) = list(counter), key
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        words = [
            (second >> wide) ^ words[1] ^ left,
            second & low,
            (first >> wide) ^ words[3] ^ right,
            first & low,
        ]
        left, right = (left + np.uint64(0x9E3779B9)) & low, (right + np.uint64(0xBB67AE85)) & low
    return words


def _kept(weights, x, top_k, top_p):
    """Which elements of a row may be drawn."""
    kept = np.ones(len(x), bool)
    if 0 < top_k < len(x):
        kept = x >= np.sort(x)[-top_k]
    if top_p < 1:
        order = np.argsort(-x, kind="stable")
        masses = np.cumsum((weights * kept)[order])
        kept &= x >= x[order[np.searchsorted(masses, masses[-1] * top_p)]]
    return kept


def sample_reference(X, temperature, top_k, top_p, seeds, positions):
    """NumPy twin of :func:`sample`."""
    found = []
    for m, x in enumerate(f32(X)):
        if temperature[m] == 0:
            found.append(np.argmax(x))
            continue
        columns = np.arange(len(x), dtype=np.uint64)
        counter = (columns >> np.uint64(2), 0 * columns, 0 * columns + np.uint64(positions[m]), 0 * columns)
        words = philox(counter, seeds[m].view(np.uint32).astype(np.uint64))
        drawn = np.stack(words, axis=1)[np.arange(len(x)), np.arange(len(x)) % 4]
        weights = np.exp((x - x.max()).astype(np.float64) / temperature[m])
        score = weights / -np.log1p(-(drawn + 0.5) * 2.0**-32)
        found.append(np.argmax(np.where(_kept(weights, x, top_k[m], top_p[m]), score, -1)))
    return np.array(found, np.int32)


def sample_inputs(dims, rng):
    """Rows of each kind in turn: greedy, all tokens, the top k, the top p, both."""
    M, N = dims["M"], dims["N"]
    kind = np.arange(M) % 5
    return [
        rng.standard_normal((M, N)) * 4,
        np.where(kind == 0, 0, rng.uniform(0.5, 1.5, M)).astype(np.float32),
        np.where((kind == 2) | (kind == 4), rng.integers(1, N + 2, M), 0).astype(np.int32),
        np.where(kind >= 3, rng.uniform(0.1, 0.95, M), 1).astype(np.float32),
        rng.integers(-(2**31), 2**31, (M, 2)).astype(np.int32),
        rng.integers(0, 2**31, M).astype(np.int32),
    ]


def resolve_reference(given, chosen):
    """NumPy twin of :func:`resolve`."""
    return np.where(given < 0, chosen[np.maximum(-1 - given, 0)], given)


def resolve_inputs(dims, rng):
    """Ids and references in turn."""
    return [
        rng.integers(-dims["sampled"], 1000, dims["n"]).astype(np.int32),
        rng.integers(0, 1000, dims["sampled"]).astype(np.int32),
    ]
