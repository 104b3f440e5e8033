"""Costs of schedules in C: functions that say which costs least, and which others are compared beside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, combinations
from typing import NamedTuple, TypeAlias

from tilec.costs import SHARE, cost_tree, features_in
from tilec.package.dispatch.choices import choices_of, several
from tilec.package.model import KernelRecord
from tilec.package.tables.cost_lanes import LANES, Alike, Column, Tree, together
from tilec.package.text.c import array, record, reference, row
from tilec.sizes import NEGATE, Name

#: How many costs a value is of, and its name in C.
_Marked: TypeAlias = tuple[int, str]
#: Operations in C on numbers, and those that are others on vectors.
_FORMS = {
    **{symbol: f"{{}} {symbol} {{}}" for symbol in "+-*/"},
    NEGATE: "-({})",
    "min": "cost_min({}, {})",
    "max": "cost_max({}, {})",
    "ceil": "{ceil}({width}, {})",
}
_VECTOR_FORMS = {
    "min": "COST_MIN({width}, {}, {})",
    "max": "COST_MAX({width}, {}, {})",
}


class _Level(NamedTuple):
    """A level of costs.h: how many numbers its vectors have, its macro that rounds up, and the one that says
    what its functions are compiled for, which not every processor has."""

    name: str
    width: int
    ceil: str
    macro: str = ""


_LEVELS = (
    _Level("narrow", 4, "COST_RAISED"),
    _Level("wide", 8, "COST_CEIL", "COST_WIDE"),
    _Level("widest", LANES, "COST_CEIL", "COST_WIDEST"),
)
#: How many other operations a division takes as long as.
_DIVISION = 4
#: The names of values that a statement reads.
_VALUES = re.compile(r"\bv\d+\b")


def runs_of(kernel: KernelRecord) -> dict[range, tuple[range, ...]]:
    """Runs of schedules in dispatch order that are compared, among each other or with other runs, and those
    of these that stand behind them."""
    found: dict[range, tuple[range, ...]] = {}
    for at, choice in enumerate(choices_of(kernel.variants)):
        if several(choice):
            own = next(run for run in choice if at in run)
            found[own] = tuple(run for run in choice if run.start > own.start)
    return found


def costs_source(kernel: KernelRecord, prefix: str, guards: Sequence[tuple[int, int]]) -> str:
    """``<prefix>_costs_<variant>`` for each run that is compared, named by its first variant, and
    ``<prefix>_rivals_<variant>``, the other runs that are compared with it. ``guards`` are, per variant, the
    place of its first guard in the kernel's array of guards and their number."""
    dims = tuple(dim.name for dim in kernel.dims)
    return "".join(
        _source(dims, tuple(kernel.variants[at].cost for at in run), _pins(kernel, run)).replace(
            "@", _costs(prefix, run)
        )
        + array("candidate", _rivals(prefix, run), _candidates(others, guards))
        for run, others in runs_of(kernel).items()
    )


def cost_fields(kernel: KernelRecord, prefix: str) -> list[dict[str, object]]:
    """Per variant, the fields of its record about choices."""
    rows: list[dict[str, object]] = [{} for _ in kernel.variants]
    for run, others in runs_of(kernel).items():
        levels, rivals = f"{_costs(prefix, run)}_levels", reference(_rivals(prefix, run), others)
        shared = {"costs": levels, "rivals": rivals, "starts": _starts(kernel, run, others)}
        for number, index in enumerate(run):
            rows[index] = {**shared, "choice": number}
    return rows


def _starts(kernel: KernelRecord, run: range, others: Sequence[range]) -> str:
    """The parameters of which others demand an alignment that a run does not, as bits."""
    own = _aligned(kernel, run)
    asked = set[str]().union(*(_aligned(kernel, other) for other in others)) - own
    bits = sum(1 << at for at, param in enumerate(kernel.params) if param.name in asked)
    return f"UINT64_C({bits})"


def _aligned(kernel: KernelRecord, run: range) -> set[str]:
    """The parameters that a run wants at multiples of a vector."""
    return {name for name, _ in kernel.variants[run.start].align}


def _pins(kernel: KernelRecord, run: range) -> tuple[tuple[str, int], ...]:
    """The dims that have one value where a run is compared."""
    return tuple((dim, guard.eq) for dim, guard in kernel.variants[run.start].guards if guard.eq is not None)


