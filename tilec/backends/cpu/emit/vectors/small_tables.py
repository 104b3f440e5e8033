"""Functions of four bits in vector lanes: what each of the 16 numbers becomes is computed once, side by side
in registers, and lanes look it up (`vpermps`). Weights of four bits are such numbers: to mask one, take
its offset off and convert it are three instructions otherwise, and where all lanes share a scale, that is
applied to 16 numbers however many weights there are.

What memory has at such a number is a function of it, too: its 16 elements are read once. Other numbers of a
table are computed by the operations that lanes would take, so that results are the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from tilec.backends.cpu.emit.vectors.table_forms import SIZE, table_form
from tilec.backends.cpu.products.tir import span
from tilec.ir.analysis.numbers.ranges import SHORT, as_written, bounds
from tilec.ir.exprs import dtype_of, int_value, loads, operands, over, rebuild, same, transform, walk
from tilec.lowering.emission.storage import compute_type, convert
from tilec.lowering.math.vectors import lanes_of, spread

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.backends.cpu.emit.vectors.table_forms import TableForm

#: What a function of four bits may be made of: operations that are safe for any number.
_STEPS = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Cast, tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor,
)  # fmt: skip
_CHOICES = ("tirx.if_then_else", "prim.if_then_else")
#: Operations that reading elements lane by lane counts for.
_READ = 8


def with_tables(expr: Expr, ctx: LaneContext) -> Expr:
    """``expr`` with names of looked-up lanes in place of the largest float32 parts that depend on four bits
    of each lane, and else on what all lanes share; as it is on targets without such an instruction."""
    form = table_form(ctx.target)
    if form is None or ctx.width != form.lanes or any(_is_let(node) for node in walk(expr)):
        return expr
    return _replaced(expr, False, form, ctx)


def _replaced(expr: Expr, fused: bool, form: TableForm, ctx: LaneContext) -> Expr:
    """`with_tables`, except for a product that is ``fused`` with the sum that it is a term of."""
    if not isinstance(expr, _STEPS) and not _is_element(expr, ctx):
        return expr
    found = None if fused else _looked_up(expr, form, ctx)
    if found is not None:
        name = tirx.Var("looked_up", dtype_of(expr))
        ctx.env[name] = found
        return name
    if isinstance(expr, TensorLoad):
        return expr
    sums = isinstance(expr, (tirx.Add, tirx.Sub))
    old = operands(expr)
    parts = (_replaced(part, sums and isinstance(part, tirx.Mul), form, ctx) for part in old)
    return over(expr, old, tuple(parts))


def _looked_up(expr: Expr, form: TableForm, ctx: LaneContext) -> Expr | None:
    """The lanes of ``expr`` from a table; None where it is no function of four bits, or a look-up saves
    nothing."""
    if compute_type(dtype_of(expr)) != "float32":
        return None
    fields: list[Expr] = []
    expr = as_written(ctx.facts.inline(expr))
    steps = _steps(expr, fields, ctx)
    if steps is None or not fields or not all(same(field, fields[0]) for field in fields):
        return None
    index = _unmasked(fields[0])
    if steps + (not same(index, fields[0])) < form.least:
        return None
    at = convert(spread(ctx.value(index), form.lanes), "int32")
    return form.of(_table(expr, fields[0], ctx), at)


def _steps(expr: Expr, fields: list[Expr], ctx: LaneContext) -> int | None:
    """How many operations of ``expr`` differ between lanes, down to numbers of four bits, which go into
    ``fields``; None where it depends on more than these and on what all lanes share."""
    if not _varies(expr, ctx):
        alike = (lanes_of(ctx.value(node)) == 1 for node in walk(expr) if isinstance(node, TensorLoad))
        return 0 if all(alike) else None
    if _has_four_bits(expr, ctx):
        fields.append(expr)
        return 0
    if _is_element(expr, ctx):
        return _READ if _is_of_table(expr, fields, ctx) else None
    if not isinstance(expr, _STEPS):
        return None
    total = 1
    for part in reversed(operands(expr)):  # of a long sum the last term is short, and mostly says no
        count = _steps(part, fields, ctx)
        if count is None:
            return None
        total += count
    return total


def _is_element(expr: Expr, ctx: LaneContext) -> bool:
    """Whether lanes read elements of their own, of 16 neighbours or more."""
    if not isinstance(expr, TensorLoad) or not _varies(expr.indices[-1], ctx):
        return False
    extent, strides = int_value(expr.source.shape[-1]), expr.source.strides
    return extent is not None and extent >= SIZE and (not len(strides) or int_value(strides[-1]) == 1)


def _is_of_table(load: TensorLoad, fields: list[Expr], ctx: LaneContext) -> bool:
    """Whether lanes read the first 16 elements of one row that exists by four bits, which go into
    ``fields``."""
    *outer, last = load.indices
    pairs = zip(outer, load.source.shape, strict=False)
    inside = (tirx.And(index >= 0, index < extent) for index, extent in pairs)
    if _steps(last, fields, ctx) != 0 or any(_varies(index, ctx) for index in outer):
        return False
    return all(ctx.facts.prove(cond) is True for cond in inside)


def _varies(expr: Expr, ctx: LaneContext) -> bool:
    """Whether a variable of ``expr`` has a value for each lane."""
    return any(isinstance(node, Var) and lanes_of(ctx.variable(node)) > 1 for node in walk(expr))


def _has_four_bits(expr: Expr, ctx: LaneContext) -> bool:
    """Whether ``expr`` is a number below 16 that is made of more than where a lane is."""
    if dtype_of(expr) not in SHORT or not _is_read(expr, ctx):
        return False
    if _is_choice(expr):
        return all(_has_four_bits(side, ctx) for side in expr.args[1:])
    low, high = bounds(expr, ctx.facts.analyzer)
    return low >= 0 and high < SIZE


def _is_read(expr: Expr, ctx: LaneContext) -> bool:
    assert ctx.lanes is not None
    names = (node for node in walk(expr) if isinstance(node, Var) and not node.same_as(ctx.lanes.var))
    return next(loads(expr), None) is not None or any(lanes_of(ctx.variable(name)) > 1 for name in names)


def _is_choice(expr: Expr) -> bool:
    return isinstance(expr, Call) and getattr(expr.op, "name", "") in _CHOICES


def _unmasked(field: Expr) -> Expr:
    """A number whose lower four bits ``field`` is: what it masks, if it does nothing else."""
    if _is_choice(field):
        cond, *sides = field.args
        return rebuild(field, (cond, *(_unmasked(side) for side in sides)))
    masks = isinstance(field, tirx.BitwiseAnd) and int_value(field.b) == SIZE - 1
    return field.a if masks else field


def _table(expr: Expr, field: Expr, ctx: LaneContext) -> Expr:
    """What ``expr`` is for each of the numbers that ``field`` may be."""
    number = tirx.Var("number", dtype_of(field))
    shared: dict[Var, Expr] = {}

    def named(node: Expr) -> Expr | None:
        if same(node, field):
            return number
        if not isinstance(node, TensorLoad):
            return None
        name = tirx.Var("shared", dtype_of(node))
        of_table = same(node.indices[-1], field)
        shared[name] = _elements(node, ctx) if of_table else ctx.value(node)
        return name

    function = transform(expr, named)
    numbers = tirx.Ramp(tirx.const(0, "int32"), tirx.const(1, "int32"), SIZE)
    with ctx.scope(), ctx.lane_scope(None):
        ctx.env |= {number: convert(numbers, dtype_of(field)), **shared}
        return spread(ctx.value(function), SIZE)


def _elements(load: TensorLoad, ctx: LaneContext) -> Expr:
    """The first 16 elements of the row that ``load`` reads one of."""
    storage, (*outer, last) = ctx.storage(load.source), load.indices
    first = storage.offset([*(ctx.value(index) for index in outer), tirx.const(0, dtype_of(last))])
    return ctx.decode(tirx.BufferLoad(storage.data, [span(first, SIZE)]), dtype_of(load))


def _is_let(node: Expr) -> bool:
    return isinstance(node, tirx.Let)
