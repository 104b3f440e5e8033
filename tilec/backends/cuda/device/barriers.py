"""Barriers: mbarriers of shared memory, named barriers of a block, the barrier of a grid."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from tilec.backends.cuda.device.helper import Helper, Lanes
from tilec.errors import UnsupportedError

_TEXT = """
__device__ __forceinline__ void {name}(void* at{parameters}) {{
  unsigned barrier = (unsigned)__cvta_generic_to_shared(at);
  {body}
}}
"""


def _mbarrier(name: str, parameters: str, body: str, meaning: Any) -> Helper:
    text = _TEXT.format(name=name, parameters=parameters, body=body)
    return Helper(name, text, lambda lanes, at, *more: meaning(lanes, lanes.shared(at), *more))


def _arrive_remote(lanes: Lanes, barrier: Any, block: Any) -> None:
    remote = lanes.ptx("mapa.shared::cluster.u32", barrier, block)
    lanes.ptx("mbarrier.arrive.release.cluster.shared::cluster.b64", remote)


def _expect_remote(lanes: Lanes, barrier: Any, count: Any, block: Any) -> None:
    remote = lanes.ptx("mapa.shared::cluster.u32", barrier, block)
    lanes.ptx("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64", remote, count)


def _complete(lanes: Lanes, barrier: Any, count: Any) -> None:
    lanes.ptx("fence.acq_rel.cta")
    lanes.ptx("mbarrier.complete_tx.relaxed.cta.shared::cta.b64", barrier, count)


#: A barrier whose phases take a count of arrivals.
OPEN = _mbarrier(
    "tilec_barrier_open", ", int count",
    'asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");',
    lambda lanes, barrier, count: lanes.ptx("mbarrier.init.shared.b64", barrier, count),
)  # fmt: skip
#: One arrival of each lane.
ARRIVE = _mbarrier(
    "tilec_barrier_arrive", "",
    """unsigned long long state;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory");""",
    lambda lanes, barrier: lanes.ptx("mbarrier.arrive.shared.b64", barrier),
)  # fmt: skip
#: One arrival of each lane when its asynchronous copies so far have landed.
ARRIVE_LANDED = _mbarrier(
    "tilec_barrier_arrive_landed", "",
    'asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(barrier) : "memory");',
    lambda lanes, barrier: lanes.ptx("cp.async.mbarrier.arrive.noinc.shared.b64", barrier),
)  # fmt: skip
#: One arrival that announces bytes.
ARRIVE_EXPECT = _mbarrier(
    "tilec_barrier_arrive_expect", ", int count",
    """unsigned long long state;
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], %2;"
               : "=l"(state) : "r"(barrier), "r"(count) : "memory");""",
    lambda lanes, barrier, count: lanes.ptx("mbarrier.arrive.expect_tx.shared.b64", barrier, count),
)  # fmt: skip
#: One arrival at the barrier of another block of the cluster.
ARRIVE_REMOTE = _mbarrier(
    "tilec_barrier_arrive_remote", ", int block",
    """asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote]; }"
               :: "r"(barrier), "r"(block) : "memory");""",
    _arrive_remote,
)  # fmt: skip
#: One arrival there that announces bytes.
ARRIVE_EXPECT_REMOTE = _mbarrier(
    "tilec_barrier_arrive_expect_remote", ", int count, int block",
    """asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %2; "
               "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [remote], %1; }"
               :: "r"(barrier), "r"(count), "r"(block) : "memory");""",
    _expect_remote,
)  # fmt: skip
#: Announces bytes.
EXPECT = _mbarrier(
    "tilec_barrier_expect", ", int count",
    """asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
               :: "r"(barrier), "r"(count) : "memory");""",
    lambda lanes, barrier, count: lanes.ptx("mbarrier.expect_tx.relaxed.cta.shared::cta.b64", barrier, count),
)  # fmt: skip
#: Counts bytes as arrived, with no order to what was written before: a fence makes it one.
COMPLETE = _mbarrier(
    "tilec_barrier_complete", ", int count",
    """asm volatile("fence.acq_rel.cta; mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
               :: "r"(barrier), "r"(count) : "memory");""",
    _complete,
)  # fmt: skip


@cache
def wait(word: str, in_cluster: bool) -> Helper:
    """Waits for the phase of a parity, asking by mbarrier.``word``."""
    name = "tilec_barrier_wait_cluster" if in_cluster else "tilec_barrier_wait"
    body = f"""asm volatile("{{ .reg .pred done; again: "
               "mbarrier.{word}.b64 done, [%0], %1; "
               "@!done bra again; }}" :: "r"(barrier), "r"(parity) : "memory");"""
    asked = f"mbarrier.{word}.b64".replace("test_wait", "try_wait")

    def meaning(lanes: Lanes, at: Any, parity: Any) -> Iterator[str]:
        yield from lanes.ptx(asked, lanes.shared(at), parity)

    text = _TEXT.format(name=name, parameters=", int parity", body=body)
    return Helper(name, text, meaning)


def _wait_cluster(lanes: Lanes, barrier: Any, parity: Any) -> Iterator[str]:
    yield from lanes.ptx("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64", barrier, parity)


#: Waits for the phase of a parity at a shared address, behind what other blocks of the cluster have written.
WAIT_CLUSTER = Helper(
    "tilec_wait_cluster",
    """__forceinline__ __device__ void tilec_wait_cluster(unsigned barrier, unsigned parity) {
  asm volatile("{\\n.reg .pred done;\\nagain:\\n"
    "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\\n"
    "@!done bra again;\\n}" :: "r"(barrier), "r"(parity) : "memory");
}
""",
    _wait_cluster,
)


@cache
def meet(barrier: int, threads: int) -> Helper:
    """Waits for all consumers of packed weights at a named barrier."""
    name = f"tilec_consumers_{threads}"
    wait = f'asm volatile("bar.sync {barrier}, {threads};" ::: "memory");'

    def meaning(lanes: Lanes) -> Iterator[str]:
        yield from lanes.ptx("bar.sync", barrier, threads)

    return Helper(name, f"__device__ __forceinline__ void {name}() {{ {wait} }}\n", meaning)


def _grid_meet(lanes: Lanes, at: Any) -> None:
    raise UnsupportedError("an emulated grid whose blocks wait for each other: they run one behind the other")


#: One thread of each block meets those of all others. The first block adds what brings the sum of a round to
#: 2**31: the top bit flips when the last one has come, and the bits below are 0 again.
GRID_MEET = Helper("tilec_grid_meet", """
__device__ __forceinline__ void tilec_grid_meet(void* at) {
  unsigned others = gridDim.x * gridDim.y * gridDim.z - 1;
  bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
  unsigned share = first ? 0x80000000u - others : 1u, before, now;
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before) : "l"(__cvta_generic_to_global(at)), "r"(share) : "memory");
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(now) : "l"(__cvta_generic_to_global(at)) : "memory");
  } while (((before ^ now) & 0x80000000u) == 0);
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
""", _grid_meet)  # fmt: skip
