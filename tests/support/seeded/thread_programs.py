"""Random kernels of thread-level code: every choice comes from a seed, all arithmetic is on integers.

Threads keep numbers of their own, write and read shared memory, shuffle, vote, and meet in loops and
branches, between tile operations on the same memory. No statement reads what another thread writes in the
same statement."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

HEAD = """\
import tilec.language as T

T_ = {count}


def entry():
    @T.prim_func
    def main(
        X: T.Tensor((2, {count}), "int32"),
        L: T.Tensor((2,), "int32"),
        Y: T.Tensor((2, {count}, 8), "int32"),
    ):
        with T.Kernel(2, threads={threads}) as bx:
            {index}
            a, b = T.alloc_var("int32", init=1), T.alloc_var("int32")
            h = T.alloc_local((4,), "int32")
            S, H = T.alloc_shared((T_,), "int32"), T.alloc_shared((8,), "int32")
            F = T.alloc_fragment((T_,), "int32")
            T.clear(h)
            T.fill(F, 3)
            T.copy(X[bx, 0:T_], S)
            if tx < 8:
                H[tx] = tx
"""

#: How a thread's number is written for blocks of one, two and three axes.
INDICES = {
    1: "tx = T.get_thread_binding()",
    2: "tx = T.get_thread_binding(1) * {0} + T.get_thread_binding()",
    3: "tx = (T.get_thread_binding(2) * {1} + T.get_thread_binding(1)) * {0} + T.get_thread_binding(0)",
}
RESULTS = ("a", "b", "h[0]", "h[1]", "h[2]", "h[3]", "S[tx]", "H[tx % 8] + F[tx]")


@dataclass
class ThreadProgram:
    """One kernel: ``source`` is a module whose ``entry`` makes it."""

    seed: int
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        threads = self.random.choice([(32,), (64,), (96,), (16, 4), (8, 2, 4), (40,)])
        self.count = int(np.prod(threads))
        self._names = 0
        self._steps(3, self.random.randint(4, 9), meets=True, shares=True, loop=False)
        head = HEAD.format(count=self.count, threads=threads, index=INDICES[len(threads)].format(*threads))
        stores = [f"            Y[bx, tx, {place}] = {value}" for place, value in enumerate(RESULTS)]
        self.source = head + "\n".join([*self.lines, *stores, "", "    return main", ""])

    def arguments(self) -> list[np.ndarray]:
        """What to call it with."""
        draw = np.random.default_rng(self.seed)
        X = draw.integers(-9, 10, (2, self.count)).astype(np.int32)
        L = draw.integers(0, 4, 2).astype(np.int32)
        return [X, L, np.zeros((2, self.count, 8), np.int32)]

    def _add(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def _fresh(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _steps(self, depth: int, count: int, meets: bool, shares: bool, loop: bool) -> None:
        """``meets``: all threads come here; ``shares``: threads may exchange values; ``loop``: in a loop of
        all."""
        for _ in range(count):
            kinds = ["own", "own", "read", "branch", "loop"]
            kinds += ["share", "share", "lane", "update"] if shares else []
            kinds += ["sync", "tile", "vote", "reduce", "total", "choose", "repeat"] if meets else []
            kinds += ["leave"] if loop else []
            kinds += ["end"] if depth == 3 and self.random.random() < 0.1 else []
            getattr(self, f"_{self.random.choice(kinds)}")(depth, meets, shares)

    def _place(self) -> str:
        """An element for each thread, another one for each."""
        n = self.count
        shift = self.random.randint(1, n - 1)
        return self.random.choice(["tx", f"{n - 1} - tx", f"(tx + {shift}) % {n}", "tx ^ 1"])

    def _own(self, depth: int, *_: bool) -> None:
        k = self.random.randint(0, 3)
        self._add(
            depth,
            self.random.choice(
                [
                    f"a = a * 3 + {k}",
                    f"h[{k}] = a - b",
                    f"b += h[{k}]",
                    f"h[(a + tx) % 4] += {k + 1}",
                    f"b = T.max(b - {k}, h[{3 - k}]) % 1000",
                    "a, b = b, a",
                ]
            ),
        )

    def _read(self, depth: int, *_: bool) -> None:
        name = self._fresh("r")
        self._add(depth, f"{name} = S[{self._place()}] + X[bx, {self._place()}]")
        self._add(depth, f"a = (a + {name}) % 997")

    def _share(self, depth: int, *_: bool) -> None:
        place = self._place()
        self._add(depth, f"S[{place}] = (a + tx) % 101")
        if self.random.random() < 0.7:
            self._add(depth, f"b += S[{self._place()}]")

    def _update(self, depth: int, *_: bool) -> None:
        self._add(depth, f"T.atomic_{self.random.choice(['add', 'max'])}(H[(a + tx) % 8], tx % 5)")
        self._add(depth, "b = (b + H[tx % 8]) % 999")

    def _lane(self, depth: int, *_: bool) -> None:
        width = self.random.choice([8, 16, 32])
        name = self._fresh("v")
        word = self.random.choice(["shfl_sync(a, 3", "shfl_xor(b, 2", "shfl_up(a, 1", "shfl_down(b, 5"])
        self._add(depth, f"{name} = T.{word}, width={width})")
        self._add(depth, f"h[{self.random.randint(0, 3)}] = {name} % 100")

    def _sync(self, depth: int, *_: bool) -> None:
        self._add(depth, "T.sync_threads()")

    def _tile(self, depth: int, *_: bool) -> None:
        step = self.random.choice(
            [
                ["T.cumsum(S)"],
                ["T.copy(S, F)"],
                ["for i in T.Parallel(T_):", "    F[i] = F[i] % 50 + S[T_ - 1 - i]"],
                ["T.copy(F, S)"],
                ["b += F[(tx + 1) % T_]"],
            ]
        )
        for line in step:
            self._add(depth, line)
        self._add(depth, "S[tx] = S[tx] % 1000")

    def _vote(self, depth: int, *_: bool) -> None:
        name = self._fresh("n")
        word = self.random.choice(["syncthreads_count", "syncthreads_or", "any_sync", "all_sync"])
        self._add(depth, f"{name} = T.{word}(a % 3 == 1)")
        self._add(depth, f"b += {name}")

    def _reduce(self, depth: int, *_: bool) -> None:
        name = self._fresh("m")
        self._add(depth, f"{name} = T.warp_reduce_{self.random.choice(['sum', 'max', 'min'])}(b)")
        self._add(depth, f"h[0] = {name} % 1000")

    def _total(self, depth: int, *_: bool) -> None:
        """A reduction over all threads of the first axis."""
        self._add(
            depth,
            'with T.attr(T.comm_reducer(lambda p, q: p + q, [T.int32(0)]), "reduce_scope", T.uint64(0)):',
        )
        axis = "T.get_thread_binding(0)"
        self._add(
            depth + 1, f"T.tvm_thread_allreduce(T.uint32(1), b % 50, a > 3, h[2], {axis}, dtype='handle')"
        )

    def _end(self, depth: int, *_: bool) -> None:
        self._add(
            depth, f"if {self.random.choice(['tx > 50', 'a % 5 == 0', 'X[bx, tx] < -7', 'L[bx] == 2'])}:"
        )
        self._add(depth + 1, "for place in T.serial(8):")
        self._add(depth + 2, "Y[bx, tx, place] = a + place")
        self._add(depth + 1, "T.thread_return()")

    def _branch(self, depth: int, meets: bool, shares: bool) -> None:
        cond = self.random.choice(["tx < 8", "a > b", "tx % 2 == 0", "X[bx, tx] > 0", "tx == 3", "S[tx] > a"])
        self._add(depth, f"if {cond}:")
        self._steps(depth + 1, self.random.randint(1, 3), False, shares, False)
        if self.random.random() < 0.4:
            self._add(depth, "else:")
            self._steps(depth + 1, 1, False, shares, False)

    def _loop(self, depth: int, meets: bool, shares: bool) -> None:
        """A loop that threads run as often as they like."""
        name = self._fresh("k")
        self._add(depth, f"for {name} in T.serial({self.random.choice(['tx % 3', 'X[bx, tx] % 4', '2'])}):")
        self._add(depth + 1, f"a = (a * 2 + {name}) % 991")
        self._steps(depth + 1, self.random.randint(1, 2), False, False, False)
        if self.random.random() < 0.3:
            self._add(depth + 1, f"if a % 4 == {self.random.randint(0, 3)}:")
            self._add(depth + 2, self.random.choice(["break", "continue"]))
            self._add(depth + 1, "h[1] += 1")

    def _choose(self, depth: int, *_: bool) -> None:
        """A branch that the block takes together."""
        self._add(depth, f"if {self.random.choice(['L[bx] > 1', 'bx == 0', 'X[bx, 3] % 2 == 0'])}:")
        self._steps(depth + 1, self.random.randint(1, 3), True, True, False)

    def _repeat(self, depth: int, *_: bool) -> None:
        """A loop that the block runs together."""
        name = self._fresh("q")
        self._add(depth, f"for {name} in T.serial({self.random.choice(['3', 'L[bx]', '1, 4'])}):")
        if depth < 5:
            self._steps(depth + 1, self.random.randint(1, 4), True, True, True)
        self._add(depth + 1, f"a += {name}")

    def _leave(self, depth: int, *_: bool) -> None:
        self._add(depth, f"if L[bx] == {self.random.randint(0, 3)}:")
        self._add(depth + 1, self.random.choice(["break", "continue"]))


class MeetingProgram(ThreadProgram):
    """One kernel whose threads touch each other's elements in branches that only some of them take, also in
    loops and branches there that all of these take, under conditions on shared memory. Lanes exchange
    nothing where some stay away, and nothing depends on which thread comes first. ``more``: kinds of steps
    beside those of all."""

    more: tuple[str, ...] = ()

    def _steps(self, depth: int, count: int, meets: bool, shares: bool, loop: bool) -> None:
        for _ in range(count):
            kinds = ["own", "read", "bits", "name", "branch", "branch", "share", "share", "two", "loop"]
            kinds += self.more
            kinds += (
                ["sync", "tile", "vote", "reduce", "choose", "repeat", "lane"] if meets else ["both", "turn"]
            )
            kinds += ["leave"] if loop else []
            kinds += ["end"] if depth == 3 and self.random.random() < 0.1 else []
            kind = self.random.choice(kinds if shares else ["own", "read", "bits"])
            getattr(self, f"_{kind}")(depth, meets, shares)

    def _branch(self, depth: int, meets: bool, shares: bool) -> None:
        if depth > 5:
            return self._own(depth)
        place = self._place()
        cond = self.random.choice(
            [f"S[{place}] > a", f"S[{place}] % 2 == 0", "H[tx % 8] > b", "(tx & 5) == 1", "tx < 8", "tx == 3",
             f"X[bx, tx] > 0 and S[{place}] < 40", "(T.uint32(tx) & T.uint32(0xFFFFFFFF)) % T.uint32(3) == 0"]
        )  # fmt: skip
        self._add(depth, f"if {cond}:")
        self._steps(depth + 1, self.random.randint(1, 4), False, shares, False)
        if self.random.random() < 0.5:
            self._add(depth, "else:")
            self._steps(depth + 1, self.random.randint(1, 2), False, shares, False)
        return None

    def _bits(self, depth: int, *_: bool) -> None:
        """What an author takes the number of a thread apart into, by words as wide as their types."""
        part = self.random.choice(
            ["T.uint32(tx) & T.uint32(0xFFFFFFFF)", "tx & -1", "tx & 0x7FFFFFFF", "T.int64(tx) >> 31",
             "tx >> 3", "T.uint64(tx) & T.uint64(0xFFFFFFFFFFFFFFFF)",
             "T.uint32(tx) ^ T.uint32(0xFFFFFFFF)", "tx ^ 0"]
        )  # fmt: skip
        self._add(depth, f"a = (a + T.Cast('int32', ({part}) % {self.random.choice([7, 64, 100])})) % 997")

    def _name(self, depth: int, *_: bool) -> None:
        """A name for what is read before others write it."""
        name, place = self._fresh("w"), self._place()
        self._add(depth, f"{name} = S[{self._place()}] % 50 + {self.random.choice(['L[bx]', 'tx', 'b'])}")
        self._add(depth, f"S[{place}] = {name} + 1")
        self._add(depth, f"a = ({name} - a) % 991")

    def _two(self, depth: int, *_: bool) -> None:
        """Updates of one kind, then others of the same elements."""
        for kind in self.random.sample(["add", "max", "min"], 2):
            self._add(depth, f"T.atomic_{kind}(H[(a + tx) % 8], tx % 5)")

    def _both(self, depth: int, *_: bool) -> None:
        """A branch that the threads which come here take together."""
        self._add(depth, f"if {self.random.choice(['L[bx] > 1', 'bx == 0', 'X[bx, 3] % 2 == 0'])}:")
        self._steps(depth + 1, self.random.randint(1, 2), False, depth < 7, False)

    def _turn(self, depth: int, *_: bool) -> None:
        """A loop that the threads which come here run together."""
        name, place = self._fresh("t"), self._place()
        self._add(depth, f"for {name} in T.serial({self.random.choice(['3', 'L[bx]', '1, 3', '0'])}):")
        self._add(depth + 1, f"a = (S[{self._place()}] + a) % 101")
        self._add(depth + 1, f"S[{place}] = (a + {name}) % 100")
        if self.random.random() < 0.4:
            self._add(depth + 1, f"if L[bx] == {name}:")
            self._add(depth + 2, self.random.choice(["break", "continue"]))
        self._add(depth + 1, f"b = (b + S[{self._place()}]) % 999")


class TripProgram(MeetingProgram):
    """One kernel with loops of all in which threads store or update something in trips of their own, too."""

    more = ("trips", "trips")

    def _trips(self, depth: int, *_: bool) -> None:
        name, place, draw = self._fresh("z"), self.random.randint(0, self.count - 1), self.random.choice
        conds = ["tx == (5 * {0} + {1}) % T_", "tx == {1} - {0}", "(tx + {0}) % 9 == 0", "tx > {0}"]
        stores = ["S[{1}] = {0} + 3", "S[({0} + {1}) % T_] = {0} * 3"]
        updates = ["T.atomic_add(H[{0}], tx % 3)", "T.atomic_max(S[{1}], tx)"]
        self._add(depth, f"for {name} in T.serial({draw(['4', '6', 'L[bx]'])}):")
        self._add(depth + 1, f"if {draw([*conds, 'X[bx, tx] > {0}'])}:".format(name, place))
        self._add(depth + 2, draw([*stores, *updates]).format(name, place))
        self._add(depth, f"a = (a + S[{place}]) % 997")
