"""Functions in C: what the emulator reads, computes, and says that it cannot read."""

from __future__ import annotations

import numpy as np
import pytest
from case_kernels import SYNC_PROXIES, Case, asm, fill, inputs, lowered, words
from memory_cases import WAIT, setup

from tilec.emulate import Emulator, Tensor, foreign
from tilec.emulate.state.clocks import Hazard
from tilec.emulate.state.registers import Registers, Taint
from tilec.errors import EmulationError, UnsupportedError
from tilec.targets import parse_target


def run(body: str, outputs: int = 32, threads: int = 32) -> np.ndarray:
    """What a helper with this body writes, its input being the numbers from 0 on."""
    case = Case("helper", body, words(1), outputs, threads=threads)
    made = np.zeros(outputs, np.uint32)
    given = np.arange(4 * threads, dtype=np.uint32)
    Emulator(lowered(case), parse_target("sm_90a")).run([Tensor(given, "in"), Tensor(made, "out")], {}, {})
    return made


def run_case(case: Case) -> None:
    """A case alone."""
    tensors = [Tensor(inputs(case), "in"), Tensor(np.zeros(case.outputs, np.uint32), "out")]
    Emulator(lowered(case), parse_target("sm_90a")).run(tensors, {}, {})


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
        ("out[thread] = thread < 8 ? (in + 120)[thread] : 1u;", np.where(LANES < 8, LANES + 120, 1)),
        ("if (thread < 8 && (in + 120)[thread] > 123u) out[thread] = 1u;", (LANES > 3) & (LANES < 8)),
        ("if (thread > 7 || (in + 120)[thread] > 123u) out[thread] = 1u;", LANES > 3),
        ("unsigned n = 7u; { unsigned n = 1u; n += 1u; } out[thread] = n;", np.full(32, 7)),
        ("int at = thread; unsigned n = in[at++]; out[thread] = n + at * 100 + --at;", LANES * 102 + 100),
        ("auto add = 4u; unsigned &n = out[thread]; n = add; n <<= 1;", np.full(32, 8)),
        ("out[thread] = ([&](unsigned x) { return x ^ (unsigned)thread; })(1u);", LANES ^ 1),
        ("float2 v[2] = {1.f}, w = {2.f, 3.f}; v[1] = w; out[thread] = v[0].x + v[1].y;", np.full(32, 4)),
        ("auto p = (float2*)shared + thread; p->y = 2.f; out[thread] = p->y;", np.full(32, 2)),
        ("unsigned const* p = in; p += 3; out[thread] = p++[0] + *p;", np.full(32, 7)),
        ("unsigned n; n = n ? 1u : 0u; bool b = n && n; n = b; out[thread] = 1u;", np.full(32, 1)),
        ("out[thread] = (0x80000000 >> 31) + (010 == 8) + (2147483648 > 0) + 0x1p2f;", np.full(32, 7)),
        ("if (half(1.f) == true) { /* one */ ; } else { return; } out[thread] = 1u;", np.full(32, 1)),
        ("asm(R\"(mov.b32 %0, 0f40000000;)\" \"\" : \"=r\"(out[thread])); // two", np.full(32, 0x40000000)),
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
        ("goto away;", "no goto statement"),
        ("unsigned n = ;", "line 3 of its source is no CUDA"),
        ("templated<4>(thread);", "no function templated"),
        ("__shared__ int cells[3];", "no variable of another memory"),
        ("int cells[3][4];", "no pointers to pointers, arrays of arrays"),
        ("float4 v; v.q = 1.f;", "no such member"),
        ("if (thread < 3) return;", "no return inside a branch"),
        ("for (auto n : in) {}", "no for range loop"),
        ("__nv_bfloat16 n;", "no values of the type __nv_bfloat16"),
        ("out[thread] = N;", "no name N"),
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
        (
            "unsigned n; if (thread < 9) n = 1u; out[thread] = n;",
            r"register n\[0\], which nothing has written, is",
        ),
        ("unsigned n, m = n; out[thread] = 0u; if (m) out[thread] = 1u;", "decides a branch"),
        ("if (thread < 3) out[0] = __shfl_sync(0xffffffffu, in[thread], 0);", "waits for lanes"),
    ],
)
def test_hazard(body, said):
    with pytest.raises(EmulationError, match=said):
        run(body)


OTHERS = """
#ifndef TWICE
#define TWICE
namespace more {
static __device__ void add(unsigned &to, const unsigned (&by)[2]) { to += by[0] + by[1]; }
}
template <int N> __device__ int none() { return N; }
extern "C" __device__ __noinline__ unsigned sum(unsigned a, unsigned const *__restrict__ b) {
  unsigned n = a, by[] = {b[0], b[1]};
  add(n, by);
  return n;
}
#endif
"""


