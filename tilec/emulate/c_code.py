"""Device helpers (C with inline assembly) as Python source over the lanes of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilec.emulate import instructions
from tilec.emulate.asm_syntax import Instruction
from tilec.emulate.asm_syntax import instructions as parse_assembly
from tilec.emulate.c_syntax import SCALARS, VECTORS, CType, Function, Node
from tilec.emulate.special import BUILTINS, SPECIAL
from tilec.emulate.writer import Constants, Operand, Pointer, Value, Vector, Writer, is_integer, size_of
from tilec.errors import UnsupportedError

_FIELDS = {"x": 0, "y": 1, "z": 2, "w": 3}
#: C's ranks of arithmetic types.
_RANK = {"int32": 0, "uint32": 1, "int64": 2, "uint64": 3, "float16": 4, "float32": 5, "float64": 6}


@dataclass
class _Variable:
    """A variable of a helper: the Python name that holds it, or what a parameter stands for."""

    name: str
    dtype: str
    lanes: int = 1
    value: Operand | None = None
    elements: int = 0


@dataclass(eq=False)
class HelperCode:
    """Writes one call of ``function`` into ``writer``. ``math`` writes functions of the C library."""

    function: Function
    others: dict[str, Function]
    writer: Writer
    constants: Constants
    math: Callable[[str, list[Value]], Value]
    variables: dict[str, _Variable] = field(default_factory=dict)
    result: Operand | None = None
    _masked: bool = False

    def call(self, args: Sequence[Operand]) -> Operand | None:
        """The result of the function for these arguments."""
        if len(args) != len(self.function.params):
            raise self._unsupported(f"{len(args)} arguments")
        for (kind, name), arg in zip(self.function.params, args, strict=True):
            self.variables[name] = self._parameter(kind, arg)
        self._block(self.function.body)
        return self.result

    def _parameter(self, kind: CType, arg: Operand) -> _Variable:
        if isinstance(arg, Pointer):
            dtype, lanes = _element(kind)
            if kind.reference:
                return _Variable("", dtype, lanes, replace(arg, dtype=dtype))
            if kind.pointer == 0 and arg.space == "local":
                return self._parameter(kind, self._read(arg))
            typed = arg if kind.name == "void" else arg.typed(dtype, lanes)
            return _Variable("", "pointer", 1, typed)
        if isinstance(arg, Vector):
            return _Variable("", arg.parts[0].dtype, len(arg.parts), arg)
        dtype, _ = _element(kind)
        return _Variable("", dtype, 1, self._converted(Value(self.writer.hold(arg.code), arg.dtype), dtype))

    def _unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"the emulator has no {what}", why=f"in the helper {self.function.name}")

    # ---- statements ----

    def _block(self, body: Sequence[Node]) -> None:
        for node in body:
            if self.result is not None:
                raise self._unsupported("code after a return")
            getattr(self, f"_do_{node.kind}")(*node.args)

    def _do_block(self, *body: Node) -> None:
        self._block(body)

    def _do_expr(self, value: Node) -> None:
        made = self._expr(value)
        if isinstance(made, Value) and "(" in made.code and not made.code.isidentifier():
            self.writer.line(made.code)

    def _do_return(self, value: Node | None) -> None:
        if value is None:
            return
        if self._masked:
            raise self._unsupported("return inside a branch")
        made = self._rvalue(value)
        kind = self.function.result
        if isinstance(made, Value) and kind.name not in ("auto", "void") and kind.pointer == 0:
            made = self._converted(made, _element(kind)[0])
        self.result = made

    def _do_declare(self, kind: CType, name: str, count: Node | None, init: Node | None) -> None:
        dtype, lanes = _element(kind)
        if count is not None:
            self._array(name, dtype, count, init)
            return
        if kind.pointer or (kind.name == "auto" and init is not None):
            value = self._rvalue(init) if init is not None else None
            if isinstance(value, Pointer) and kind.name != "auto":
                value = value.typed(dtype, lanes)
            self.variables[name] = _Variable("", dtype, lanes, value)
            return
        if lanes > 1:
            value = self._rvalue(init) if init is not None else None
            self.variables[name] = _Variable(self.writer.name("v"), dtype, lanes)
            self.writer.line(f"{self.variables[name].name} = {self._vector_code(value, lanes)}")
            return
        code = "None"
        if init is not None:
            code = self._converted(self._scalar(init), dtype).code
        made = _Variable(self.writer.name("v"), dtype)
        self.writer.line(f"{made.name} = {code}")
        self.variables[name] = made

    def _array(self, name: str, dtype: str, count: Node, init: Node | None) -> None:
        size = self._constant(count)
        made = _Variable(self.writer.name("v"), dtype, elements=size)
        given: Any = () if init is None else init.args
        items = [self._converted(self._scalar(item), dtype).code for item in given]
        items += ["None" if init is None else "0"] * (size - len(items))
        self.writer.line(f"{made.name} = [{', '.join(items)}]")
        self.variables[name] = made

    def _vector_code(self, value: Operand | None, lanes: int) -> str:
        if value is None:
            return f"[None] * {lanes}"
        if not isinstance(value, Vector):
            raise self._unsupported("conversion to a vector")
        return f"[{', '.join(part.code for part in value.parts)}]"

    def _do_if(self, cond: Node, then: tuple[Node, ...], orelse: tuple[Node, ...]) -> None:
        outer, masked = self.writer.mask, self._masked
        yes, no = self.writer.name("m"), self.writer.name("m")
        self.writer.line(f"{yes}, {no} = sides({outer}, {self._scalar(cond).code})")
        self._masked = True
        for mask, body in ((yes, then), (no, orelse)):
            if body:
                with self.writer.inner(f"if {mask} is not NOBODY:", mask):
                    self._block(body)
        self._masked = masked

    def _do_for(self, init: tuple[Node, ...], cond: Node, step: Node | None, body: tuple[Node, ...]) -> None:
        self._block(init)
        self._loop(cond, body, step, tests_first=True)

    def _do_while(self, cond: Node, body: tuple[Node, ...]) -> None:
        self._loop(cond, body, None, tests_first=True)

    def _do_do(self, cond: Node, body: tuple[Node, ...]) -> None:
        self._loop(cond, body, None, tests_first=False)

    def _loop(self, cond: Node, body: tuple[Node, ...], step: Node | None, tests_first: bool) -> None:
        mask, masked = self.writer.name("m"), self._masked
        self.writer.line(f"{mask} = {self.writer.mask}")
        self._masked = True
        with self.writer.inner("while True:", mask):
            if tests_first:
                self._test(cond, mask)
            self._block(body)
            if step is not None:
                self._do_expr(step)
            if not tests_first:
                self._test(cond, mask)
        self._masked = masked

    def _test(self, cond: Node, mask: str) -> None:
        self.writer.line(f"{mask} = sides({mask}, {self._scalar(cond).code})[0]")
        self.writer.line(f"if {mask} is NOBODY: break")

    # ---- assembly ----

    def _do_asm(
        self, template: str, outputs: tuple[tuple[str, Node], ...], inputs: tuple[tuple[str, Node], ...]
    ) -> None:
        holes: list[_Hole] = [_Hole(text, node) for text, node in (*outputs, *inputs)]
        registers: dict[str, str] = {}
        for each in parse_assembly(template):
            if each.name == "pragma" or each.name.startswith("."):
                continue
            self._instruction(each, holes, registers)

    def _instruction(self, each: Instruction, holes: list[_Hole], registers: dict[str, str]) -> None:
        found = instructions.find(each)
        if found is None:
            raise UnsupportedError(
                f"the emulator does not know the instruction {each.name}",
                why=f"in the helper {self.function.name}",
                remedy="add it to tilec/emulate/instructions",
            )
        operands = each.operands
        count = found.outputs(each)
        mask = self.writer.mask
        if each.guard:
            test = registers[each.guard.lstrip("!")]
            mask = self.writer.name("m")
            side = 1 if each.guard.startswith("!") else 0
            self.writer.line(f"{mask} = sides({self.writer.mask}, {test})[{side}]")
            self.writer.line(f"if {mask} is not NOBODY:")
            self.writer.depth += 1
        before, self.writer.mask = self.writer.mask, mask
        sources = [self._source(text, holes, registers) for text in operands[count:]]
        if found.in_place:
            sources.insert(0, _register_run([self._place(text, holes) for text in operands[:count]]))
        code = f"{self.constants.of(found.run)}({', '.join(['g', mask, repr(each.parts), *sources])})"
        if found.waits:
            self.writer.waits = True
            code = f"yield from {code}"
        if count == 0 or found.in_place:
            self.writer.line(code)
        else:
            self._outputs(code, operands[:count], holes, registers, found.mixes)
        self.writer.mask = before
        if each.guard:
            self.writer.depth -= 1

    def _outputs(
        self,
        code: str,
        places: Sequence[str],
        holes: list[_Hole],
        registers: dict[str, str],
        mixes: bool,
    ) -> None:
        held = self.writer.name()
        self.writer.line(f"{held} = {code}")
        if mixes:
            self.writer.line("T.lanes = None")
        for position, text in enumerate(places):
            part = f"{held}[{position}]"
            if not text.startswith("%") or not text[1:].isdigit():
                registers[text] = self.writer.hold(part, "r")
                continue
            hole = holes[int(text[1:])]
            target = self._lvalue(hole.node)
            self._assign(target, Value(f"from_register({part}, {target.dtype!r})", target.dtype))

    def _source(self, text: str, holes: list[_Hole], registers: dict[str, str]) -> str:
        if text in registers:
            return registers[text]
        if text.startswith("%"):
            number, _, more = text[1:].partition("+")
            if number.strip().isdigit():
                return self._hole(holes[int(number)], int(more or 0))
            special = SPECIAL.get(text.replace("%", ""))
            if special is None:
                raise self._unsupported(f"special register {text}")
            return special
        if text.startswith("0f"):
            return self.constants.of(instructions.float_literal(text))
        try:
            return str(int(text, 0))
        except ValueError:
            raise self._unsupported(f"operand {text}") from None

    def _hole(self, hole: _Hole, offset: int) -> str:
        if hole.code is None:
            made = self._rvalue(hole.node)
            if isinstance(made, Pointer):
                hole.code = _address(made)
            elif isinstance(made, Value):
                hole.code = self.writer.hold(made.code)
            else:
                raise self._unsupported("vector operand of assembly")
        return hole.code if offset == 0 else f"moved({hole.code}, {offset})"

    def _place(self, text: str, holes: list[_Hole]) -> Pointer:
        place = self._lvalue(holes[int(text[1:])].node)
        if not isinstance(place, Pointer) or place.space != "local":
            raise self._unsupported("asynchronous result outside of an array in registers")
        return place

    # ---- expressions ----

    def _expr(self, node: Node) -> Operand | None:
        made: Operand | None = getattr(self, f"_{node.kind}")(*node.args)
        return made

    def _rvalue(self, node: Node) -> Operand:
        made = self._expr(node)
        if made is None:
            raise self._unsupported(f"value of a {node.kind}")
        return made

    def _scalar(self, node: Node) -> Value:
        made = self._rvalue(node)
        if not isinstance(made, Value):
            raise self._unsupported(f"scalar value of a {node.kind}")
        return made

    def _constant(self, node: Node) -> int:
        return int(self._scalar(node).code)

    def _number(self, text: str) -> Value:
        lower = text.lower()
        if lower.startswith("0x") or not any(mark in lower for mark in ".ef"):
            digits = lower.rstrip("ul")
            value, suffix = int(digits, 0), lower[len(digits) :]
            unsigned = "u" in suffix or (lower.startswith("0x") and value > 0x7FFFFFFF)
            dtype = f"{'uint' if unsigned else 'int'}{64 if 'l' in suffix or value > 0xFFFFFFFF else 32}"
            return Value(str(value), dtype)
        dtype = "float32" if lower.endswith("f") else "float64"
        import numpy as np

        return Value(self.constants.of(np.dtype(dtype).type(lower.rstrip("fl"))), dtype)

    def _name(self, text: str) -> Operand:
        found = self.variables.get(text)
        if found is None:
            if text in ("true", "false"):
                return Value(text.capitalize(), "bool")
            raise self._unsupported(f"name {text}")
        if found.value is not None:
            if isinstance(found.value, Pointer) and found.dtype != "pointer" and found.name == "":
                return self._read(found.value) if self._is_reference(text) else found.value
            return found.value
        if found.elements:
            return Pointer("variable", found.name, "0", found.dtype, found.dtype)
        if found.lanes > 1:
            return Vector(tuple(Value(f"{found.name}[{i}]", found.dtype) for i in range(found.lanes)))
        return Value(found.name, found.dtype)

    def _is_reference(self, text: str) -> bool:
        return any(kind.reference and name == text for kind, name in self.function.params)

    def _unary(self, sign: str, inner: Node) -> Operand:
        if sign == "*":
            return self._read(self._pointer(inner))
        if sign == "&":
            return self._address_of(inner)
        value = self._promoted(self._scalar(inner))
        if sign == "!":
            return Value(f"negated({value.code})", "int32")
        if sign == "~":
            return Value(f"wrap(~{value.code}, {value.dtype!r})", value.dtype)
        if sign == "+":
            return value
        negated = f"(-{value.code})"
        return Value(f"wrap({negated}, {value.dtype!r})" if is_integer(value.dtype) else negated, value.dtype)

    def _address_of(self, node: Node) -> Pointer:
        place = self._lvalue(node)
        if isinstance(place, Pointer):
            return place
        return Pointer("variable", place.name, "", place.dtype, place.dtype, place.lanes)

    def _pointer(self, node: Node) -> Pointer:
        made = self._rvalue(node)
        if not isinstance(made, Pointer):
            raise self._unsupported("pointer made of a number")
        return made

    def _binary(self, sign: str, left: Node, right: Node) -> Operand:
        first, second = self._rvalue(left), self._rvalue(right)
        if isinstance(first, Pointer) and isinstance(second, Value) and sign in "+-":
            return _moved(first, second.code if sign == "+" else f"-{second.code}")
        if not isinstance(first, Value) or not isinstance(second, Value):
            raise self._unsupported(f"operator {sign} of vectors or pointers")
        if sign in ("&&", "||"):
            return Value(f"{'land' if sign == '&&' else 'lor'}({first.code}, {second.code})", "int32")
        if sign in ("<<", ">>"):
            return self._shifted(sign, self._promoted(first), self._promoted(second))
        dtype = _common(self._promoted(first).dtype, self._promoted(second).dtype)
        a, b = self._converted(first, dtype).code, self._converted(second, dtype).code
        if sign in ("==", "!=", "<", "<=", ">", ">="):
            return Value(f"({a} {sign} {b})", "bool")
        if sign in ("/", "%") and is_integer(dtype):
            name = ("u" if dtype[0] == "u" else "") + ("div" if sign == "/" else "mod")
            return Value(f"{name}({a}, {b})", dtype)
        if sign == "/":
            return Value(f"fdiv({a}, {b})", dtype)
        text = f"({a} {sign} {b})"
        return Value(f"wrap({text}, {dtype!r})" if is_integer(dtype) else text, dtype)

    def _shifted(self, sign: str, left: Value, right: Value) -> Value:
        if sign == ">>":
            return Value(f"({left.code} >> {right.code})", left.dtype)
        return Value(f"shift_left({left.code}, {right.code}, {left.dtype!r})", left.dtype)

    def _promoted(self, value: Value) -> Value:
        """Integers below int as int."""
        if value.dtype in ("int8", "uint8", "int16", "uint16", "bool"):
            return self._converted(value, "int32")
        return value

    def _converted(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        return Value(f"cast({value.code}, {value.dtype!r}, {dtype!r})", dtype)

    def _ternary(self, cond: Node, yes: Node, no: Node) -> Value:
        test, left, right = (self._scalar(node) for node in (cond, yes, no))
        dtype = _common(self._promoted(left).dtype, self._promoted(right).dtype)
        codes = [self._converted(each, dtype).code for each in (left, right)]
        return Value(f"select(logical({test.code}), {codes[0]}, {codes[1]}, {dtype!r})", dtype)

    def _comma(self, first: Node, second: Node) -> Operand | None:
        self._do_expr(first)
        return self._expr(second)

    def _cast(self, kind: CType, inner: Node) -> Operand | None:
        made = self._expr(inner)
        dtype, lanes = _element(kind)
        if isinstance(made, Pointer):
            if kind.pointer == 0:
                return made
            return made if kind.name == "void" else made.typed(dtype, lanes)
        if kind.name == "void" and kind.pointer == 0:
            return made
        if isinstance(made, Value):
            return self._converted(made, dtype)
        raise self._unsupported(f"cast to {kind.name}")

    def _member(self, inner: Node, name: str) -> Value:
        if inner.kind == "name" and str(inner.args[0]) not in self.variables:
            code = BUILTINS.get(f"{inner.args[0]}.{name}")
            if code is not None:
                return Value(code, "uint32")
        made = self._rvalue(inner)
        if isinstance(made, Vector) and name in _FIELDS:
            return made.parts[_FIELDS[name]]
        raise self._unsupported(f"member {name}")

    def _index(self, base: Node, index: Node) -> Operand:
        return self._read(_moved(self._pointer(base), self._scalar(index).code))

    def _lambda(self, function: Function) -> Operand:
        raise self._unsupported("lambda that is not called")

    def _assign(self, left: Any, right: Any) -> Operand | None:
        if isinstance(left, Node):
            value = self._rvalue(right)
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
                held = _Variable(self.writer.name("v"), found.dtype, found.lanes)
                value = found.value
                code = value.code if isinstance(value, Value) else self._vector_code(value, found.lanes)
                self.writer.line(f"{held.name} = {code}")
                self.variables[str(node.args[0])] = held
                return held
            if found is not None:
                return found
        if node.kind == "index":
            base, index = node.args
            return _moved(self._pointer(base), self._scalar(index).code)  # type: ignore[arg-type]
        if node.kind == "unary" and node.args[0] == "*":
            return self._pointer(node.args[1])  # type: ignore[arg-type]
        if node.kind == "member":
            inner = self._lvalue(node.args[0])  # type: ignore[arg-type]
            if isinstance(inner, _Variable):
                return _Variable(f"{inner.name}[{_FIELDS[str(node.args[1])]}]", inner.dtype)
        raise self._unsupported(f"assignment to a {node.kind}")

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
            return Value(f"g.load({mask}, {_memory(place, size)}, {place.dtype!r})", place.dtype)
        else:
            raw = f"g.load_bytes({mask}, {_memory(place, size)}, {size})"
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
        size = size_of(place.dtype) * place.lanes
        if isinstance(value, Value) and place.lanes == 1:
            code = self._converted(value, place.dtype).code
            if place.space == "local" and place.dtype == place.stored:
                self.writer.line(f"{place.base}.write({place.offset}, {code}, {mask})")
                return
            if place.space != "local":
                self.writer.line(f"g.store({mask}, {_memory(place, size)}, {code}, {place.dtype!r})")
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
            self.writer.line(f"g.store_bytes({mask}, {_memory(place, size)}, {raw})")

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

    # ---- calls ----

    def _call(self, callee: Node, args: tuple[Node, ...]) -> Operand | None:
        if callee.kind == "lambda":
            return self._inline(callee.args[0], args)  # type: ignore[arg-type]
        name = str(callee.args[0])
        if name in self.others and name != self.function.name:
            return self._inline(self.others[name], args)
        if name.startswith("make_") and name[5:] in VECTORS:
            dtype, _ = VECTORS[name[5:]]
            return Vector(tuple(self._converted(self._scalar(arg), dtype) for arg in args))
        values = [self._rvalue(arg) for arg in args]
        found = instructions.function(name)
        if found is None:
            return self.math(name, [value for value in values if isinstance(value, Value)])
        return self._builtin(found, values)

    def _builtin(self, found: instructions.Function, values: list[Operand]) -> Operand | None:
        codes, dtype = [], found.dtype
        for value in values:
            if isinstance(value, Pointer):
                codes.append(_address(value))
                dtype = dtype or value.dtype
            elif isinstance(value, Value):
                codes.append(value.code)
                dtype = dtype or (value.dtype if found.typed_by_value else "")
            else:
                raise self._unsupported("vector argument of a function")
        if found.typed_by_value:
            codes.append(repr(dtype))
        code = f"{self.constants.of(found.run)}({', '.join(['g', self.writer.mask, *codes])})"
        if found.waits:
            self.writer.waits = True
            self.writer.line(f"yield from {code}")
            return None
        if found.dtype == "void":
            self.writer.line(code)
            return None
        held = self.writer.hold(code)
        if found.mixes:
            self.writer.line("T.lanes = None")
        return Value(held, dtype)

    def _inline(self, function: Function, args: tuple[Node, ...]) -> Operand | None:
        inner = HelperCode(function, self.others, self.writer, self.constants, self.math)
        return inner.call([self._rvalue(arg) for arg in args])


@dataclass
class _Hole:
    """An operand of assembly: its constraint, what it is, and its source once written."""

    constraint: str
    node: Node
    code: str | None = None


def _element(kind: CType) -> tuple[str, int]:
    """The dtype and the lanes of a type, pointers aside."""
    if kind.name in VECTORS:
        return VECTORS[kind.name]
    return SCALARS.get(kind.name, kind.name), 1


def _common(left: str, right: str) -> str:
    return left if _RANK.get(left, 0) >= _RANK.get(right, 0) else right


def _moved(place: Pointer, index: str) -> Pointer:
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


def _memory(place: Pointer, size: int) -> str:
    return f"{place.base}, {place.offset}"


def _address(place: Pointer) -> str:
    """What an instruction gets for a pointer."""
    if place.space in ("global", "shared"):
        return f"At({place.base}, {place.offset})"
    if place.space == "map":
        return place.base
    return f"Place({place.base}, {place.offset})"


def _register_run(places: list[Pointer]) -> str:
    """The registers of an asynchronous result: the array and the index of each element."""
    if len({place.base for place in places}) != 1:
        raise UnsupportedError("an asynchronous product whose sums lie in several arrays")
    return f"({places[0].base}, [{', '.join(place.offset for place in places)}])"
