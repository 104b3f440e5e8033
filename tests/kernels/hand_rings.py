"""Products whose groups of warps hand tiles on by barriers, in every way that an author may write it.

A ring of buffers: one group loads tiles, the others multiply them. What differs is `Ring`: who loads, in
which order groups stand in the text, how many threads arrive, which parities are waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np

import tilec
import tilec.language as T

WARPGROUP = 128
BN, BK = 64, 64
#: Rows of a tile for each multiplying group.
ROWS = 64


@dataclass(frozen=True)
class Ring:
    """How the groups meet. ``loads_last``: the loading group is the last one, else the first; ``multipliers``
    groups multiply. ``together``: both stand in one loop, which asks for ``stages`` (-1: T.serial), else each
    has its own. ``multiplies_first``: in the text. ``copy``: "plain", "tma", or "bytes", where barriers count
    the bytes. ``full_each`` and ``free_each``: one of so many threads arrives. ``start``: the loader's first
    round passes a "fresh" barrier, waits for arrivals "given" in front, or "skips" the wait.
    ``fault``: what keeps it from ending, of `FAULTS`; a wrong phase needs a wait in the first round."""

    loads_last: bool = False
    multipliers: int = 1
    multiplies_first: bool = False
    together: bool = True
    stages: int = -1
    copy: str = "plain"
    buffers: int = 1
    full_each: int = 1
    free_each: int = 1
    start: str = "fresh"
    fault: str = ""

    @property
    def loader(self) -> int:
        """The group that loads."""
        return self.multipliers if self.loads_last else 0

    @property
    def workers(self) -> tuple[int, ...]:
        """The groups that multiply."""
        return tuple(each for each in range(self.multipliers + 1) if each != self.loader)

    @property
    def full_count(self) -> int:
        """Arrivals of a phase of the barriers of filled buffers."""
        arrivals = 1 if self.copy == "bytes" else WARPGROUP // self.full_each
        return arrivals + (self.fault == SHORT)

    @property
    def free_count(self) -> int:
        """Arrivals of a phase of the barriers of free buffers."""
        return WARPGROUP * self.multipliers // self.free_each

    @property
    def free_parity(self) -> int:
        """The parity that the loader waits for in its first round."""
        return int((self.start != "given") ^ (self.fault == WRONG_PHASE))

    @property
    def first_wait(self) -> int:
        """The first trip in which the loader waits."""
        return self.buffers if self.start == "skips" else 0


SHORT, WRONG_PHASE, KEPT = FAULTS = (
    "one arrival short",
    "loader waits for the wrong phase",
    "buffers never come back",
)
_CHOICES: dict[str, tuple[Any, ...]] = {
    "loads_last": (False, True),
    "multipliers": (1, 2),
    "multiplies_first": (False, True),
    "together": (True, False),
    "stages": (-1, 0, 1, 2),
    "copy": ("plain", "tma", "bytes"),
    "buffers": (1, 2, 3),
    "full_each": (1, 32, 128),
    "free_each": (1, 32, 128),
    "start": ("fresh", "given", "skips"),
}


def rings() -> list[Ring]:
    """All forms without a fault; what does not apply stands at its default."""
    made = (Ring(**dict(zip(_CHOICES, values, strict=True))) for values in product(*_CHOICES.values()))
    return list(dict.fromkeys(map(_normal, made)))


def _normal(ring: Ring) -> Ring:
    stages = ring.stages if ring.together else -1
    full_each = 1 if ring.copy == "bytes" else ring.full_each
    return replace(ring, stages=stages, full_each=full_each)


def spread(count: int, seed: int = 0) -> list[Ring]:
    """``count`` forms in which choices of two fields meet early: each is the one of some drawn at random that
    brings most new pairs. In every second one all threads arrive, and it may become another form."""
    rng, everything = np.random.default_rng(seed), rings()
    alike = [ring for ring in everything if ring.full_each == ring.free_each == 1 and ring.copy != "bytes"]
    seen: set[tuple[Any, ...]] = set()
    chosen: list[Ring] = []
    for number in range(count):
        left = everything if number % 2 else alike
        drawn = [left[at] for at in rng.integers(0, len(left), 64)]
        best = max(drawn, key=lambda ring: len(_pairs(ring) - seen))
        seen |= _pairs(best)
        chosen.append(best)
    return chosen


def _pairs(ring: Ring) -> set[tuple[Any, ...]]:
    values = list(asdict(ring).items())
    return {(one, other) for at, one in enumerate(values) for other in values[:at]}


# ---- what a form does, without any compiler ----


class _Phases:
    """One barrier: arrivals that are missing, and phases that are over."""

    def __init__(self, count: int) -> None:
        self._count = self._missing = count
        self.over = 0

    def arrive(self, count: int) -> None:
        for _ in range(count):
            self._missing -= 1
            if not self._missing:
                self._missing, self.over = self._count, self.over + 1

    def lets(self, parity: int) -> bool:
        return self.over % 2 != parity


def ends(ring: Ring, trips: int) -> bool:
    """Whether both groups come to their end, by counting arrivals."""
    full = [_Phases(ring.full_count) for _ in range(ring.buffers)]
    free = [_Phases(ring.free_count) for _ in range(ring.buffers)]
    if ring.start == "given":
        for each in free:
            each.arrive(ring.free_count)
    waiting = [_loader(ring, trips, full, free), _multiplier(ring, trips, full, free)]
    blocked = {id(each): next(each, None) for each in waiting}
    while any(barrier is not None for barrier in blocked.values()):
        ready = [each for each in waiting if (at := blocked[id(each)]) is not None and at[0].lets(at[1])]
        if not ready:
            return False
        blocked[id(ready[0])] = next(ready[0], None)
    return True


_Waits = Iterator[tuple[_Phases, int]]


def _loader(ring: Ring, trips: int, full: list[_Phases], free: list[_Phases]) -> _Waits:
    for trip in range(trips):
        at, round_ = trip % ring.buffers, trip // ring.buffers
        if trip >= ring.first_wait:
            yield free[at], (round_ + ring.free_parity) % 2
        full[at].arrive(ring.full_count - (ring.fault == SHORT))


def _multiplier(ring: Ring, trips: int, full: list[_Phases], free: list[_Phases]) -> _Waits:
    for trip in range(trips):
        at, round_ = trip % ring.buffers, trip // ring.buffers
        yield full[at], round_ % 2
        if ring.fault != KEPT:
            free[at].arrive(ring.free_count)


# ---- the kernels ----


@T.macro
def _arrive(barrier, each):
    """All threads that run it arrive, or one of ``each``."""
    if each == 1:
        T.barrier_arrive(barrier)
    else:
        tx = T.get_thread_binding()
        if tx % each == 0:
            T.barrier_arrive(barrier)


@T.macro
def _load(ring, A, B, As, Bs, full, free, bx, by, k):
    with T.ws(ring.loader):
        at = k % ring.buffers
        if ring.first_wait == 0 or k >= ring.first_wait:
            T.barrier_wait(free[at], (k // ring.buffers + ring.free_parity) % 2)
        if ring.copy == "bytes":
            tx = T.get_thread_binding()
            if tx % WARPGROUP == 0:
                T.mbarrier_arrive_expect_tx(full[at], 2 * BK * (ROWS * ring.multipliers + BN))
        if ring.copy == "plain":
            T.copy(A[by * ROWS * ring.multipliers, k * BK], As[at, :, :])
            T.copy(B[k * BK, bx * BN], Bs[at, :, :])
        else:
            T.tma_copy(A[by * ROWS * ring.multipliers, k * BK], As[at, :, :], barrier=full[at])
            T.tma_copy(B[k * BK, bx * BN], Bs[at, :, :], barrier=full[at])
        if ring.copy != "bytes":
            _arrive(full[at], ring.full_each)


@T.macro
def _multiply(ring, As, Bs, acc, full, free, k):
    with T.ws(*ring.workers):
        at = k % ring.buffers
        T.barrier_wait(full[at], k // ring.buffers % 2)
        T.gemm(As[at, :, :], Bs[at, :, :], acc)
        if ring.fault != KEPT:
            _arrive(free[at], ring.free_each)


@T.macro
def _trip(ring, A, B, As, Bs, acc, full, free, bx, by, k):
    if ring.multiplies_first:
        _multiply(ring, As, Bs, acc, full, free, k)
        _load(ring, A, B, As, Bs, full, free, bx, by, k)
    else:
        _load(ring, A, B, As, Bs, full, free, bx, by, k)
        _multiply(ring, As, Bs, acc, full, free, k)


@T.macro
def _loop(ring, trips, A, B, As, Bs, acc, full, free, bx, by):
    if ring.together and ring.stages >= 0:
        for k in T.Pipelined(trips, num_stages=ring.stages):
            _trip(ring, A, B, As, Bs, acc, full, free, bx, by, k)
    elif ring.together:
        for k in T.serial(trips):
            _trip(ring, A, B, As, Bs, acc, full, free, bx, by, k)
    else:
        for part in (1, 0) if ring.multiplies_first else (0, 1):
            for k in T.serial(trips):
                if part == 0:
                    _load(ring, A, B, As, Bs, full, free, bx, by, k)
                else:
                    _multiply(ring, As, Bs, acc, full, free, k)


def program(ring: Ring, M: Any, N: Any, K: Any) -> Any:
    """The kernel C = A @ B of a form."""
    bM = ROWS * ring.multipliers

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        """C = A @ B; a group loads, others multiply."""
        threads = WARPGROUP * (ring.multipliers + 1)
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            As = T.alloc_shared((ring.buffers, bM, BK), "float16")
            Bs = T.alloc_shared((ring.buffers, BK, BN), "float16")
            acc = T.alloc_fragment((bM, BN), "float32")
            full = T.alloc_barrier([ring.full_count] * ring.buffers)
            free = T.alloc_barrier([ring.free_count] * ring.buffers)
            with T.ws(*ring.workers):
                T.clear(acc)
                if ring.start == "given":
                    for at in T.unroll(ring.buffers):
                        _arrive(free[at], ring.free_each)
            _loop(ring, T.ceildiv(K, BK), A, B, As, Bs, acc, full, free, bx, by)
            with T.ws(*ring.workers):
                T.copy(acc, C[by * bM, bx * BN])

    return main


@tilec.jit(out_idx=[-1])
def hand_ring(M, N, K, case=0):
    """Form ``case`` of those that `spread` chooses."""
    return program(spread(case + 1)[case], M, N, K)


def hand_ring_reference(A, B):
    """NumPy twin of :func:`hand_ring`."""
    return A.astype(np.float32) @ B.astype(np.float32)
