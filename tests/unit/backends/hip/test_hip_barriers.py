"""Barriers that count arrivals, in two words of memory: their C++ run by threads of this machine, as code."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import numpy as np
import pytest
from agree import agree
from linked import link

import tilec.language as T
from tilec.backends.hip.codegen.barriers import BARRIERS
from tilec.backends.hip.codegen.compiler import code_object
from tilec.backends.hip.codegen.header import header
from tilec.backends.hip.codegen.text import amd_text
from tilec.targets import parse_target

#: What a device has, on the host.
HOST = """
#define __forceinline__ inline
#define __device__
#define __builtin_amdgcn_fence(order, scope) __atomic_thread_fence(order)
#define TILEC_ATOMIC(name, ...) __atomic_##name(__VA_ARGS__, __ATOMIC_RELAXED)
#define TILEC_LOAD(at) __atomic_load_n(at, __ATOMIC_RELAXED)
extern "C" int sched_yield();
#define __builtin_amdgcn_s_sleep(x) sched_yield()
"""
#: Threads that take turns at two barriers, as a producer and consumers do.
DOORS = """
extern "C" void open(void* at, int count) { tilec_barrier_open(at, count); }
extern "C" void arrive(void* at) { tilec_barrier_arrive(at); }
extern "C" int parity(unsigned* at) { return *at >> 31; }
extern "C" void produce(void* full, void* free, int rounds, int* cell) {
  for (int k = 0; k < rounds; k++) {
    tilec_barrier_wait(free, (k + 1) % 2);
    *cell = k;
    tilec_barrier_arrive(full);
  }
}
extern "C" void consume(void* full, void* free, int rounds, int* cell, int* wrong) {
  for (int k = 0; k < rounds; k++) {
    tilec_barrier_wait(full, k % 2);
    *wrong += *cell != k;
    tilec_barrier_arrive(free);
  }
}
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("barriers")
    source, library = folder / "barriers.cpp", folder / "barriers.so"
    source.write_text(f"{HOST}{''.join(BARRIERS.values())}{DOORS}")
    link("-x", "c++", "-O2", "-w", "-shared", "-fPIC", "-fno-exceptions", source, "-o", library)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("count", [1, 3])
def test_phases_follow_each_other(host: ctypes.CDLL, count: int) -> None:
    barrier = np.zeros(2, np.uint32)
    host.open(barrier.ctypes, count)
    for arrival in range(4 * count):
        assert host.parity(barrier.ctypes) == arrival // count % 2
        host.arrive(barrier.ctypes)


@pytest.mark.parametrize("consumers", [1, 2])
def test_threads_take_turns(host: ctypes.CDLL, consumers: int) -> None:
    full, free = np.zeros(2, np.uint32), np.zeros(2, np.uint32)
    host.open(full.ctypes, 1)
    host.open(free.ctypes, consumers)
    cell, wrong, rounds = np.zeros(1, np.int32), np.zeros((consumers, 1), np.int32), 2000
    shared = (full.ctypes, free.ctypes, rounds, cell.ctypes)
    work = [threading.Thread(target=host.produce, args=shared)]
    work += [threading.Thread(target=host.consume, args=(*shared, each.ctypes)) for each in wrong]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert not wrong.any()


@pytest.mark.parametrize("name", ["gfx942", "gfx1100"])
def test_they_are_code(name: str) -> None:
    calls = "tilec_barrier_open(at, 64); tilec_barrier_arrive(at); tilec_barrier_wait(at, 0);"
    kernel = f'extern "C" __global__ void f(int* p) {{ extern __shared__ long at[]; {calls} p[0] = 1; }}'
    text = "".join(BARRIERS) + kernel
    assert code_object(header(()) + amd_text(text), parse_target(name))


def test_groups_of_warps_hand_tiles_on() -> None:
    @T.prim_func
    def main(X: T.Tensor((5, 64), "float32"), Y: T.Tensor((5, 64), "float32")):
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((64,), "float32")
            full, free = T.alloc_barrier(128), T.alloc_barrier(128)
            for k in T.serial(5):
                with T.ws(0):
                    T.barrier_wait(free, (k + 1) % 2)
                    T.copy(X[k, 0], tile)
                    T.barrier_arrive(full)
                with T.ws(1):
                    T.barrier_wait(full, k % 2)
                    for j in T.Parallel(64):
                        Y[k, j] = tile[63 - j]
                    T.barrier_arrive(free)

    x = np.arange(320, dtype=np.float32).reshape(5, 64)
    agree(main, x, expected=x[:, ::-1], targets=("gfx942",))
