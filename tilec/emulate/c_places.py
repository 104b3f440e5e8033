"""Variables and memory of device helpers: places that C names, read and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tilec.emulate.c_syntax import SCALARS, VECTORS, CType, Function, Node
from tilec.emulate.writer import Constants, Operand, Pointer, Value, Vector, Writer, size_of
from tilec.errors import UnsupportedError

#: Components of vectors.
FIELDS = {"x": 0, "y": 1, "z": 2, "w": 3}


@dataclass
class Variable:
    """A variable of a helper: the Python name that holds it, or what a parameter stands for. ``origin`` is
    the register that a parameter's value was read from, where it is one."""

    name: str
    dtype: str
    lanes: int = 1
    value: Operand | None = None
    elements: int = 0
    origin: Pointer | None = None


@dataclass(eq=False)
class HelperPlaces:
    """Where the variables of one call of ``function`` are, and what is read and written through pointers.

    Source goes to ``writer``; ``math`` writes functions of the C library."""

    function: Function
    others: dict[str, Function]
    writer: Writer
    constants: Constants
    math: Callable[[str, list[Value]], Value]
    variables: dict[str, Variable] = field(default_factory=dict)
    result: Operand | None = None
    _masked: bool = False

    def rvalue(self, node: Node) -> Operand:
        """The value of an expression."""
        raise NotImplementedError

    def _unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"the emulator has no {what}",
            why=f"in the helper {self.function.name}",
            remedy="write the helper without it, or add it to tilec/emulate",
        )

    def _scalar(self, node: Node) -> Value:
        made = self.rvalue(node)
        if not isinstance(made, Value):
            raise self._unsupported(f"scalar value of a {node.kind}")
        return made

    def _constant(self, node: Node) -> int:
        return int(self._scalar(node).code)

    def _converted(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        return Value(f"cast({value.code}, {value.dtype!r}, {dtype!r})", dtype)

    def _pointer(self, node: Node) -> Pointer:
        made = self.rvalue(node)
        if not isinstance(made, Pointer):
            raise self._unsupported("pointer made of a number")
        return made

    def _is_reference(self, text: str) -> bool:
        return any(kind.reference and name == text for kind, name in self.function.params)

    def _vector_code(self, value: Operand | None, lanes: int) -> str:
        if value is None:
            return f"[None] * {lanes}"
        if not isinstance(value, Vector):
            raise self._unsupported("conversion to a vector")
        return f"[{', '.join(part.code for part in value.parts)}]"

    # ---- places ----

    def _lvalue(self, node: Node) -> Any:
        """Where an expression is stored: a Pointer, or a variable."""
        if node.kind == "name":
            found = self.variables.get(str(node.args[0]))
            if (
                found is not None
                and isinstance(found.value, Pointer)
                and self._is_reference(str(node.args[0]))
            ):
                return found.value
            if found is not None and found.value is not None:
                held = Variable(self.writer.name("v"), found.dtype, found.lanes)
                value = found.value
                code = value.code if isinstance(value, Value) else self._vector_code(value, found.lanes)
                self.writer.line(f"{held.name} = {code}")
                self.variables[str(node.args[0])] = held
                return held
            if found is not None:
                return found
        if node.kind == "index":
            base, index = node.args
            return moved_place(self._pointer(base), self._scalar(index).code)  # type: ignore[arg-type]
        if node.kind == "unary" and node.args[0] == "*":
            return self._pointer(node.args[1])  # type: ignore[arg-type]
        if node.kind == "member":
            inner = self._lvalue(node.args[0])  # type: ignore[arg-type]
            if isinstance(inner, Variable):
                return Variable(f"{inner.name}[{FIELDS[str(node.args[1])]}]", inner.dtype)
        raise self._unsupported(f"assignment to a {node.kind}")

    def _assign(self, left: Any, right: Any) -> Operand | None:
        if isinstance(left, Node):
            value = self.rvalue(right)
            target = self._lvalue(left)
        else:
            target, value = left, right
        if isinstance(target, Pointer):
            self._write(target, value)
            return None
        if isinstance(value, Vector):
            self.writer.line(f"{target.name} = {self._vector_code(value, target.lanes)}")
            return None
        if isinstance(value, Pointer):
            raise self._unsupported("assignment of a pointer")
        code = self._converted(value, target.dtype).code
        if self._masked:
            code = f"under({self.writer.mask}, {code}, {target.name}, {target.dtype!r})"
        self.writer.line(f"{target.name} = {code}")
        return Value(target.name, target.dtype)

    # ---- memory ----

    def _read(self, place: Pointer) -> Operand:
        mask = self.writer.mask
        if place.space == "variable":
            return self._read_variable(place)
        size = size_of(place.dtype) * place.lanes
        if place.space == "local":
            if place.lanes == 1 and place.dtype == place.stored:
                return Value(f"{place.base}.read({place.offset}, {mask})", place.dtype)
            own = size_of(place.stored)
            if size < own:
                raise self._unsupported(f"part of an element of {place.stored}")
            raw = f"{place.base}.bytes({place.offset}, {size // own}, {mask})"
        elif place.lanes == 1:
            return Value(f"g.load({mask}, {place.base}, {place.offset}, {place.dtype!r})", place.dtype)
        else:
            raw = f"g.load_bytes({mask}, {place.base}, {place.offset}, {size})"
        held = self.writer.hold(f"columns({raw}, {place.dtype!r})")
        if place.lanes == 1:
            return Value(f"{held}[0]", place.dtype)
        return Vector(tuple(Value(f"{held}[{lane}]", place.dtype) for lane in range(place.lanes)))

    def _read_variable(self, place: Pointer) -> Operand:
        if place.offset:
            return Value(f"{place.base}[{place.offset}]", place.dtype)
        found = next(each for each in self.variables.values() if each.name == place.base)
        if place.lanes == 1 and found.lanes == 1:
            return Value(f"reinterpreted({found.name}, {found.dtype!r}, {place.dtype!r})", place.dtype)
        parts = found.name if found.lanes > 1 else f"[{found.name}]"
        held = self.writer.hold(f"regrouped(g, {parts}, {found.dtype!r}, {place.dtype!r})")
        if place.lanes == 1:
            return Value(f"{held}[0]", place.dtype)
        return Vector(tuple(Value(f"{held}[{lane}]", place.dtype) for lane in range(place.lanes)))

    def _write(self, place: Pointer, value: Operand) -> None:
        mask = self.writer.mask
        if place.space == "variable":
            self._write_variable(place, value)
            return
        if isinstance(value, Value) and place.lanes == 1:
            code = self._converted(value, place.dtype).code
            if place.space == "local" and place.dtype == place.stored:
                self.writer.line(f"{place.base}.write({place.offset}, {code}, {mask})")
                return
            if place.space != "local":
                self.writer.line(f"g.store({mask}, {place.base}, {place.offset}, {code}, {place.dtype!r})")
                return
            codes = [code]
        elif isinstance(value, Vector):
            codes = [part.code for part in value.parts]
        else:
            raise self._unsupported("assignment of this kind")
        raw = f"packed(g, [{', '.join(codes)}], {place.dtype!r})"
        if place.space == "local":
            self.writer.line(f"{place.base}.put_bytes({place.offset}, {raw}, {mask})")
        else:
            self.writer.line(f"g.store_bytes({mask}, {place.base}, {place.offset}, {raw})")

    def _write_variable(self, place: Pointer, value: Operand) -> None:
        found = next((each for each in self.variables.values() if each.name == place.base), None)
        if place.offset:
            assert isinstance(value, Value)
            spot = f"{place.base}[{place.offset}]"
            code = self._converted(value, place.dtype).code
            if self._masked:
                code = f"under({self.writer.mask}, {code}, {spot}, {place.dtype!r})"
            self.writer.line(f"{spot} = {code}")
            return
        assert found is not None
        parts = [value.code] if isinstance(value, Value) else [part.code for part in value.parts]  # type: ignore[union-attr]
        made = f"regrouped(g, [{', '.join(parts)}], {place.dtype!r}, {found.dtype!r})"
        self.writer.line(f"{found.name} = {made if found.lanes > 1 else made + '[0]'}")


def element(kind: CType) -> tuple[str, int]:
    """The dtype and the lanes of a type, pointers aside."""
    if kind.name in VECTORS:
        return VECTORS[kind.name]
    return SCALARS.get(kind.name, kind.name), 1


def moved_place(place: Pointer, index: str) -> Pointer:
    """``place + index`` in elements of its type."""
    size = size_of(place.dtype) * place.lanes
    if place.space == "variable":
        return replace(
            place, offset=f"({index})" if place.offset in ("", "0") else f"({place.offset} + {index})"
        )
    if place.space == "local":
        step = size // size_of(place.stored)
        if step * size_of(place.stored) != size:
            raise UnsupportedError(f"a step of {size} bytes over registers of {place.stored}")
        move = index if step == 1 else f"({index}) * {step}"
        return replace(place, offset=f"({place.offset} + {move})")
    return replace(place, offset=f"({place.offset} + wide({index}) * {size})")


def address_code(place: Pointer) -> str:
    """What an instruction gets for a pointer."""
    if place.space in ("global", "shared"):
        return f"At({place.base}, {place.offset})"
    if place.space == "map":
        return place.base
    return f"Place({place.base}, {place.offset})"