def _costs(prefix: str, run: range) -> str:
    return f"{prefix}_costs_{run.start}"


def _rivals(prefix: str, run: range) -> str:
    return f"{prefix}_rivals_{run.start}"


def _candidates(runs: Sequence[range], guards: Sequence[tuple[int, int]]) -> list[str]:
    """The first of each run, for all of it."""
    return [
        record(
            variant=run.start,
            first_guard=guards[run.start][0],
            num_guards=guards[run.start][1],
            last=int(run is runs[-1]),
        )
        for run in runs
    ]


@lru_cache(maxsize=256)
def _source(dims: tuple[str, ...], costs: tuple[str, ...], pins: tuple[tuple[str, int], ...]) -> str:
    """The functions for one list of costs, with "@" for its name: one for each length of vectors."""
    kinds = _kinds(costs, pins)
    longest = max(_width(group) for kind in kinds for group in kind.groups)
    levels = [level._replace(width=min(level.width, longest)) for level in _LEVELS]
    return "".join(_functions(dims, kinds, level) for level in levels) + "COST_LEVELS(@)\n"


class _Kind(NamedTuple):
    """Processors that have one cost of each schedule: the bits that they have of features that costs ask
    for."""

    bits: int
    groups: Sequence[Alike]


def _kinds(costs: Sequence[str], pins: tuple[tuple[str, int], ...]) -> list[_Kind]:
    """The kinds of processors that a list tells apart, from one with all of its features to one without."""
    bits = {name: bit for text in costs for name, bit in features_in(text).items()}
    sets = [frozenset(some) for count in range(len(bits), -1, -1) for some in combinations(bits, count)]
    return [
        _Kind(
            sum(bits[name].mask for name in some), together([cost_tree(text, pins, some) for text in costs])
        )
        for some in sets
    ]


def _functions(dims: tuple[str, ...], kinds: Sequence[_Kind], level: _Level) -> str:
    """The function of a level, which hands on to one for each kind of processors where there are several."""
    if len(kinds) == 1:
        return _guarded(level, _function(dims, kinds[0].groups, level, f"@_{level.name}"))
    names = [f"@_{level.name}_{number}" for number in range(len(kinds))]
    each = [_function(dims, kind.groups, level, name) for kind, name in zip(kinds, names, strict=True)]
    chosen = "".join(
        f"  if ((bits & UINT64_C({kinds[0].bits})) == UINT64_C({kind.bits}))"
        f" return {name}(dims, share, bits, out);\n"
        for kind, name in zip(kinds[:-1], names[:-1], strict=True)
    )
    last = f"  return {names[-1]}(dims, share, bits, out);\n"
    return _guarded(level, f"{''.join(each)}{_head(level, f'@_{level.name}')}{chosen}{last}}}\n")


def _guarded(level: _Level, text: str) -> str:
    """What is left out where no processor has the vectors of a level."""
    return f"#ifdef {level.macro}\n{text}#endif\n" if level.macro else text


def _function(dims: tuple[str, ...], groups: Sequence[Alike], level: _Level, name: str) -> str:
    """A function that puts all costs out, each with its number in the last bits, and returns the least."""
    writer, width = _Writer(dims, level, name), level.width
    marked = [writer.marked(part) for group in groups for part in group.parts(width)]
    end = f"return {_least(writer, marked)};"
    lines = "".join(f"  {line}\n" for line in (*writer.lines(), *_put_out(marked), end))
    unused = "".join(f"  (void){name};\n" for name in ("dims", "share", "bits"))
    return f"{writer.arrays()}{_head(level, name)}{unused}{lines}}}\n"


def _head(level: _Level, name: str) -> str:
    compiled_for = f"{level.macro} " if level.macro else ""
    given = "const int64_t* dims, float share, uint64_t bits, float* out"
    return f"{compiled_for}static float {name}({given}) {{\n"


