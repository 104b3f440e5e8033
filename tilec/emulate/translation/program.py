"""Device TIR compiled once into Python: straight code as functions over the lanes of a group, control flow as
a list of steps (`tilec.emulate.frames`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm.ir import Call, PointerType

from tilec.backends.cuda.emit.marks import PLACE
from tilec.codegen.statements import StatementWriter
from tilec.emulate import runtime
from tilec.emulate.frames import Else, EndIf, If, Leave, LoopNext, LoopStart, LoopTest, Run, Wait
from tilec.emulate.group import Local, Program
from tilec.emulate.lanes import Spot
from tilec.emulate.state import numbers
from tilec.emulate.translation import ptx_calls
from tilec.emulate.translation.calls import Calls
from tilec.emulate.translation.expressions import Buffer, Expressions
from tilec.emulate.translation.waiting import blocks
from tilec.emulate.translation.writer import Constants, Value, Writer, size_of
from tilec.errors import Place, UnsupportedError
from tilec.ir.exprs import dtype_of, int_value

if TYPE_CHECKING:
    from tvm.ir import Expr


_THREAD = {f"threadIdx.{axis}": f"place(g, 'thread', {i})" for i, axis in enumerate("xyz")}
_GRID = {f"blockIdx.{axis}": i for i, axis in enumerate("xyz")}


class _Labels:
    """Ends of the branches and loops around a statement, to be filled in."""

    def __init__(self) -> None:
        self.open: list[list[Any]] = []

    def leave(self, place: int) -> None:
        """Everything that waits for this end gets it."""
        for step, name in self.open.pop():
            setattr(step, name, place)


@dataclass(eq=False)
class _Compiler(StatementWriter):
    """Compiles one function."""

    constants: Constants = field(default_factory=Constants)
    steps: list[Any] = field(default_factory=list)
    sites: list[Any] = field(default_factory=list)
    locals: list[Local] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    #: Functions of the source, the places of their steps, and what makes the step, or a field of it.
    bodies: list[tuple[int, str, type | str]] = field(default_factory=list)
    labels: _Labels = field(default_factory=_Labels)
    slots: int = 0
    shared_bytes: int = 0
    writer: Writer = field(default_factory=Writer)
    place: Place | None = None

    def __post_init__(self) -> None:
        self.expressions = Expressions(self.constants, self._call)
        self.expressions.writer = self.writer

    # ---- functions of the source ----

    def _function(self, writer: Writer, result: str = "") -> str:
        name = f"s{len(self.lines)}"
        body = [*writer.lines, *([f"    return {result}"] if result else [])] or ["    pass"]
        self.lines += [f"def {name}(g, m):", "    c = g.inv; E = g.env; L = g.local; T = g.taint", *body]
        return name

    def flush(self) -> None:
        """The straight code so far becomes a step."""
        if self.writer.lines:
            self._step(Run, self._function(self.writer))
        self._renew()

    def _renew(self) -> None:
        self.writer = Writer()
        self.expressions.writer = self.writer

    def _step(self, kind: type, function: str) -> None:
        self.bodies.append((len(self.steps), function, kind))
        self.steps.append(None)

    def _code(self, expr: Expr) -> str:
        """The name of a function that computes ``expr``."""
        self.flush()
        self.writer.line(self._head(expr))
        result = self.expressions.value(expr).code
        name = self._function(self.writer, result)
        self._renew()
        return name

    def _head(self, stmt: Any) -> str:
        """What stands before the code of a statement."""
        self.sites.append((stmt, self.place))
        return f"g.at = {len(self.sites) - 1}; T.lanes = None"

    # ---- statements ----

    def _refused(self, stmt: Any) -> UnsupportedError:
        return UnsupportedError(f"the emulator has no {type(stmt).__name__}", why=str(stmt)[:200])

    def _axis(self, node: Any, extent: Any) -> None:
        tag = str(node.thread_tag)
        constant = self.expressions.constant
        if tag in _THREAD:
            constant[node.var] = self.expressions.invariant(_THREAD[tag])
        elif tag in _GRID:
            constant[node.var] = self.expressions.invariant(f"g.block.index[{_GRID[tag]}]")
            if hasattr(extent, "name") and extent not in self.expressions.bound:
                constant.setdefault(extent, self.expressions.invariant(f"g.block.grid[{_GRID[tag]}]"))
        else:
            raise UnsupportedError(f"the emulator has no thread axis {tag}")

    def _bind(self, stmt: Any) -> None:
        value = stmt.value
        expressions = self.expressions
        if isinstance(getattr(stmt.var, "ty", None), PointerType):
            expressions.bound[stmt.var] = expressions.operand(value)  # type: ignore[assignment]
            return
        if expressions.is_invariant(value):
            expressions.constant[stmt.var] = expressions.value(value).code
            return
        self.writer.line(self._head(stmt))
        made = expressions.value(value)
        self._end_of_helper()
        slot = self._slot()
        self.writer.line(f"E[{slot}] = {made.code}")
        expressions.bound[stmt.var] = Value(f"E[{slot}]", made.dtype)
        if not expressions.has_data(value):
            expressions.places.add(stmt.var)

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _call(self, call: Call, writer: Writer) -> Value | None:
        """The code of a call of the device's."""
        return Calls(self.constants, self.expressions, writer).write(call)

    def _end_of_helper(self) -> None:
        if self.writer.waits:
            raise UnsupportedError("the emulator has no value of a helper that waits")

    def _store(self, stmt: Any) -> None:
        (index,) = stmt.indices
        writer, expressions = self.writer, self.expressions
        writer.line(self._head(stmt))
        value = expressions.value(stmt.value)
        buffer = expressions.buffer(stmt.buffer)
        place = expressions.place(buffer, expressions.value(index).code)
        self._end_of_helper()
        if buffer.space == "local":
            writer.line(f"{buffer.base}.write({place}, {value.code}, m)")
            return
        writer.line(f"g.store(m, {buffer.base}, {place}, {value.code}, {buffer.dtype!r})")

    def _evaluate(self, stmt: Any) -> None:
        value = stmt.value
        if not isinstance(value, Call):
            return
        name = str(getattr(value.op, "name", value.op))
        if name == "tirx.call_extern" and str(value.args[0].value) == PLACE:
            self.place = Place(str(value.args[1].value), int(value.args[2].value))
            return
        if name in ("tirx.break_loop", "tirx.continue_loop"):
            self._leave(name == "tirx.break_loop")
            return
        held = self.writer
        writer = Writer(names=held.names)
        self.writer = self.expressions.writer = writer
        writer.line(self._head(stmt))
        is_helper = name.startswith(("tirx.cuda.", ptx_calls.PREFIX))
        made = self._call(value, writer) if is_helper else self.expressions.operand(value)
        if isinstance(made, Value) and "(" in made.code:
            writer.line(made.code)
        self.writer = self.expressions.writer = held
        if writer.waits:
            self.flush()
            self._step(Wait, self._function(writer))
        else:
            self.writer.lines += writer.lines

    def _allocate(self, stmt: Any) -> None:
        buffer = stmt.buffer
        scope, dtype = str(buffer.scope()), str(buffer.dtype)
        size = 1
        for extent in buffer.shape:
            size *= int_value(extent) or 0
        if scope.startswith("shared"):
            align = int(buffer.data_alignment) if hasattr(buffer, "data_alignment") else 128
            start = -(-self.shared_bytes // align) * align
            self.shared_bytes = start + size * size_of(dtype)
            self.expressions.buffers[buffer] = Buffer("shared", "g.block.shared", str(start), dtype)
            return
        slot = len(self.locals)
        self.locals.append(Local(str(buffer.name), size, dtype))
        self.expressions.buffers[buffer] = Buffer("local", f"L[{slot}]", "0", dtype)
        self.writer.line(self._head(stmt))
        self.writer.line(f"L[{slot}].forget()")

    def _declare(self, stmt: Any) -> None:
        expressions = self.expressions
        pointer = expressions.pointer(stmt.data)
        start = pointer.offset
        if pointer.space == "local":
            start = f"E[{self._slot()}]"
            self.writer.line(f"{start} = {pointer.offset}")
        dtype = str(stmt.buffer.dtype)
        expressions.buffers[stmt.buffer] = Buffer(pointer.space, pointer.base, start, dtype)

    # ---- control ----

    def _branch(self, stmt: Any) -> None:
        cond = self._code(stmt.condition)
        head = If(lambda g, m: None, blocks(stmt))
        self._control(head, cond, "cond")
        self.labels.open.append([])
        self.stmt(stmt.then_case)
        self.flush()
        middle = Else()
        self.labels.leave(len(self.steps))
        head.orelse = len(self.steps)
        self.steps.append(middle)
        self.labels.open.append([])
        if stmt.else_case is not None:
            self.stmt(stmt.else_case)
            self.flush()
        self.labels.leave(len(self.steps))
        middle.end = len(self.steps)
        end = EndIf()
        self.steps.append(end)
        self._ends(end)

    def _ends(self, step: Any) -> None:
        """``step.after`` is the next end around."""
        if self.labels.open:
            self.labels.open[-1].append((step, "after"))

    def _control(self, step: Any, function: str, name: str) -> None:
        self.bodies.append((len(self.steps), function, name))
        self.steps.append(step)

    def _for(self, stmt: Any) -> None:
        low, count = self._code(stmt.min), self._code(stmt.extent)
        start = LoopStart(lambda g, m: 0, lambda g, m: 0)
        self.bodies.append((len(self.steps), low, "low"))
        self._control(start, count, "count")
        slot = self._slot()
        self.expressions.bound[stmt.loop_var] = Value(f"E[{slot}]", dtype_of(stmt.loop_var))
        self.expressions.places.add(stmt.loop_var)
        self._loop(LoopTest(slot, None, blocks(stmt)), None, stmt.body)

    def _while(self, stmt: Any) -> None:
        self.flush()
        self.steps.append(LoopStart(None, None))
        cond = self._code(stmt.condition)
        self._loop(LoopTest(0, lambda g, m: None, blocks(stmt)), cond, stmt.body)

    def _loop(self, test: LoopTest, cond: str | None, body: Any) -> None:
        place = len(self.steps)
        if cond is None:
            self.steps.append(test)
        else:
            self._control(test, cond, "cond")
        self.labels.open.append([])
        self.stmt(body)
        self.flush()
        self.labels.leave(len(self.steps))
        self.steps.append(LoopNext(place))
        test.end = len(self.steps)

    def _leave(self, breaks: bool) -> None:
        self.flush()
        step = Leave(breaks)
        self.steps.append(step)
        self._ends(step)


def compile_function(func: Any, name: str) -> Program:
    """The program of a device function. UnsupportedError for what the emulator does not know."""
    compiler = _Compiler()
    params = tuple(_parameter(compiler, param, position) for position, param in enumerate(func.params))
    compiler.stmt(func.body)
    compiler.flush()
    invariants = compiler.expressions.invariants
    head = [f"    I[{slot}] = attempt(lambda c=I: {code})" for slot, code in enumerate(invariants)]
    compiler.lines += ["def invariants(g):", f"    I = [None] * {len(invariants)}", *head, "    return I"]
    source = "\n".join(compiler.lines)
    known = {**vars(numbers), **vars(runtime), "Spot": Spot, "np": np}
    names: dict[str, Any] = {**known, "K": compiler.constants.values}
    exec(compile(source, f"<emulated {name}>", "exec"), names)
    for place, function, kind in compiler.bodies:
        if isinstance(kind, str):
            setattr(compiler.steps[place], kind, names[function])
        else:
            compiler.steps[place] = kind(names[function])
    return Program(
        name, compiler.steps, compiler.sites, compiler.locals, compiler.slots, names["invariants"],
        compiler.shared_bytes, params, source,
    )  # fmt: skip


def _parameter(compiler: _Compiler, param: Any, position: int) -> str:
    expressions = compiler.expressions
    kind = param.ty
    if isinstance(kind, PointerType):
        element = getattr(kind, "element_type", None)
        if element is None or "ensor" in type(element).__name__ or "ensor" in str(kind):
            expressions.maps[param] = f"g.block.state['args'][{position}]"
            return "map"
        dtype = str(element.dtype)
        base = f"g.block.state['args'][{position}]"
        expressions.buffers[param] = Buffer("global", base, "0", dtype)
        return "pointer"
    if "ensor" in str(kind):
        expressions.maps[param] = f"g.block.state['args'][{position}]"
        return "map"
    expressions.constant[param] = expressions.invariant(f"g.block.state['args'][{position}]")
    return "value"
