"""What rewritten kernel code calls: names, branches, loops and operators of one function's run.

`rewrite` turns the author's function into Python that routes these through an `Activation`. Python values
keep Python's meaning; expressions become statements of the builder.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilec.errors import SourceRuntimeError, SourceTypeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.language.control.bindings import Bindings, Sides
from tilec.language.control.branches import Branch, conjunction, ternary
from tilec.language.control.jumps import jump
from tilec.language.control.lets import Let
from tilec.language.control.loops import Nest, serial
from tilec.language.control.objects import Objects
from tilec.language.control.while_loops import WhileLoop, enter
from tilec.language.frontend.rewriting.kept_values import evaluated
from tilec.language.frontend.rewriting.rewrite import OF_SLICES
from tilec.language.frontend.rewriting.written_operators import compare, updated
from tilec.language.threads.debugging import device_assert
from tilec.language.threads.launches import BlockIndex, Kernel
from tilec.language.tiles.memory.buffers import Buffer, Element, ShapeParams, Slice
from tilec.language.values.conversions import condition
from tilec.language.values.kernel.builder import Builder, Frame, is_variable
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.scalars import dtype
from tilec.language.values.value import Loaded, Value, Vector, Word, check_alive, is_number, resolve
from tilec.spelling import counted


class Loop:
    """One ``for`` of the author: a runtime loop (its body runs once here) or a Python loop (expanded, over
    what ``named`` makes of each item)."""

    def __init__(self, builder: Builder, subject: Nest | Iterable[Any], named: Callable[[Any], Any]) -> None:
        self._builder = builder
        self._named = named
        self._subject = subject
        self._frame: Frame | None = None

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._subject, Nest):
            yield self._subject.open()
        else:
            self._frame = self._builder.push("python")
            yield from map(self._named, self._subject)

    def close(self) -> None:
        """The loop is over, by its end or by a Python ``break``."""
        if isinstance(self._subject, Nest):
            self._subject.close()
        elif self._frame is not None:
            self._builder.pop(self._frame)


class Activation:
    """One run of a rewritten function. ``around`` are the values of the names in its text that are not its
    own; ``annotate`` declares an eager kernel's parameters."""

    def __init__(
        self,
        builder: Builder,
        around: Mapping[str, Any],
        annotate: Callable[[str, Any], Any] | None = None,
    ) -> None:
        self._builder = builder
        self._annotate = annotate
        self._names = Bindings(builder)
        self._objects = Objects(builder, self._kept)
        for name, value in around.items():
            self._objects.meet(name, value, builder.frames[0])
        self._base = builder.region()
        self._first = len(builder.unnamed)
        self._whiles: list[tuple[WhileLoop, tuple[str, ...]]] = []

    # Names ------------------------------------------------------------------------------------------------

    def wish(self, *names: str) -> Activation:
        """Announce the targets of the assignment whose right side is evaluated next."""
        self._builder.wished = list(names)
        return self

    def bind(self, name: str, value: Any) -> Any:
        """``name = value``: a store into a variable, a new immutable name, or an alias."""
        self._builder.wished = []
        value = resolve(value)
        held = self._names.value(name)
        if _is_reference(held) and _is_storable(value):
            held.store(value)
            return held
        if isinstance(held, Buffer) and is_number(value):
            self._builder.warn_once(
                f"{name} = {value} stores nothing: {name} is that number from here on, no buffer any more; "
                f"T.fill({name}, {value}) stores it"
            )
        return self._held(name, self._kept(self.once(value, name), name))

    def _kept(self, value: Any, name: str, before: tuple[Any, ...] = ()) -> Any:
        """A Python object with what it keeps evaluated, beside what it has held before; other values as they
        are."""
        return value if self._builder.kernel is None else evaluated(value, name, self.once, before)

    def once(self, value: Any, name: str = "t") -> Any:
        """The value evaluated here: expressions become immutable names, everything else is itself."""
        if isinstance(value, Element) and value.fresh:
            value.fresh = False
            return value
        if isinstance(value, Vector):
            lanes = tuple(self.once(lane, f"{name}_{i}") for i, lane in enumerate(value.lanes))
            return Loaded(lanes, value.kind) if isinstance(value, Loaded) else Vector(lanes)
        if isinstance(value, Slice):
            return self._read_bounds(value, name)
        if not isinstance(value, Value) or is_variable(value.expr):
            return value
        made = self._builder.bind(name, value)
        return Word(made, value.kind) if isinstance(value, Word) else made

    def _read_bounds(self, region: Slice, name: str) -> Slice:
        """A slice whose bounds are read here, where memory tells them."""
        from tilec.ir.exprs import loads

        def read(bound: Any) -> Any:
            known = isinstance(bound, int) or next(loads(bound), None) is None
            return bound if known else self._builder.bind(name, Value(bound)).expr

        starts, extents = tuple(map(read, region.starts)), tuple(map(read, region.extents))
        same = all(map(operator.is_, (*starts, *extents), (*region.starts, *region.extents)))
        return region if same else replace(region, starts=starts, extents=extents)

    def given(self, name: str, value: Any) -> Any:
        """A parameter of the function."""
        return self._held(name, value)

    def _held(self, name: str, value: Any) -> Any:
        self._objects.meet(name, value, self._builder.region())
        return self._names.hold(name, value)

    def settle(self) -> None:
        """A statement is over. The variables that it made and did not name (in a list) stay what they are:
        a name that is given one later is given its value."""
        self._objects.settle()
        for variable in self._builder.unnamed[self._first :]:
            variable.fresh = False
        del self._builder.unnamed[self._first :]

    def _named_anew(self, value: Any) -> Any:
        """``value``, of which the next names are those of the variables in it."""
        if isinstance(value, (tuple, list)):
            for item in value:
                self._named_anew(item)
        elif _is_reference(value):
            value.fresh = True
            self._builder.unnamed.append(value)
        return value

    def forget(self, *names: str) -> None:
        """``del``: the names hold nothing any more."""
        self._names.forget(names)

    def load(self, name: str, value: Any) -> Any:
        """A read of a local name."""
        if isinstance(value, (Value, Buffer)):
            check_alive(value.frame, name)
        return self._names.read(name, value)

    def unpack(self, value: Any, *names: str) -> tuple[Any, ...]:
        """The right side of ``a, b = x, y``: every expression evaluated before the first target is assigned.
        There is one name per target, for elements the buffer's."""
        items = self._items(value, names)
        return tuple(
            self._snapshot(name, item, names[:place] if name.endswith(OF_SLICES) else ())
            for place, (name, item) in enumerate(zip(names, items, strict=True))
        )

    def unpack_object(self, value: Any, *names: str) -> tuple[Any, ...]:
        """The right side of ``a, b = pair``: the names of variables in it are names of theirs."""
        return tuple(map(self._snapshot, names, self._named_anew(self._items(value, names))))

    def _items(self, value: Any, names: Sequence[str]) -> tuple[Any, ...]:
        if isinstance(value, BlockIndex) and len(names) == 1:
            return (value,)
        if isinstance(value, (Value, Buffer, Slice)):
            raise source_error(
                SourceTypeError,
                f"{value!r} cannot be unpacked into {', '.join(names)}",
                why="it is one value",
                remedy="give as many values as names: T.Parallel(8, 4) has two indices",
            )
        items = tuple(value)
        if isinstance(value, ShapeParams):
            self._check_sizes(names, items)
        if len(items) != len(names):
            raise source_error(
                SourceValueError,
                f"{counted(len(items), 'value')} cannot be unpacked into {', '.join(names)}",
                remedy="give as many values as names: T.Parallel(8, 4) has two indices",
            )
        return items

    def _check_sizes(self, names: Sequence[str], items: Sequence[Any]) -> None:
        """A size unpacked into a name that holds a number is that number."""
        for name, item in zip(names, items, strict=False):
            held = self._names.value(name)
            if name != "_" and isinstance(held, int) and isinstance(item, int) and held != item:
                raise source_error(
                    SourceValueError,
                    f"{name} is {int(held)}, and {int(item)} here",
                    construct=name,
                    why="a size that is unpacked into a name which holds one has to be equal to it",
                    remedy="pass tensors whose shapes agree, or unpack into another name",
                )

    def augment(self, name: str, value: Any, symbol: str, operand: Any) -> Any:
        """``name symbol= operand``."""
        value, operand = resolve(value), resolve(operand)
        if isinstance(value, Buffer):
            raise source_error(
                SourceRuntimeError,
                f"{name} {symbol}= on a whole buffer",
                remedy=f"use {name}[0] {symbol}= ...",
            )
        return self.bind(name, updated(symbol, value, operand))

    def store(self, container: Any, index: Any, value: Any) -> None:
        """``container[index] = value``: an element, or a slot of a Python container, where a variable is
        stored to and expressions are evaluated."""
        if isinstance(container, Buffer):
            container[index] = resolve(value)
            return
        held = _slot(container, index)
        if _is_reference(held) and _is_storable(resolve(value)):
            held.store(value)
        else:
            container[index] = self.once(resolve(value))

    def set_attribute(self, owner: Any, name: str, value: Any) -> None:
        """``owner.name = value`` of a T.meta_class: a variable is stored to, expressions are evaluated."""
        held: Any = getattr(owner, name, None)
        value = resolve(value)
        if _is_reference(held) and _is_storable(value):
            held.store(value)
        else:
            setattr(owner, name, self.once(value, name))

    def combined(self, value: Any, symbol: str, operand: Any) -> Any:
        """What an attribute holds after ``symbol= operand``."""
        return updated(symbol, resolve(value), resolve(operand))

    def augment_item(self, container: Any, index: Any, symbol: str, operand: Any) -> None:
        """``container[index] symbol= operand``."""
        value, operand = container[index], resolve(operand)
        made = updated(symbol, value, operand)
        if isinstance(value, Value) or isinstance(operand, Value):
            self.store(container, index, made)
        else:
            container[index] = made

    def slice(self, start: Any, stop: Any, step: Any) -> builtins.slice:
        """``start:stop:step`` of an index that is assigned to."""
        return builtins.slice(start, stop, step)

    def annotate(self, name: str, kind: Any) -> Any:
        """``name: kind`` in the body of an eager kernel declares a parameter."""
        if self._annotate is None:
            return self._names.value(name)
        return self._names.hold(name, self._annotate(name, kind))

    def typed(self, value: Any, annotation: Callable[[], Any]) -> Any:
        """The right side of ``name: kind = value``: an annotation other than T.let has no effect."""
        try:
            kind = annotation()
        except NameError:  # Python never evaluates it either
            return value
        if isinstance(kind, Let):
            return kind.of(value)
        if isinstance(kind, dtype) and (not isinstance(value, Value) or value.dtype != kind):
            self._builder.warn_once(f"an annotation with T.{kind} does not cast; use T.cast or T.alloc_var")
        return value

    def _snapshot(self, name: str, item: Any, before: Sequence[str] = ()) -> Any:
        """A value that the stores to other targets may change has a name of its own, a part of a buffer where
        targets ``before`` are parts of it, too."""
        from tilec.ir.exprs import loads

        name = name.removesuffix(OF_SLICES)
        if isinstance(item, Slice) and item.buffer.name + OF_SLICES in before:
            item = item.vector()
        if isinstance(item, Vector):
            return self.once(item, name)
        if self._builder.kernel is None or not isinstance(item, Value):
            return item
        if isinstance(item, Element):
            return item if item.fresh else self._builder.bind(name, item)
        return item if next(loads(item.expr), None) is None else self.once(item, name)

    # Branches ---------------------------------------------------------------------------------------------

    def branch(self, cond: Any) -> Branch:
        """An ``if``."""
        return Branch(self._builder, resolve(cond))

    def sides(self, *names: str) -> Sides:
        """Names in front of an ``if`` whose first side assigns them and whose other side mentions them."""
        return self._names.sides(names)

    def ternary(self, cond: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
        """``then if cond else orelse``."""
        return ternary(self._builder, resolve(cond), then, orelse)

    def logical(self, symbol: str, first: Any, *rest: Callable[[], Any]) -> Any:
        """``a and b and ...``, ``a or b or ...``."""
        return conjunction(self._builder, symbol, first, rest)

    def negation(self, value: Any) -> Any:
        """``not value``."""
        from tvm import tirx

        value = resolve(value)
        return Value(tirx.Not(condition(value, "not"))) if isinstance(value, Value) else not value

    def compare(self, left: Any, *links: tuple[str, Callable[[], Any]]) -> Any:
        """``a < b < c``: every operand once, Python's short-circuit for Python values."""
        if len(links) == 1:
            symbol, operand = links[0]
            return resolve(compare(symbol, left, operand()))
        result: Any = True
        for symbol, operand in links:
            right = operand()
            step = compare(symbol, left, right)
            result = conjunction(self._builder, "and", result, (lambda s=step: s,))  # type: ignore[misc]
            if not isinstance(result, Value) and not result:
                return result
            left = right
        return result

    def check(self, cond: Any, message: Callable[[], Any] | None = None) -> bool:
        """An ``assert``: whether Python's own is to fail; one on an expression becomes a statement."""
        cond = resolve(cond)
        if not isinstance(cond, Value):
            return not cond
        device_assert(cond, "" if message is None else str(message()))
        return False

    def left(self, value: Any) -> None:
        """A statement that is a value and no call."""
        if isinstance(value, Value):
            self._builder.warn_once("a value is computed and not used: store it with =, or leave it out")
        else:
            _check_called(value, "the statement does nothing")

    def shown(self, function: Any, value: Any) -> Any:
        """What a ``print`` is given: Python's prints while the kernel is built."""
        runs = self._builder.kernel is not None and isinstance(resolve(value), (Value, Buffer))
        if runs and function is builtins.print:
            self._builder.warn_once(
                "print writes an expression, once and while the kernel is built: "
                "T.print writes its value when the kernel runs"
            )
        return value

    def matched(self, subject: Any) -> Any:
        """The subject of a ``match`` with numbers or texts among its patterns."""
        if isinstance(resolve(subject), Value):
            raise unsupported(
                "match on an expression", remedy="write if and elif, which are runtime branches"
            )
        return subject

    # Loops ------------------------------------------------------------------------------------------------

    def callee(self, function: Any) -> Any:
        """The function that makes a loop's iterable: ``range`` is `T.serial` in kernels."""
        return serial if function is builtins.range else function

    def loop(self, subject: Any, *names: str) -> Loop:
        """A ``for``."""
        subject = resolve(subject)
        if isinstance(subject, Nest):
            subject.names = names
        elif not hasattr(type(subject), "__iter__"):
            _check_called(subject, "a loop runs over what it gives")
        return Loop(self._builder, subject, self._named_anew)

    def open_while(self) -> Frame:
        """The region of a ``while``, opened before its condition is evaluated."""
        return self._builder.push("while")

    def enter_while(self, frame: Frame, cond: Any, *names: str) -> bool:
        """Go on with a ``while`` whose region is open; False if its condition is False while building."""
        loop = enter(self._builder, frame, resolve(cond))
        if loop is None:
            return False
        self._whiles.append((loop, names))
        return True

    def leave_while(self) -> None:
        """Close the innermost ``while``."""
        loop, names = self._whiles.pop()
        loop.close()
        for name in names:
            self._names.check_unchanged(name, loop.frame)
        loop.check_ends()

    def leave(self) -> bool:
        """``break``: True if Python has to leave its loop, False if a statement was added."""
        return jump(self._builder, "break", ir.Break)

    def proceed(self) -> bool:
        """``continue``: as `leave`."""
        return jump(self._builder, "continue", ir.Continue)

    # Other statements -------------------------------------------------------------------------------------

    def context(self, manager: Any, *names: str) -> Any:
        """The subject of a ``with``."""
        if isinstance(manager, Kernel):
            manager.names = names
        elif not hasattr(type(manager), "__enter__"):
            _check_called(manager, "a with block enters what it gives")
        return manager

    def returned(self, value: Any = None) -> Any:
        """``return value``: only at the end of the function, outside runtime regions."""
        if self._builder.region() is not self._base:
            remedy = "use an if around the rest of the block, or T.thread_return()"
            if value is not None:
                remedy = "return behind the block, as far to the left as `with T.Kernel` stands"
            raise unsupported("return inside a runtime region", remedy=remedy)
        return value


def _is_reference(value: Any) -> bool:
    return isinstance(value, Element) and value.reference


def _slot(container: Any, index: Any) -> Any:
    """What a list or dict holds at an index, None if nothing."""
    try:
        return container[index] if isinstance(container, (list, dict)) else None
    except LookupError:
        return None


def _is_storable(value: Any) -> bool:
    """Whether assigning ``value`` to a variable's name stores it; a new variable takes the name over."""
    return is_number(value) or (isinstance(value, Value) and not (isinstance(value, Element) and value.fresh))


def _check_called(value: Any, why: str) -> None:
    """Refuses a function, a macro or a class in the place of what a call of it gives."""
    if callable(value) and hasattr(value, "__name__"):
        raise source_error(
            SourceTypeError,
            f"{value.__name__} is named and not called",
            why=why,
            remedy="put brackets behind it, with its arguments",
        )
