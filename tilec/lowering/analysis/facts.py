"""What is known about the variables of a kernel, and proofs of index bounds from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import sym, tirx
from tvm.ir import Var
from tvm.tirx.analysis import undefined_vars

from tilec.ir.analysis.numbers.long_names import LongNames
from tilec.ir.analysis.numbers.places import leading, of_memory
from tilec.ir.analysis.numbers.ranges import (
    BEYOND_TYPE,
    SHORT,
    as_data_has_it,
    as_types_have_it,
    as_written,
    bounds,
    has_data,
    has_place,
    limits,
    with_bits,
    wraps_around,
)
from tilec.ir.exprs import (
    DIVISIONS,
    all_of,
    as_expr,
    conjuncts,
    dtype_of,
    inlined,
    int_value,
    linear_in,
    loads,
    operands,
    same,
    substitute,
    walk,
    with_part,
)
from tilec.ir.nodes import Kernel, ScalarParam
from tilec.lowering.analysis.answers import Answer, Answers
from tilec.lowering.analysis.conditions import gap, has_quotient, is_below_zero, is_opaque, negate
from tilec.lowering.analysis.grounds import Grounds

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Extents and dims stay below this, so that products of two index values never overflow 62 bits.
_LARGEST = 2**31 - 1


class Facts:
    """Ranges of variables and conditions that hold where code is being emitted.

    A range is kept as two expressions over variables introduced earlier, because the interesting ones are
    symbolic (a block index runs to ceildiv(M, 64) - 1). A bound is proved by replacing the variables of an
    expression, latest first, by the end of their range that makes it largest or smallest. Proofs take no help
    from an external solver, whose answers could depend on the time that it has."""

    def __init__(self, kernel: Kernel, mutable: Container[Var] = ()) -> None:
        """``mutable`` are the buffers that statements write: what is read from them may change."""
        self.analyzer = sym.Analyzer()
        self._mutable = mutable
        self._ranges: list[tuple[Var, Expr, Expr]] = []
        self._lesser: dict[Var, tuple[Expr, Expr]] = {}
        self._numbers: dict[Var, tuple[int, int]] = {}
        self._values: dict[Var, Expr] = {}
        self._kernel = kernel
        self._data = {param.var for param in kernel.params if isinstance(param, ScalarParam)}
        self._long_names = LongNames()
        self._multiples: dict[Var, Expr] = {}
        self._known: list[tuple[Expr, bool]] = []
        self._gaps: list[Expr] = []
        self._grounds = Grounds()
        self._state = 0
        self._states = itertools.count(1)
        self._verdicts: Answers[bool | None] = Answers()
        self._forms: Answers[Expr] = Answers()
        self._inlined: Answers[Expr] = Answers()
        self._of_data: Answers[Expr] = Answers()
        self._wrapping: Answers[bool] = Answers()
        self._linear_forms: Answers[list[Expr]] = Answers()
        self._positive: Answers[bool] = Answers()
        self._assumed: Answers[int] = Answers()
        if self.analyzer.is_z3_enabled:
            self.analyzer.set_z3_rlimit(1)
        self._dims = {dim.var for dim in kernel.dims if dim.var is not None}
        for dim in kernel.dims:
            if dim.var is not None:
                self._bind_dim(dim.var, dim.guard.div, dim.guard.min, dim.guard.max)

    def _bind_dim(self, var: Var, div: int, low: int | None, high: int | None) -> None:
        """In proofs ``var`` = quotient * div: divisibility then simplifies like any arithmetic."""
        low, high = max(low or 0, 0), _LARGEST if high is None else high
        if div == 1:
            self.analyzer.bind(var, _range(var, low, high), allow_override=True)
            return
        quotient = tirx.Var(f"{var.name}_{div}", var.ty)
        self.analyzer.bind(quotient, _range(var, -(-low // div), high // div), allow_override=True)
        self._multiples[var] = quotient * tirx.const(div, dtype_of(var))
        self.analyzer.bind(var, _range(var, low, high), allow_override=True)

    @property
    def state(self) -> int:
        """A number for what is known: equal ones say that nothing was learnt, or forgotten, in between."""
        return self._state

    def is_dim(self, expr: Expr) -> bool:
        """Whether an expression is a dim of the kernel that the manifest leaves open."""
        return isinstance(expr, Var) and expr in self._dims

    def enter_block(self, grid: Iterable[Expr | int]) -> None:
        """A block of ``grid`` runs: what is never negative and would leave no block at 0 is positive."""
        for extent in map(as_expr, grid):
            for part in _factors(extent):
                zero = tirx.const(0, dtype_of(part))
                empty = self.prove(with_part(extent, part, zero) <= 0)
                if empty is True and self.prove(part >= zero) is True:
                    self._known += [(as_written(each > zero), True) for each in (part, self.simplify(part))]
                    self._grounds.assume(part > zero, True)
        self._state = next(self._states)

    def bind_range(self, var: Var, low: Expr | int, high: Expr | int) -> None:
        """``low`` <= var < ``high``; both may mention variables bound before."""
        self._state = next(self._states)
        if isinstance(low, int) and isinstance(high, int):
            self._bind_numbers(var, low, high)
            return
        self._numbers.pop(var, None)
        self._lesser.pop(var, None)
        low, high = as_expr(low, dtype_of(var)), as_expr(high, dtype_of(var))
        low = low if self.is_stable(low) else tirx.const(-_LARGEST, dtype_of(var))
        high = high if self.is_stable(high) else tirx.const(_LARGEST, dtype_of(var))
        self._ranges = [entry for entry in self._ranges if not entry[0].same_as(var)]
        ends = (self._proof_form(low), self._proof_form(high - 1))
        self._ranges.append((var, *ends))
        end = self.inline(high)
        if isinstance(end, tirx.Min):
            self._lesser[var] = tuple(self._proof_form(part - 1) for part in (end.a, end.b))
        first, last = self._number(low, False), self._number(high, True)
        lowest, highest = -_LARGEST if first is None else first, _LARGEST if last is None else last
        self._bind_interval(var, lowest, max(highest - 1, lowest))
        self._grounds.learn_range(var, (*ends, *self._lesser.get(var, ())), (lowest, highest))

    def _bind_numbers(self, var: Var, low: int, high: int) -> None:
        """`bind_range` between two numbers, which are as simple as they get."""
        dtype = dtype_of(var)
        self._numbers[var] = (low, high)
        self._lesser.pop(var, None)
        self._ranges = [entry for entry in self._ranges if not entry[0].same_as(var)]
        self._ranges.append((var, tirx.const(low, dtype), tirx.const(high - 1, dtype)))
        self._bind_interval(var, low, max(high - 1, low))
        self._grounds.learn_range(var, (), (low, high))

    def _bind_interval(self, var: Var, low: int, high: int) -> None:
        """``low`` <= var <= ``high``. A TVM range holds the number of values and what is behind the last one,
        which have to fit the type."""
        dtype = dtype_of(var)
        most = limits(dtype)[1] if dtype in SHORT else None
        if most is not None and (high - low >= most or (high == most and dtype != "int32")):
            self.analyzer.update(var, sym.ConstIntBound(low, high), True)
            return
        self.analyzer.bind(var, _range(var, low, high), allow_override=True)

    def is_within(self, index: Expr, extent: Expr) -> bool:
        """Whether ``index`` lies in 0 to ``extent`` - 1 by numbers alone: what most proofs would come to."""
        last = int_value(extent)
        if last is None:
            return False
        value = int_value(index)
        low, high = self._numbers.get(index, (-1, 0)) if value is None else (value, value + 1)
        return low >= 0 and high <= last

    def bind_value(self, var: Var, value: Expr) -> None:
        """``var`` equals ``value``, an integer expression that reads no buffer."""
        if var in self._values and same(self._values[var], value):
            return
        self._state = next(self._states)
        self._values[var] = value
        self._grounds.learn_value(var, value)

    def learn_binding(self, var: Var, value: Expr) -> None:
        """``var`` is a name of ``value``: index arithmetic that is not long stands for it; of integers that
        are read the range is known."""
        dtype = dtype_of(var)
        if "int" in dtype and has_data(value, self.analyzer, self._counts):
            self._data.add(var)
        if next(loads(value), None) is None:
            if dtype.startswith("int") and not self._long_names.has(var, value):
                self.bind_value(var, value)
        elif dtype in SHORT:
            low, high = bounds(value, self.analyzer)
            if (low, high) != limits(dtype):
                self.bind_range(var, low, high + 1)

    def _remembered(self, answers: Answers[Answer], expr: Expr, find: Callable[[Expr], Answer]) -> Answer:
        """The answer of ``find`` about an expression, which depends on what is known: that of this state,
        else of any that had the same ground."""
        return answers.of(self._state, expr, lambda it: answers.of(self._grounds.of(it), it, find))

    def inline(self, expr: Expr, whole: bool = True) -> Expr:
        """``expr`` with variables of known value replaced by it; where it is not to be so ``whole``, names of
        values with quotients by run-time values stay."""
        if not operands(expr) and not isinstance(expr, Var):
            return expr
        if whole:
            return self._inlined.of(self._state, expr, lambda it: self._with_values(it, self._values))
        plain = {var: value for var, value in self._values.items() if not has_quotient(value)}
        return self._with_values(expr, plain)

    def _with_values(self, expr: Expr, values: Mapping[Var, Expr]) -> Expr:
        return as_types_have_it(inlined(expr, values), self.analyzer)

    def simplify(self, expr: Expr) -> Expr:
        """``expr`` simplified, over the variables of the kernel."""
        inlined = self.inline(expr)
        try:
            return self.analyzer.simplify(inlined)
        except BEYOND_TYPE:  # which the analyzer comes to
            return inlined

    def _proof_form(self, expr: Expr | int) -> Expr:
        """``expr`` simplified for proofs: it may be over quotients of dims, which no code knows."""
        if isinstance(expr, tirx.IntImm):
            return expr
        return self._remembered(self._forms, as_expr(expr), self._as_proofs_have_it)

    def _as_proofs_have_it(self, expr: Expr) -> Expr:
        return self.analyzer.simplify(
            substitute(with_bits(self.inline(expr), self.analyzer), self._multiples)
        )

    def _faithful(self, expr: Expr) -> Expr:
        """`inline`, with arithmetic on data that may wrap around made opaque."""
        return as_data_has_it(self.inline(expr), self.analyzer, self._counts, self._kept)

    def _kept(self, expr: Expr, find: Callable[[Expr], Expr]) -> Expr:
        """What `ranges.as_data_has_it` finds of an expression, remembered."""
        return self._of_data.of(self._state, expr, find)

    def prove(self, cond: Expr) -> bool | None:
        """True or False where ``cond`` always is, None where it may be either."""
        verdicts = [self._prove_atom(atom) for atom in conjuncts(cond)]
        if any(verdict is False for verdict in verdicts):
            return False
        return True if all(verdicts) else None

    def _prove_atom(self, cond: Expr) -> bool | None:
        """The verdict on one condition."""
        return self._remembered(self._verdicts, cond, self._decide)

    def _decide(self, cond: Expr) -> bool | None:
        cond = self._faithful(cond)
        bare = as_written(cond)
        for known, value in self._known:
            if same(known, bare):
                return value
        if is_opaque(cond):
            return None
        negated = negate(cond)
        if is_below_zero(cond) or is_below_zero(negated):
            return is_below_zero(negated)
        try:
            if self._holds(cond):
                return True
            return False if negated is not None and self._holds(negated) else None
        except BEYOND_TYPE:  # which the analyzer comes to
            return None

    def _holds(self, cond: Expr) -> bool:
        simple = self._proof_form(cond)
        if isinstance(simple, tirx.IntImm):
            return bool(simple.value)
        positive = gap(cond)
        if positive is None:
            return False
        if self._is_positive(self._extreme(positive, False)) or self._follows(positive):
            return True
        if not any(node in self._lesser for node in undefined_vars(self._proof_form(positive))):
            return False
        ends = (self._extreme(positive, False, number) for number in (0, 1))
        return any(map(self._is_positive, ends))

    def _is_positive(self, end: Expr) -> bool:
        """Whether the analyzer proves it, which different conditions ask of one end."""
        return self._remembered(self._positive, end, lambda it: bool(self.analyzer.can_prove(it > 0)))

    def _follows(self, positive: Expr) -> bool:
        """Whether ``positive`` is at least what is known to be positive, or a multiple, for the values of
        the variables that were introduced last, whichever of them alone it mentions."""
        if not self._gaps:
            return False
        try:
            return self._is_at_least_known(self._proof_form(positive))
        except BEYOND_TYPE:  # the end of a range that says nothing
            return False

    def _is_at_least_known(self, left: Expr) -> bool:
        """`_follows`; an error of `BEYOND_TYPE` where a number is. Each form of ``left`` is compared once:
        most ranges are of variables that it does not mention."""
        found, mentioned = self._exceeds_known(left), set(undefined_vars(left))
        for var, low, high in self._latest():
            if found or var not in mentioned:
                continue
            linear = self._linear_in(left, var)
            factor = int_value(linear[0]) if linear else None
            end = None if factor is None else _at(linear, low if factor > 0 else high)
            if end is not None:
                left = self._proof_form(end)
                found, mentioned = self._exceeds_known(left), set(undefined_vars(left))
        return found

    def _linear_in(self, expr: Expr, var: Var) -> list[Expr]:
        """`linear_in`, which proofs ask again and again."""
        return self._linear_forms.of(var, expr, lambda it: linear_in(it, [var]))

    def _latest(self) -> list[tuple[Var, Expr, Expr]]:
        """The ranges, the last ones first, but before them those of what nothing known mentions."""
        mentioned = {var for known in self._gaps for var in undefined_vars(known)}
        latest = self._ranges[::-1]
        return sorted(latest, key=lambda entry: entry[0] in mentioned)

    def _gap_forms(self, gaps: Iterable[Expr]) -> Iterator[Expr]:
        for each in gaps:
            with suppress(*BEYOND_TYPE):  # which the analyzer comes to
                yield self._proof_form(each)

    def _exceeds_known(self, left: Expr) -> bool:
        return any(
            self._exceeds(left, known, times) for known in self._gaps for times in self._times(left, known)
        )

    def _times(self, left: Expr, known: Expr) -> tuple[int, ...]:
        """1, and how many times ``left`` has a variable of ``known`` that both are linear in, where that is
        whole and fits the type."""
        named = (var for var in undefined_vars(known) if not tirx.is_buffer_var(var))
        pairs = ([self._linear_in(expr, var) for expr in (left, known)] for var in named)
        forms = next((pair for pair in pairs if all(pair)), None)
        if forms is None:
            return (1,)
        wanted, given = (int_value(form[0]) for form in forms)
        times = wanted // given if wanted and given and wanted % given == 0 else 1
        if times <= 1:
            return (1,)
        most = max((abs(node.value) for node in walk(known) if isinstance(node, tirx.IntImm)), default=0)
        return (1, times) if times <= limits(dtype_of(known))[1] // max(most, 1) else (1,)

    def _exceeds(self, left: Expr, known: Expr, times: int) -> bool:
        """Whether ``left`` is positive if it is compared with so many times what is 1 at least. What mentions
        other variables differs from it by no number."""
        if set(undefined_vars(left)) != set(undefined_vars(known)):
            return False
        number = int_value(self.analyzer.simplify(left - known * times))
        return number is not None and number + times > 0

    def _number(self, expr: Expr, largest: bool) -> int | None:
        """The number that `_extreme` comes to, else a bound of it; None where nothing is known."""
        end = self._extreme(expr, largest)
        dtype = dtype_of(end)
        if isinstance(end, tirx.IntImm) or dtype not in SHORT:
            return int_value(end)
        found = bounds(end, self.analyzer)[largest]
        return None if found == limits(dtype)[largest] else found

    def _extreme(self, expr: Expr, largest: bool, number: int | None = None) -> Expr:
        """An upper (or lower) bound of ``expr`` free of the ranged variables that it is linear in. Of ends
        that are the lesser of two, that of a ``number``: either is a bound by itself."""
        expr = self._proof_form(expr)
        left = set(undefined_vars(expr))
        for var, low, high in reversed(self._ranges):
            if var not in left:
                continue
            linear = self._linear_in(expr, var)
            factor = int_value(linear[0]) if linear else None
            if factor is None:
                continue
            if number is not None and var in self._lesser:
                high = self._lesser[var][number]
            end = _at(linear, high if (factor > 0) == largest else low)
            if end is None:
                continue
            try:
                expr = self._proof_form(end)
            except BEYOND_TYPE:  # the end of a range that says nothing
                continue
            left = set(undefined_vars(expr))
        return expr

    @cached_property
    def _leading(self) -> frozenset[Var]:
        return leading(self._kernel.body)

    @cached_property
    def _of_memory(self) -> frozenset[Var]:
        return of_memory(self._kernel.body)

    def _counts(self, name: Var) -> bool:
        """Whether a variable, or an element of a buffer, is a whole number to the author: memory may hold
        any number, whatever it leads to."""
        return self._leads(name) and name not in self._of_memory

    def _leads(self, name: Var) -> bool:
        """Whether a variable, or an element of a buffer, is an index or leads to one."""
        return not (name in self._data or tirx.is_buffer_var(name)) or name in self._leading

    def wraps_around(self, expr: Expr) -> bool:
        """Whether signed arithmetic on data (`ranges.has_data`) may leave its type. Data that leads to places
        is one where it meets an index."""
        return self._wrapping.of(self._state, expr, self._may_wrap)

    def _may_wrap(self, expr: Expr) -> bool:
        whole = self.inline(expr)
        if has_place(whole, self.analyzer, self._counts) and not has_data(whole, self.analyzer, self._leads):
            return False
        return wraps_around(whole, self.analyzer, self._counts, self._kept)

    def is_stable(self, expr: Expr) -> bool:
        """Whether ``expr`` keeps its value: it reads nothing that statements write."""
        return not any(load.source in self._mutable for load in loads(expr))

    @contextmanager
    def remember(self, cond: Expr, value: bool = True) -> Iterator[None]:
        """`assume` around statements: without the parts of ``cond`` that they may change."""
        parts = [part for part in conjuncts(cond) if self.is_stable(part)]
        if not parts or (not value and len(parts) != len(conjuncts(cond))):
            yield
            return
        with self.assume(all_of(parts), value):
            yield

    @contextmanager
    def assume(self, cond: Expr, value: bool = True) -> Iterator[None]:
        """Within the context ``cond`` is ``value``. A false conjunction of several parts tells nothing. Who
        assumes the same in the same state of knowledge comes to the same one."""
        cond = self._faithful(cond)
        parts = conjuncts(cond)
        before, gaps, state = len(self._known), len(self._gaps), self._state
        inside = self._state = self._assumed.of((state, value), cond, lambda _: next(self._states))
        assumed = self._grounds.assume(cond, value)
        if value or len(parts) == 1:
            self._known += [(as_written(part), value) for part in parts]
        opaque = is_opaque(cond)
        negated = None if value or opaque or len(parts) > 1 else negate(cond)
        found = map(gap, [] if opaque else parts if value else [negated] if negated is not None else [])
        self._gaps += self._gap_forms(each for each in found if each is not None)
        fact = None if opaque else cond if value else negated
        fact = None if fact is None or any(map(is_below_zero, conjuncts(fact))) else fact
        try:
            if fact is None:
                yield
            else:
                with self.analyzer.constraint_scope(substitute(fact, self._multiples)):
                    yield
        finally:
            del self._known[before:], self._gaps[gaps:]
            self._grounds.restore(assumed)
            self._state = state if self._state == inside else next(self._states)


def _at(linear: Sequence[Expr], end: Expr) -> Expr | None:
    """What is linear in a variable where that is at an ``end`` of its range; None where the numbers may come
    to one beyond their type, which folds to one of the other sign: such an end says nothing."""
    factor, rest = linear
    number, times = int_value(end), int_value(factor)
    if number is not None and times is not None:
        beside = sum(abs(node.value) for node in walk(rest) if isinstance(node, tirx.IntImm))
        if abs(times * number) + beside > limits(dtype_of(rest))[1]:
            return None
    return rest + factor * end


def _factors(expr: Expr) -> list[Expr]:
    """The variables of an expression, and what is multiplied in it, without what it divides by."""
    nodes = list(walk(expr))
    products = (operand for node in nodes if isinstance(node, tirx.Mul) for operand in (node.a, node.b))
    named = [*(node for node in nodes if isinstance(node, Var)), *products]
    divided = [part for node in nodes if isinstance(node, DIVISIONS) for part in walk(node.b)]
    return [
        node
        for node in named
        if not isinstance(node, tirx.IntImm) and not any(same(node, part) for part in divided)
    ]


def _range(var: Var, low: int, high: int) -> tvm_ir.Range:
    """The inclusive interval as a TVM range of ``var``'s dtype."""
    dtype = dtype_of(var)
    high = min(high, 2**31 - 2) if dtype == "int32" else high
    return tvm_ir.Range(tirx.const(low, dtype), tirx.const(high + 1, dtype))
