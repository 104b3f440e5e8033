"""Loops that stay loops: what T.Parallel, T.Pipelined, T.serial and the rest hand to a rewritten ``for``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.ir.hints import Hints
from tilec.language.control.pipeline_schedules import check_dependences, check_lists
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.annotations import known_annotations, unheeded
from tilec.language.values.kernel.builder import Builder, Frame
from tilec.language.values.kernel.places import source_error
from tilec.language.values.layouts.asked_hints import hints_of
from tilec.language.values.layouts.layout import Fragment
from tilec.language.values.operand_errors import FOR_A_WHOLE
from tilec.language.values.operands import expression, stored_value
from tilec.language.values.value import Value, as_int, resolve
from tilec.spelling import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm.ir import Expr, Var

_NAMES = "ijklmnpq"


@dataclass
class Nest:
    """One or more nested loops. ``names`` are the author's loop variables; the rewritten ``for`` sets
    them."""

    construct: str
    kind: str
    starts: tuple[Expr, ...]
    stops: tuple[Expr, ...]
    steps: tuple[Expr, ...]
    options: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    grouped: bool = False

    def __iter__(self) -> Iterator[Any]:
        raise source_error(
            SourceTypeError,
            f"{self.construct} loops only in kernels and macros",
            construct=self.construct,
            remedy="decorate the helper with @T.macro",
        )

    def open(self) -> Any:
        """Open the regions; the loop variable, or a tuple of them."""
        self.vars = tuple(self._variable(axis) for axis in range(len(self.starts)))
        self.frames = self._push()
        values = tuple(Value(var, frame=self.frames[-1]) for var in self.vars)
        return values[0] if len(values) == 1 else values

    def close(self) -> None:
        """Close the regions and add the statement; none where the body has none."""
        builder = sessions.builder(self.construct)
        if self.kind == "parallel":
            self._close_parallel(builder)
            return
        for axis in reversed(range(len(self.vars))):
            body = builder.pop(self.frames[axis])
            if body:
                builder.emit(self._loop(axis, body), self.construct)

    def _close_parallel(self, builder: Builder) -> None:
        frame = self.frames[0]
        body = builder.pop(frame)
        for add in frame.ahead:
            add()
        if body:
            builder.emit(self._parallel(body), self.construct)

    def _push(self) -> list[Frame]:
        builder = sessions.builder(self.construct)
        if self.kind == "parallel":
            frame = builder.push(self.kind)
            frame.nest, frame.trips = self, 1
            return [frame]
        return [self._counted_frame(builder, axis) for axis in range(len(self.starts))]

    def _counted_frame(self, builder: Builder, axis: int) -> Frame:
        frame = builder.push(self.kind)
        first, last, step = (sessions.constant(part[axis]) for part in (self.starts, self.stops, self.steps))
        if first is not None and last is not None and step is not None:
            frame.trips = len(range(first, last, step))
        return frame

    def _variable(self, axis: int) -> Var:
        from tvm import tirx
        from tvm.ir import Range

        name = self.names[axis] if axis < len(self.names) else _NAMES[axis % len(_NAMES)]
        start, stop = self.starts[axis], self.stops[axis]
        var = tirx.Var(name, str(stop.ty.dtype))
        if sessions.prove(self.steps[axis] > 0):
            extent = sessions.simplify(stop - start)
            sessions.current(self.construct).analyzer.bind(var, Range.from_min_extent(start, extent))
        return var

    def _parallel(self, body: ir.Block) -> ir.Parallel:
        extents = tuple(sessions.known_or_expr(stop) for stop in self.stops)
        hints = self.options.get("hints", Hints())
        inner = body[0] if len(body) == 1 else None
        if isinstance(inner, ir.Parallel):
            return ir.Parallel(
                self.vars + inner.vars,
                extents + inner.extents,
                inner.body,
                replace(hints, **inner.hints.given),
                loc=self.frames[0].loc,
            )
        return ir.Parallel(self.vars, extents, body, hints, loc=self.frames[0].loc)

    def _loop(self, axis: int, body: ir.Block) -> ir.Stmt:
        place = self.frames[axis].loc
        var, start, stop = self.vars[axis], self.starts[axis], self.stops[axis]
        if self.kind == "pipelined":
            loop = ir.Pipelined(var, start, stop, body, loc=place, **self.options)
            if not self.grouped:
                check_dependences(loop)
            return loop
        lanes_differ = self.kind == "vectorized" and self.frames[axis].has_jump
        kind = "serial" if lanes_differ else self.kind
        return ir.For(kind, var, start, stop, self.steps[axis], body, loc=place)


def serial(start: Any, stop: Any = None, step: Any = None, *, annotations: Any = None) -> Nest:
    """``for i in T.serial(start, stop, step)``: sequential. ``range`` in a kernel means the same."""
    known_annotations("T.serial", annotations)
    return _counted("T.serial", "serial", start, stop, step)


def unroll(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    explicit: bool = False,
    unroll_factor: int | None = None,
    annotations: Any = None,
) -> Nest:
    """A serial loop with the hint to unroll it."""
    if explicit and unroll_factor is not None:
        raise source_error(
            SourceValueError,
            "T.unroll takes explicit or unroll_factor, not both",
            construct="T.unroll",
            remedy="leave one of them out",
        )
    if unroll_factor is not None:
        remedy = "leave it out, or put a T.unroll of so many iterations into a T.serial"
        unheeded("T.unroll", "loops are unrolled as a whole, not by unroll_factor", remedy)
    known_annotations("T.unroll", annotations)
    return _counted("T.unroll", "unroll", start, stop, step)


def vectorized(start: Any, stop: Any = None, *, annotations: Any = None) -> Nest:
    """A serial loop with the hint that its iterations are lanes of one vector."""
    known_annotations("T.vectorized", annotations)
    return _counted("T.vectorized", "vectorized", start, stop, None)


def grid(*extents: Any) -> Nest:
    """Nested serial loops, one variable per extent."""
    return _nest("T.grid", "serial", extents)


def Parallel(
    *extents: Any,
    coalesced_width: int | None = None,
    loop_layout: Any = None,
    prefer_async: bool | None = None,
    annotations: Any = None,
) -> Nest:
    """Independent iterations shared by the block, one variable per extent; the keywords are hints. Raises
    `SourceValueError` for a ``loop_layout`` of another number of axes."""
    _check_loop_layout(extents, loop_layout)
    _check_signs(extents)
    if len(extents) == 1 and isinstance(extents[0], (tuple, list)):
        what = f"T.Parallel takes its extents one by one, not {type(extents[0]).__name__}"
        remedy = "put a star in front of it: T.Parallel(*shape)"
        raise source_error(SourceTypeError, what, construct="T.Parallel", remedy=remedy)
    given = {"coalesced_width": coalesced_width, "loop_layout": loop_layout, "prefer_async": prefer_async}
    hints = hints_of("T.Parallel", given, annotations)
    return _nest("T.Parallel", "parallel", extents, hints=hints)


def _check_signs(extents: tuple[Any, ...]) -> None:
    wrong = next((one for one in extents if isinstance(one, int) and one < 0), None)
    if wrong is None:
        return
    raise source_error(
        SourceValueError,
        f"T.Parallel over {', '.join(map(str, extents))}: {wrong} is no extent",
        construct="T.Parallel",
        why="a loop has no less than 0 iterations",
        remedy="give a number of iterations; where it is a tile size, correct the config",
    )


def _check_loop_layout(extents: tuple[Any, ...], layout: Any) -> None:
    given = len(layout.shape) if isinstance(layout, Fragment) else None
    if layout is None or given == len(extents):
        return
    raise source_error(
        SourceValueError,
        f"T.Parallel over {counted(len(extents), 'axis', 'axes')} with loop_layout={layout!r}",
        construct="T.Parallel",
        remedy="give a T.Fragment with as many axes as the loop has",
    )


def Pipelined(
    start: Any,
    stop: Any = None,
    num_stages: int = 0,
    order: Sequence[int] | None = None,
    stage: Sequence[int] | None = None,
    sync: Any = None,
    group: Any = None,
    annotations: Any = None,
) -> Nest:
    """A sequential loop whose copies may run ``num_stages`` ahead; results do not depend on it."""
    num_stages = as_int(num_stages)
    if not isinstance(num_stages, int) or num_stages < 0:
        raise source_error(
            SourceValueError,
            f"num_stages={num_stages!r} is no number of stages",
            construct="T.Pipelined",
            remedy="give an integer that is known while building, 0 or more",
        )
    known_annotations("T.Pipelined", annotations)
    if isinstance(stage, int) or isinstance(order, int):
        raise source_error(
            SourceTypeError,
            f"T.Pipelined takes stage and order as lists, not {stage if isinstance(stage, int) else order}",
            construct="T.Pipelined",
            why="they have one entry for each statement of the loop",
            remedy="give the number of stages as num_stages",
        )
    nest = _counted("T.Pipelined", "pipelined", start, stop, None)
    check_lists(order, stage)
    nest.grouped = group is not None
    nest.options = {
        "num_stages": int(num_stages),
        "stage": tuple(stage) if stage is not None else None,
        "order": tuple(order) if order is not None else None,
    }
    return nest


def _counted(construct: str, kind: str, start: Any, stop: Any, step: Any) -> Nest:
    sessions.builder(construct)
    low, high = (0, start) if stop is None else (start, stop)
    given = (low, high, 1 if step is None else step)
    first, last, stride = _same_width(*(_integer(construct, value) for value in given))
    if sessions.constant(stride) == 0:
        what = f"{construct} with step 0"
        raise source_error(SourceValueError, what, construct=construct, remedy="give another step")
    return Nest(construct, kind, (first,), (last,), (stride,))


def _nest(construct: str, kind: str, extents: tuple[Any, ...], **options: Any) -> Nest:
    sessions.builder(construct)
    if not extents:
        raise source_error(
            SourceValueError,
            f"{construct} needs at least one extent",
            construct=construct,
            remedy=f"write for i in {construct}(n)",
        )
    stops = tuple(_integer(construct, extent) for extent in extents)
    zeros = tuple(_same_width(expression(0), stop)[0] for stop in stops)
    ones = tuple(_same_width(expression(1), stop)[0] for stop in stops)
    return Nest(construct, kind, zeros, stops, ones, options)


def _integer(construct: str, value: Any) -> Expr:
    value = resolve(value)
    expr = expression(value, construct) if not isinstance(value, (float, bool)) else None
    if expr is not None and str(expr.ty.dtype).lstrip("u").startswith("int"):
        return expr
    kind = f" of {value.dtype}" if isinstance(value, Value) else ""
    raise source_error(
        SourceTypeError,
        f"{construct} takes integers, not {value!r}{kind}",
        construct=construct,
        remedy=FOR_A_WHOLE if isinstance(value, float) else "cast it: T.cast(x, 'int32')",
    )


def _same_width(*exprs: Expr) -> tuple[Expr, ...]:
    """The integers in one dtype: int64 where they differ."""
    if len({str(expr.ty.dtype) for expr in exprs}) == 1:
        return exprs
    known = [sessions.constant(expr) for expr in exprs]
    return tuple(
        stored_value(Value(expr) if value is None else value, "int64")
        for expr, value in zip(exprs, known, strict=True)
    )
