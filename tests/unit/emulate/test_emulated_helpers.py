"""Helpers in C: what the emulator reads, computes, and says that it cannot read."""

from __future__ import annotations

import numpy as np
import pytest
from case_kernels import Case, lowered, words

from tilec.emulate import Emulator, Tensor
from tilec.errors import EmulationError, UnsupportedError
from tilec.targets import parse_target


def run(body: str, outputs: int = 32, threads: int = 32) -> np.ndarray:
    """What a helper with this body writes, its input being the numbers from 0 on."""
    case = Case("helper", body, words(1), outputs, threads=threads)
    made = np.zeros(outputs, np.uint32)
    given = np.arange(4 * threads, dtype=np.uint32)
    Emulator(lowered(case), parse_target("sm_90a")).run([Tensor(given, "in"), Tensor(made, "out")], {}, {})
    return made


LANES = np.arange(32, dtype=np.uint32)
SUMS = np.cumsum(LANES) - LANES


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("out[thread] = in[thread] * 3u + 1u;", LANES * 3 + 1),
        ("out[thread] = (unsigned)(-7 / 2) + (unsigned)(thread % 5);", (LANES % 5 - 3).astype(np.uint32)),
        ("if (thread < 9) out[thread] = 5u; else out[thread] = 6u;", np.where(LANES < 9, 5, 6)),
        ("unsigned n = 0; for (int i = 0; i < thread; ++i) n += i; out[thread] = n;", SUMS),
        ("unsigned n = in[thread]; while (n >= 10u) n -= 10u; out[thread] = n;", LANES % 10),
        ("uint2 pair = ((const uint2*)in)[thread]; out[thread] = pair.x + pair.y;", 4 * LANES + 1),
        ("float f = (float)thread * 0.5f; out[thread] = (unsigned)f;", LANES // 2),
        ("unsigned a[2]; a[0] = 1u; a[1] = in[thread]; out[thread] = a[1] << a[0];", LANES * 2),
        ("out[thread] = ([](unsigned x) { return x ^ 1u; })(in[thread]);", LANES ^ 1),
        ("out[thread] = __reduce_max_sync(0xffffffffu, in[thread]);", np.full(32, 31)),
        ("out[thread] = (unsigned)(__shfl_xor_sync(~0u, -thread, 1) / 2 + 16);", 16 - (LANES ^ 1) // 2),
        ("out[thread] = __ldg(in + thread) + 1u;", LANES + 1),
        ("out[thread] = thread == 3 ? 1u : 0u;", (LANES == 3).astype(np.uint32)),
    ],
)  # fmt: skip
def test_helper(body, expected):
    np.testing.assert_array_equal(run(body), expected.astype(np.uint32))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('asm volatile("tcgen05.alloc.b32 [%0], 4;" :: "r"(thread));', "instruction tcgen05.alloc.b32"),
        ('asm volatile("bra away;");', "no branches in assembly"),
        ("out[thread] = __vabsdiffu4(in[0], in[1]);", "function __vabsdiffu4"),
        ("goto away;", "cannot read a helper"),
    ],
)
def test_what_is_not_known_is_named(body, said):
    with pytest.raises(UnsupportedError, match=said):
        run(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("out[thread + 1] = 0u;", "a write of 4 bytes at byte 128 of out, which has 128"),
        ("out[thread] = *(unsigned*)((char*)in + 2);", "which is not aligned"),
        ("out[thread] = ((unsigned*)shared)[thread];", "which nothing has written"),
        ("if (thread < 3) out[0] = __shfl_sync(0xffffffffu, in[thread], 0);", "waits for lanes"),
    ],
)
def test_hazard(body, said):
    with pytest.raises(EmulationError, match=said):
        run(body)


def test_two_warps_at_one_word():
    with pytest.raises(EmulationError, match="with different values"):
        run("((unsigned*)shared)[0] = (unsigned)thread;", threads=64)
    run("((unsigned*)shared)[0] = 7u;", threads=64)
