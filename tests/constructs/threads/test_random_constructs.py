"""Random numbers: curand's Philox4x32-10 streams."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.errors import UnsupportedError


def philox(counter, key):
    """The four words of a counter (Salmon et al., 2011)."""
    c, k, low = list(counter), list(key), 0xFFFFFFFF
    for number in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & low, (first >> 32) ^ c[3] ^ k[1], first & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low] if number < 9 else k
    return c


def stream(seed, sequence, offset, count):
    """What curand_init(seed, sequence, offset) and ``count`` calls of curand give."""
    key, low = (seed & 0xFFFFFFFF, seed >> 32), 0xFFFFFFFF
    words = []
    for block in range(offset // 4, (offset + count) // 4 + 1):
        counter = (block & low, block >> 32, sequence & low, sequence >> 32)
        words += philox(counter, key)
    return np.array(words[offset % 4 : offset % 4 + count], np.uint32)


def test_the_generator_is_the_published_one():
    """The known answers of Random123 for Philox4x32-10."""
    assert philox((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox((ones,) * 4, (ones,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize(("seed", "sequence", "offset"), [(0, 0, 0), (0x123456789ABC, 7, 6)])
def test_numbers_are_those_of_curand(seed, sequence, offset):
    @T.prim_func
    def main(C: T.Tensor((9,), "uint32"), D: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=32):
            T.rng_init(T.uint64(seed), sequence, offset)
            for i in T.serial(9):
                C[i] = T.rng_rand()
            for i in T.serial(2):
                D[i] = T.rng_rand_float()

    words = stream(seed, sequence, offset, 11)
    uniform = words[9:].astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
    agree(main, expected=[words[:9], uniform], rtol=0, atol=0)


def test_every_thread_has_a_stream_of_its_own():
    @T.prim_func
    def main(C: T.Tensor((2, 32, 5), "uint32")):
        with T.Kernel(2, threads=32) as bx:
            tx = T.get_thread_binding()
            T.rng_init(42)
            for i in T.serial(5):
                C[bx, tx, i] = T.rng_rand()

    agree(main, expected=np.stack([stream(42, thread, 0, 5) for thread in range(64)]).reshape(2, 32, 5))


def test_normal_numbers_come_in_pairs():
    @T.prim_func
    def main(C: T.Tensor((5,), "float32")):
        with T.Kernel(1, threads=32):
            T.rng_init(3, 1)
            for i in T.serial(5):
                C[i] = T.rng_rand_float(dist="normal")

    words = stream(3, 1, 0, 6).astype(np.float64)
    radius = np.sqrt(-2 * np.log(words[::2] * 2.0**-32 + 2.0**-33))
    angle = (words[1::2] + 0.5) * 2.0**-32 * 2 * np.pi
    pairs = np.stack([np.sin(angle) * radius, np.cos(angle) * radius], axis=1).reshape(-1)
    agree(main, expected=pairs[:5], rtol=1e-4, atol=1e-5)


def test_other_generators_and_missing_states_are_errors():
    def kernel(body):
        @T.prim_func
        def main(C: T.Tensor((1,), "float32")):
            with T.Kernel(1, threads=32):
                C[0] = body()

        return main

    with pytest.raises(UnsupportedError, match="MRG32k3a"):
        elaborated(kernel(lambda: T.rng_init(1, generator="curandStateMRG32k3a_t")), (), None, {}, {})
    with pytest.raises(RuntimeError, match=r"T\.rng_rand before T\.rng_init"):
        elaborated(kernel(T.rng_rand), (), None, {}, {})
    with pytest.raises(ValueError, match='dist "uniform" or "normal"'):
        elaborated(kernel(lambda: T.rng_rand_float(16)), (), None, {}, {})


def uniform(words):
    return words.astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)


def test_a_stream_of_the_block_is_dealt_to_the_iterations_in_their_order():
    """Two numbers for each of 48 iterations, drawn or not; the stream goes on behind the loop."""

    @T.prim_func
    def main(C: T.Tensor((40, 2), "uint32"), D: T.Tensor((2,), "uint32")):
        with T.Kernel(1, threads=32):
            T.rng_init(11, 5, 3)
            D[0] = T.rng_rand()
            for i in T.Parallel(48):
                if i < 40:
                    C[i, 0] = T.rng_rand()
                    C[i, 1] = T.rng_rand()
            D[1] = T.rng_rand()

    words = stream(11, 5, 3, 98)
    agree(main, expected=[words[1:81].reshape(40, 2), words[[0, 97]]])


def test_streams_of_threads_are_dealt_to_the_iterations_that_belong_to_them():
    """Iteration n belongs to thread n mod 32, whichever thread runs it."""

    @T.prim_func
    def main(C: T.Tensor((2, 80), "float32"), D: T.Tensor((2, 32), "uint32")):
        with T.Kernel(2, threads=32) as bx:
            T.rng_init(42)
            for i in T.Parallel(80):
                C[bx, i] = T.rng_rand_float()
            D[bx, T.get_thread_binding()] = T.rng_rand()

    streams = np.stack([stream(42, thread, 0, 4) for thread in range(64)]).reshape(2, 32, 4)
    dealt = streams[:, :, :3].transpose(0, 2, 1).reshape(2, 96)[:, :80]
    agree(main, expected=[uniform(dealt), streams[:, :, 3]], rtol=0, atol=0)


@pytest.mark.slow
def test_shares_count_loops_and_loops_inside_of_parallel_ones():
    @T.prim_func
    def main(
        A: T.Tensor((4,), "uint32"),
        B: T.Tensor((4, 3), "uint32"),
        C: T.Tensor((4, 2), "uint32"),
    ):
        with T.Kernel(1, threads=32):
            T.rng_init(9, 2)
            for _turn in T.serial(2):
                for i in T.Parallel(4):
                    A[i] = T.rng_rand()
                    for j in T.Parallel(3):
                        B[i, j] = T.rng_rand()
                    for k in T.serial(2):
                        C[i, k] = T.rng_rand()

    words = stream(9, 2, 0, 48)[24:].reshape(4, 6)  # 1 + 3 + 2 numbers an iteration, the second turn's stay
    agree(main, expected=[words[:, 0], words[:, 1:4], words[:, 4:]])


def test_iterations_may_start_streams_of_their_own():
    @T.prim_func
    def main(C: T.Tensor((2, 3, 16), "uint32")):
        with T.Kernel(2, 3, threads=32) as (bx, by):
            for i in T.Parallel(16):
                T.rng_init(7)
                C[bx, by, i] = T.rng_rand()

    numbers = [[[bx + 2 * by] for by in range(3)] for bx in range(2)]
    wanted = np.array(numbers) * 16 + np.arange(16)
    agree(main, expected=np.vectorize(lambda n: stream(7, int(n), 0, 1)[0])(wanted))


def test_a_loop_of_open_length_says_how_numbers_can_be_had_in_it():
    @T.prim_func
    def main(N: T.Tensor((1,), "int32"), C: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            T.rng_init(7)
            for i in T.Parallel(8):
                C[i] = 0
                for _ in T.serial(N[0]):
                    C[i] = T.rng_rand_float()

    with pytest.raises(UnsupportedError, match=r"random numbers .* loop of open length") as caught:
        elaborated(main, (), None, {}, {})
    assert "T.rng_init(seed, seq=" in caught.value.remedy


def dropout_attention(rows, keys, width, keep):
    @T.prim_func
    def main(
        Q: T.Tensor((rows, width), "float16"),
        K: T.Tensor((keys, width), "float16"),
        V: T.Tensor((keys, width), "float16"),
        Out: T.Tensor((rows, width), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, 64), threads=128) as bx:
            q = T.alloc_shared((64, width), "float16")
            k, v = T.alloc_shared((64, width), "float16"), T.alloc_shared((64, width), "float16")
            s, p = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, width), "float32")
            top, last, rescale, part, total = (T.alloc_fragment((64,), "float32") for _ in range(5))
            T.copy(Q[bx * 64, 0], q)
            T.clear(o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            T.rng_init(1234, bx)
            for j in T.Pipelined(T.ceildiv(keys, 64), num_stages=2):
                T.copy(K[j * 64, 0], k)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                T.copy(top, last)
                T.reduce_max(s, top, dim=1, clear=False)
                for r in T.Parallel(64):
                    rescale[r] = T.exp2(last[r] - top[r])
                for r, c in T.Parallel(64, 64):
                    s[r, c] = T.exp2(s[r, c] - top[r])
                T.reduce_sum(s, part, dim=1)
                for r in T.Parallel(64):
                    total[r] = total[r] * rescale[r] + part[r]
                for r, c in T.Parallel(64, width):
                    o[r, c] *= rescale[r]
                for r, c in T.Parallel(64, 64):
                    s[r, c] = T.if_then_else(T.rng_rand_float() <= keep, s[r, c] / keep, 0.0)
                T.copy(s, p)
                T.copy(V[j * 64, 0], v)
                T.gemm(p, v, o)
            for r, c in T.Parallel(64, width):
                Out[bx * 64 + r, c] = o[r, c] / total[r]

    return main


@pytest.mark.slow
def test_attention_with_dropout():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(128, 32)).astype(np.float16) for _ in range(3))
    score = q.astype(np.float32) @ k.T.astype(np.float32)
    weight = np.exp2(score - score.max(1, keepdims=True))
    keep = np.concatenate([
        np.concatenate(list(uniform(stream(1234, block, 0, 2 * 4096)).reshape(2, 64, 64)), axis=1)
        for block in range(2)
    ]) <= np.float32(0.75)  # fmt: skip
    assert 0.7 < keep.mean() < 0.8
    wanted = np.where(keep, weight / 0.75, 0) @ v.astype(np.float32) / weight.sum(1, keepdims=True)
    agree(dropout_attention(128, 128, 32, 0.75), q, k, v, expected=wanted, rtol=2e-2, atol=1e-2)


# ---- XORWOW ----


def turned(words):
    """One turn of XORWOW's five words (Marsaglia, 2003)."""
    mixed = words[0] ^ words[0] >> 2
    return [*words[1:], (words[4] ^ words[4] << 4 ^ mixed ^ mixed << 1) & 0xFFFFFFFF]


