"""The builder: nested regions that collect statements while a kernel body runs as Python."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilec.errors import Place, Remark, SourceRuntimeError
from tilec.ir import nodes as ir
from tilec.language.values.functions.whole_numbers import WholeNumbers
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, source_error
from tilec.language.values.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tvm.ir import Expr, Var

    from tilec.ir.analysis.numbers.long_names import LongNames

#: Regions that a runtime `break` or `continue` may leave or go on with.
LOOPS = ("serial", "unroll", "vectorized", "pipelined", "while", "parallel")


class Frame:
    """One region of the program: its statements so far, and whether names made in it are alive.

    ``kind``: "function", "kernel", "if", "python" (a loop expanded while building) or one of `LOOPS`.
    ``launch`` is the `T.Kernel` of a "kernel", ``combiner`` combines values of threads; ``is_left``:
    whether a ``break`` leaves this loop, ``has_jump``: a ``break`` or a ``continue``. ``trips``: how often
    its statements run for one run of what is around (None where that is not known); ``nest`` is the loop of a
    "parallel" region, ``ahead`` adds statements in front of it once its body is known."""

    def __init__(self, kind: str, parent: Frame | None, loc: ir.Loc) -> None:
        self.kind = kind
        self.parent = parent
        self.stmts: list[ir.Stmt] = []
        self.schedule: dict[str, Any] = {}
        self.roads: list[Any] = []
        self.launch: Any = None
        self.combiner: Any = None
        self.open = True
        self.ended = False
        self.is_left = self.has_jump = False
        self.trips: int | None = None if kind in LOOPS else 1
        self.nest: Any = None
        self.ahead: list[Callable[[], None]] = []
        self.loc = loc

    def encloses(self, other: Frame | None) -> bool:
        """Whether ``other`` is this region or lies inside it."""
        while other is not None and other is not self:
            other = other.parent
        return other is self


class Builder:
    """Collects the body of the kernel that stands at ``loc``. ``frames`` runs from the function to the
    innermost region; ``open_ifs`` are the `T.If` blocks around it, ``unnamed`` the variables that the
    statements under way made, or names are given for, and that have none yet. ``remarks`` takes what the
    author is to be told, ``whole_numbers`` knows names of floats without a fraction."""

    def __init__(self, loc: ir.Loc, remarks: list[Remark]) -> None:
        self.frames: list[Frame] = [Frame("function", None, loc)]
        self.outputs: list[Any] = []
        self.pointed: list[Any] = []
        self.emitted = 0
        self.wished: list[str] = []
        self.unnamed: list[Any] = []
        self.open_ifs: list[Any] = []
        self.generators: list[Any] = []
        self._remarks = remarks
        self.whole_numbers = WholeNumbers()

    @property
    def top(self) -> Frame:
        """The innermost region."""
        return self.frames[-1]

    @property
    def kernel(self) -> Frame | None:
        """The `T.Kernel` region, None on host level."""
        return next((frame for frame in self.frames if frame.kind == "kernel"), None)

    @property
    def is_in_parallel(self) -> bool:
        """Whether a statement added now is part of an iteration of T.Parallel."""
        return any(frame.kind == "parallel" for frame in self.frames)

    def is_per_thread(self) -> bool:
        """Whether a statement added now runs on every one of several threads (it is in no T.Parallel)."""
        kernel = self.kernel
        several = kernel is not None and kernel.launch.threads != (1, 1, 1)
        return several and not self.is_in_parallel

    def run_per_thread(self) -> None:
        """From now on the launch has statements whose effect is that of each of its threads."""
        kernel = self.kernel
        if kernel is not None:
            kernel.launch.thread_indices()

    def push(self, kind: str) -> Frame:
        """Open a region."""
        frame = Frame(kind, self.top, loc())
        self.frames.append(frame)
        return frame

    def pop(self, frame: Frame) -> ir.Block:
        """Close the innermost region, which must be ``frame``; its statements."""
        assert self.frames[-1] is frame, "regions close in the order they were opened in"
        self.frames.pop()
        frame.open = False
        return tuple(frame.stmts)

    def pop_function(self) -> ir.Block:
        """Close the whole function; the kernel's body."""
        return self.pop(self.frames[0])

    @contextmanager
    def at_start(self, frame: Frame) -> Iterator[None]:
        """In the block, statements go in front of those that ``frame`` has so far."""
        inner, later = self.frames, frame.stmts
        self.frames, frame.stmts = inner[: inner.index(frame) + 1], []
        try:
            yield
        finally:
            self.frames = inner
            frame.stmts.extend(later)

    def emit(self, stmt: ir.Stmt, construct: str) -> None:
        """Add a statement to the innermost region, which must lie in a `T.Kernel` block."""
        if self.kernel is None:
            raise source_error(
                SourceRuntimeError,
                f"{construct} stands outside a T.Kernel block",
                construct=construct,
                remedy="move it under `with T.Kernel(...)`",
            )
        self._add(stmt)

    def _add(self, stmt: ir.Stmt) -> None:
        self.emitted += 1
        target = self._statements()
        if target.ended:
            self.warn_once("statements after break or continue are ignored")
        else:
            target.stmts.append(stmt)

    def _statements(self) -> Frame:
        """The region that statements go to: Python-expanded loops open none."""
        return next(frame for frame in reversed(self.frames) if frame.kind != "python")

    def warn_once(self, what: str, place: ir.Loc | None = None) -> None:
        """Warn, with the author's line (the one that runs, unless ``place`` names another), the first time
        that ``what`` happens in this kernel."""
        if all(each.what != what for each in self._remarks):
            place = place or loc()
            self._remarks.append(Remark(what, Place(place.file, place.line)))

    def end_region(self, stmt: ir.Stmt, construct: str) -> None:
        """Add a `Break` or `Continue`: what follows it in its region is dead."""
        self.emit(stmt, construct)
        self._statements().ended = True

    def launch(self, stmt: ir.Launch) -> None:
        """Add a launch on host level."""
        self._add(stmt)

    def alloc_global(self, stmt: ir.Alloc) -> None:
        """Add workspace: one allocation of the whole call, wherever the statement stands."""
        self.emitted += 1
        self.frames[0].stmts.append(stmt)

    def region(self) -> Frame:
        """The region that a name made now belongs to."""
        return self._statements()

    def bind(self, name: str, value: Value) -> Value:
        """Evaluate ``value`` here, once, under an immutable name. On host level values stay expressions."""
        from tvm import tirx

        expr = value.expr
        if self.kernel is None:
            return value
        var = tirx.Var(name, str(expr.ty.dtype))
        self.emit(ir.Bind(var, expr, loc=loc()), f"name {name}")
        self._learn(var, expr)
        self.whole_numbers.name(var, expr)
        return Value(var, frame=self.region())

    @cached_property
    def _long_names(self) -> LongNames:
        from tilec.ir.analysis.numbers.long_names import LongNames

        return LongNames()

    def _learn(self, var: Var, expr: Expr) -> None:
        """Integer names over indices alone are transparent to the analyzer, unless they are long; loads are
        not: memory changes."""
        if str(expr.ty.dtype) not in ("int32", "int64") or not is_index_arithmetic(expr):
            return
        if not self._long_names.has(var, expr):
            sessions.current("a name").analyzer.bind(var, expr)

    def wish(self, default: str) -> str:
        """A name for what is being made: the assignment's target if it has one left."""
        return self.wished.pop(0) if self.wished else default


def is_index_arithmetic(expr: Expr) -> bool:
    """Whether an expression is made of variables, integers and arithmetic alone (no loads, no calls)."""
    from tvm import tirx
    from tvm.ir import Var

    if isinstance(expr, (Var, tirx.IntImm)):
        return True
    pairs = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)
    return isinstance(expr, pairs) and is_index_arithmetic(expr.a) and is_index_arithmetic(expr.b)


def is_variable(expr: Expr) -> bool:
    """Whether an expression is a scalar variable or a constant: naming it needs no statement."""
    from tvm import tirx
    from tvm.ir import Var

    return isinstance(expr, (Var, tirx.IntImm, tirx.FloatImm))