def test_functions_of_a_source():
    found = foreign.read("sum", OTHERS)
    assert (found.params, found.result, found.waits) == (("uint32", "pointer"), "uint32", False)
    assert set(found.others) == {"sum", "add"}
    with pytest.raises(UnsupportedError, match="the function none is not in its source"):
        foreign.read("none", OTHERS)
    with pytest.raises(UnsupportedError, match="overloads: there are two functions f"):
        foreign.read("f", "void f(int x) {} void f(float x) {}")


def test_two_warps_at_one_word():
    with pytest.raises(EmulationError, match="with different values"):
        run("((unsigned*)shared)[0] = (unsigned)thread;", threads=64)
    run("((unsigned*)shared)[0] = 7u;", threads=64)


def phases(between: str) -> Case:
    """Two warps wait for the first phase of an mbarrier; one thread ends the second one, with C between."""
    arrive = asm("mbarrier.arrive.shared.b64 _, [%0];", "", '"r"(full)')
    source = f"""{setup(1024)}
  __syncthreads();
  if (thread == 0) {arrive}
  {WAIT}
  {between}
  if (thread == 0) {arrive}
  out[thread] = 1u;"""
    return Case("phases", source, words(1), 64, threads=64, shared=1040)


def test_a_phase_that_ends_before_all_have_seen_the_one_before():
    """With the warps in another order the second warp would wait for ever."""
    run_case(phases("__syncthreads();"))
    with pytest.raises(EmulationError, match=r"phase 1 of .* behind the wait of warp 1 for the phase before"):
        run_case(phases(""))


def rounds(between: str) -> Case:
    """The first warp comes twice to a barrier at which the second one waits twice."""
    arrive, wait = (asm(f"bar.{kind} 1, 64;") for kind in ("arrive", "sync"))
    source = f"""if (thread < 32) {{ {arrive} }} else {{ {wait} }}
  {between}
  if (thread < 32) {{ {arrive} }} else {{ {wait} }}
  out[thread] = 1u;"""
    return Case("rounds", source, words(1), 64, threads=64)


def test_a_warp_that_comes_again_before_all_others_have_come():
    """With the warps in another order the first one would open the barrier alone."""
    run_case(rounds("__syncthreads();"))
    with pytest.raises(EmulationError, match="nothing that orders it behind warp 1 in the round before"):
        run_case(rounds(""))


def test_registers_that_a_product_reads_are_not_written():
    registers = Registers("words", 4, "uint32", 32, Taint())
    for index in range(4):
        registers.write(index, 7, None)
    registers.hold(2, 5)
    registers.write(1, 8, None)
    with pytest.raises(Hazard, match=r"words\[2\] is written while an asynchronous product reads it"):
        registers.write(2, 8, None)
    registers.settle(4)
    assert registers.part(np.arange(8), Taint()).held == {2: 5}
    registers.settle(5)
    registers.write(2, 8, None)


def product_of_registers(between: str) -> Case:
    """A product whose first operand is sums[16] to sums[19], with C between its issue and the wait."""
    sums = ", ".join(f"%{at}" for at in range(16))
    product = asm(
        "{ .reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16 "
        f"{{{sums}}}, {{%16, %17, %18, %19}}, %20, p, 1, 1, 0; }}",
        ", ".join(f'"+r"(sums[{at}])' for at in range(16)),
        ", ".join([*(f'"r"(sums[{at}])' for at in range(16, 20)), '"l"(b)', '"r"(0)']),
    )
    source = f"""unsigned start = (unsigned)__cvta_generic_to_shared(shared) >> 4;
  unsigned long long b = (unsigned long long)(start & 0x3fffu) + {1 << 62 | 64 << 32 | 1 << 16}ULL;
  {fill(128, 2048)}
  {SYNC_PROXIES}
  __syncthreads();
  for (int at = 0; at < 20; ++at) sums[at] = 0u;
  {asm("wgmma.fence.sync.aligned;")}
  {product}
  {asm("wgmma.commit_group.sync.aligned;")}
  {between}
  {asm("wgmma.wait_group.sync.aligned 0;")}
  sums[16] = 2u;
  out[thread] = sums[0] + sums[16];"""
    return Case("registers", source, words(2048), 128, threads=128, shared=8192, sums=("uint32", 20))


def test_registers_of_a_product_under_way():
    run_case(product_of_registers(""))
    with pytest.raises(EmulationError, match=r"\[17\] is written while an asynchronous product reads it"):
        run_case(product_of_registers("sums[17] = 1u;"))