def leapt(words, turns):
    """The words after so many turns: by the squares of the turn's matrix, a column for each bit."""

    def whole(words):
        return sum(word << (32 * i) for i, word in enumerate(words))

    def split(state):
        return [state >> (32 * i) & 0xFFFFFFFF for i in range(5)]

    def times(columns, state):
        found = 0
        for bit in range(160):
            found ^= columns[bit] if state >> bit & 1 else 0
        return found

    columns, state = [whole(turned(split(1 << bit))) for bit in range(160)], whole(words)
    while turns:
        state = times(columns, state) if turns & 1 else state
        columns, turns = [times(columns, column) for column in columns], turns >> 1
    return split(state)


def xorwow(seed, sequence, offset, count):
    """What curand_init(seed, sequence, offset) and ``count`` calls of curand give for XORWOW."""
    low = 0xFFFFFFFF
    a, b = 1099087573 * (seed & low ^ 0xAAD26B49) & low, 2591861531 * (seed >> 32 ^ 0xF7DCEFDD) & low
    words = [123456789 + a & low, 362436069 ^ a, 521288629 + b & low, 88675123 ^ b, 5783321 + a & low]
    words, counter = leapt(words, (sequence << 67) + offset), 6615241 + a + b + 362437 * offset
    found = []
    for number in range(count):
        words = turned(words)
        found.append(words[4] + counter + 362437 * (number + 1) & low)
    return np.array(found, np.uint32)