class _Writer:
    """Writes trees as statements of a level, the same one once: of numbers, and of vectors where costs
    differ."""

    def __init__(self, dims: Sequence[str], level: _Level, name: str) -> None:
        self._name, self._ceil = name, level.ceil
        self._names = {name: f"(float)dims[{at}]" for at, name in enumerate(dims)} | {SHARE: "share"}
        self._made: dict[tuple[int, str], str] = {}
        self._rows: dict[str, list[str]] = {}
        self._lines: dict[str, str] = {}

    def arrays(self) -> str:
        """The columns that `lines` read."""
        return "".join(array(kind, f"{self._name}_of_{kind}", rows) for kind, rows in self._rows.items())

    def lines(self) -> list[str]:
        """Statements of all groups, those first that begin the longest chains: a processor looks ahead over
        no more than one group."""
        lengths = dict.fromkeys(self._lines, 0)
        for name, line in reversed(self._lines.items()):
            lengths[name] += _DIVISION if " / " in line else 1
            for read in _VALUES.findall(line.partition(" = ")[2]):
                lengths[read] = max(lengths[read], lengths[name])
        return [self._lines[name] for name in sorted(self._lines, key=lengths.__getitem__, reverse=True)]

    def marked(self, group: Alike) -> _Marked:
        """The costs of a group, each with its number."""
        width = _width(group)
        if width == 1:
            return 1, self.made(1, f"cost_marked({self._value(group.tree, 1)}, {group.numbers[0]})")
        cost = self._vector(group.tree, width)
        numbers = self._column(f"cost_bits_{width}", map(str, _filled(group.numbers, width)))
        return width, self.made(width, f"COST_MARKED({width}, {cost}, {numbers})")

    def least(self, width: int, names: Sequence[str]) -> str:
        """The least of several values, place by place."""
        if len(names) == 1:
            return names[0]
        halves = (self.least(width, names[::2]), self.least(width, names[1::2]))
        return self.made(width, self._form("min", width).format(*halves, width=width))

    def made(self, width: int, text: str) -> str:
        """The name of a value."""
        if (width, text) not in self._made:
            name = self._made[width, text] = f"v{len(self._made)}"
            self._lines[name] = f"const {'float' if width == 1 else f'cost_{width}'} {name} = {text};"
        return self._made[width, text]

    def _value(self, tree: Tree, width: int) -> str:
        if isinstance(tree, Name):
            return self.made(1, self._names[tree.name])
        if isinstance(tree, Column):
            numbers = [f"{each!r}f" for each in _filled(tree.values, width)]
            return self._column(f"cost_{width}", numbers) if tree.varies else numbers[0]
        wide = width if tree.varies else 1
        written = self._vector if wide > 1 and tree.op in _VECTOR_FORMS else self._value
        parts = [written(part, width) for part in tree.parts]
        return self.made(wide, self._form(tree.op, wide).format(*parts, width=wide, ceil=self._ceil))

    def _vector(self, tree: Tree, width: int) -> str:
        """A value that is a vector even where all costs have the same."""
        value = self._value(tree, width)
        is_one = not isinstance(tree, Name) and tree.varies
        return value if is_one else self.made(width, f"(cost_{width}){{0}} + {value}")

    def _form(self, op: str, width: int) -> str:
        return _FORMS[op] if width == 1 else _VECTOR_FORMS.get(op, _FORMS[op])

    def _column(self, kind: str, numbers: Iterable[str]) -> str:
        rows, text = self._rows.setdefault(kind, []), row(*numbers)
        if text not in rows:
            rows.append(text)
        return f"{self._name}_of_{kind}[{rows.index(text)}]"


def _width(group: Alike) -> int:
    """Of vectors with room for a group."""
    widths = (1, *(level.width for level in _LEVELS))
    return next(width for width in widths if width >= len(group.numbers))


def _filled(values: Sequence[float], width: int) -> tuple[float, ...]:
    """With the last one again in what is left of a vector."""
    return (*values, *[values[-1]] * (width - len(values)))


def _put_out(marked: Sequence[_Marked]) -> Iterator[str]:
    """Statements that write all costs one behind the other."""
    starts = accumulate((width for width, _ in marked), initial=0)
    for (_, name), start in zip(marked, starts, strict=False):
        yield f"memcpy(out + {start}, &{name}, sizeof({name}));"


def _least(writer: _Writer, marked: Sequence[_Marked]) -> str:
    """The name of the least of all costs."""
    found = []
    for width in sorted({width for width, _ in marked}):
        name = writer.least(width, [name for each, name in marked if each == width])
        found.append(name if width == 1 else writer.made(1, f"COST_LEAST({width}, {name})"))
    return writer.least(1, found)
