"""Steps of wide random programs that hold others: loops, branches, names that outlive a loop."""

from __future__ import annotations

from collections.abc import Callable

from wide_values import REST, Value, resting
from wide_writer import Writer

TRIPS = ("range(2)", "T.serial(n)", "T.serial(n, n + 2)", "T.serial(L[0] % 3)", "T.unroll(2)",
         "T.Pipelined(n, num_stages=2)", "T.serial(2, -1, -1)")  # fmt: skip
#: How deep loops and branches nest.
DEEPEST = 2


class Loops(Writer):
    """What runs other steps several times or not at all."""

    _step: Callable[[int], None]

    def _nested(self, level: int, count: int) -> None:
        self.depth += 1
        for _ in range(count):
            self._step(level)
        self._line(level, "pass")
        self.depth -= 1

    def _loop(self, level: int) -> None:
        self.fresh += 1
        name = f"k{self.fresh}"
        self._line(level, f"for {name} in {self.random.choice(TRIPS)}:")
        self.loops.append(name)
        if self.random.random() < 0.2:
            self._line(level + 1, f"if {name} + L[0] == 3:")
            self._line(level + 2, self.random.choice(["break", "continue"]))
        self._nested(level + 1, self.random.randrange(1, 3))
        self.loops.remove(name)

    def _branch(self, level: int) -> None:
        tests = ["bx == 0", "n > 1", "by % 2 == 0", "L[0] > 2", *(f"{name} == 1" for name in self.loops)]
        self._line(level, f"if {self.random.choice(tests)}:")
        self._nested(level + 1, 1)
        if self.random.random() < 0.4:
            self._line(level, "else:")
            self._nested(level + 1, 1)

    def _while(self, level: int) -> None:
        if "count" in self.loops:
            return
        self._line(level, "count = n")
        self._line(level, "while count < 3:")
        self._line(level + 1, "count = count + 1")
        self.loops.append("count")
        self._nested(level + 1, 1)
        self.loops.remove("count")

    def _kept(self, level: int) -> None:
        """A number that a name keeps while steps change what it was read from."""
        draw, tile = self.random, self.random.choice(self.own)
        self.fresh += 1
        name = f"kept{self.fresh}"
        place = ", ".join(str(draw.randrange(size)) for size in tile.shape)
        value = Value(f"{tile.name}[{place}]", tile.dtype, REST).whole().text
        self._line(level, f"{name} = {draw.choice([value, f'{value} + L[bx]', f'L[by] % 3 + {value}'])}")
        self.loops.append(name)
        self._nested(level, 2)
        self.loops.remove(name)

    def _ahead(self, level: int) -> None:
        """A pipelined loop over rows or columns: loads of several forms, and sums of what they bring."""
        draw = self.random
        sums = [tile for tile in self.own if tile.shape == (self.bM, self.bN)]
        target = draw.choice(sums)
        self.fresh += 1
        one, other, name = f"e{self.fresh}", f"f{self.fresh}", f"k{self.fresh}"
        kinds = {one: self.dtypes["x"], other: self.dtypes["u"]}
        scopes = [draw.choice(["shared", "shared", "fragment"]) for _ in range(2)]
        self._line(level, f'{one} = T.alloc_{scopes[0]}(({self.bM}, {self.bN}), "{kinds[one]}")')
        self._line(level, f'{other} = T.alloc_{scopes[1]}(({self.bN},), "{kinds[other]}")')
        trips = draw.choice(["n", "3", "T.ceildiv(N, 16)", "L[0] % 4", "1, n + 1"])
        self._line(level, f"for {name} in T.Pipelined({trips}, num_stages={draw.randrange(5)}):")
        row = draw.choice([f"by * {self.bM} + {name}", f"L[{name}]", f"{name} * {self.bM}"])
        first = draw.choice(
            [
                [f"T.copy(X[{row}, bx * {self.bN}], {one})"],
                [f"at = {row}", f"T.copy(X[at:at + {self.bM}, bx * {self.bN}], {one})"],
                [
                    f"for i, j in T.Parallel({self.bM}, {self.bN}):",
                    f"    {one}[i, j] = T.if_then_else(i + {name} < M, X[{row} + i, bx * {self.bN} + j], 1)",
                ],
            ]
        )
        for line in first:
            self._line(level + 1, line)
        second = f"T.copy(U[bx * {self.bN} + {name}], {other})"
        if draw.random() < 0.6:
            self._line(level + 1, second)
        else:
            self._line(level + 1, f"if {name} % 2 == 0:")
            self._line(level + 2, second)
            self._line(level + 1, "else:")
            self._line(level + 2, f"T.fill({other}, {name} % 3)")
        self._line(level + 1, f"for i, j in T.Parallel({self.bM}, {self.bN}):")
        parts = [
            Value(f"{target.name}[i, j]", target.dtype, REST),
            Value(f"{one}[i, j]", kinds[one], REST),
            Value(f"{other}[j]", kinds[other], REST),
        ]
        total = Value(" + ".join(part.whole().text for part in parts), "int32", 3 * REST)
        self._line(level + 2, f"{target.name}[i, j] = {resting(total, target.dtype).text}")