def test_the_polynomial_of_the_turn_takes_its_matrix_along():
    from tilec.language.threads.random.xorwow import _power

    state, words = [3, 1 << 31, 12345, 0, 0xFFFFFFFF], [0] * 5
    for exponent in (0, 1, 159, 160, 1000, 1 << 67):
        words, step = [0] * 5, state
        for bit in range(160):
            words = [a ^ b * (_power(exponent) >> bit & 1) for a, b in zip(words, step, strict=True)]
            step = turned(step)
        assert words == leapt(state, exponent)


def test_the_stream_of_xorwow_behind_a_sequence_and_an_offset():
    @T.prim_func
    def main(C: T.Tensor((3,), "uint32"), D: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32):
            T.rng_init(T.uint64(0x123456789ABC), 7, 6, generator="curandStateXORWOW_t")
            for i in T.serial(3):
                C[i] = T.rng_rand()
            D[0] = T.rng_rand_float()

    words = xorwow(0x123456789ABC, 7, 6, 4)
    uniform = words[3:].astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
    agree(main, expected=[words[:3], uniform], rtol=0, atol=0, targets=("cpu", "sm_80"))


def test_every_thread_has_a_stream_of_xorwow():
    @T.prim_func
    def main(C: T.Tensor((8,), "uint32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            T.rng_init(42, generator="curandState_t")
            C[tx] = T.rng_rand()

    wanted = np.concatenate([xorwow(42, thread, 0, 1) for thread in range(8)])
    agree(main, expected=wanted, rtol=0, atol=0, targets=("cpu", "sm_80"))


def test_a_stream_of_xorwow_is_not_dealt_out():
    @T.prim_func
    def main(C: T.Tensor((8,), "uint32")):
        with T.Kernel(1, threads=32):
            T.rng_init(42, generator="curandStateXORWOW_t")
            for i in T.Parallel(8):
                C[i] = T.rng_rand()

    with pytest.raises(UnsupportedError, match="of a stream of XORWOW from outside"):
        elaborated(main, (), None, {}, {})
