"""mbarriers of NVIDIA's in two words of shared memory, which AMD GPUs have no unit for.

The first word holds the parity of the phase in progress in its highest bit, below it the arrivals that are
left of it; the second one the arrivals of each phase. The last arrival adds what turns the parity and begins
the next phase. Arrivals of that one may come before: they borrow from the parity, which shows it turned, as
the phase is over, and the sum is the same in any order. Updates are relaxed, with fences around them."""

from __future__ import annotations

from tilec.backends.cuda.device import barriers

_LEFT = "0x7fffffffu"
_TURN = "0x80000000u"


def _function(head: str, *lines: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"\n__device__ __forceinline__ void {head} {{\n{body}\n}}\n"


#: What stands for helpers of mbarriers, by their CUDA text.
BARRIERS = {
    barriers.OPEN.text: _function(
        "tilec_barrier_open(void* at, int count)",
        "((unsigned*)at)[0] = ((unsigned*)at)[1] = (unsigned)count;",
    ),
    barriers.ARRIVE.text: _function(
        "tilec_barrier_arrive(void* at)",
        "unsigned* words = (unsigned*)at;",
        '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");',
        "unsigned before = TILEC_ATOMIC(fetch_sub, words, 1u);",
        f"if ((before & {_LEFT}) != 1) return;",
        f"unsigned next = {_TURN} + words[1];",
        f"while (!((TILEC_ATOMIC(fetch_add, words, next) + next) & {_LEFT})) {{ }}",
    ),
    barriers.wait("test_wait.parity.shared", False).text: _function(
        "tilec_barrier_wait(void* at, int parity)",
        "while (TILEC_LOAD((unsigned*)at) >> 31 == (unsigned)parity) __builtin_amdgcn_s_sleep(1);",
        '__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");',
    ),
}
