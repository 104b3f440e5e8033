"""Statements of C and inline assembly over the lanes of a group."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.emulate.foreign.assembly import instructions as parse_assembly
from tilec.emulate.foreign.expressions import Expressions, Running
from tilec.emulate.foreign.memory import Operand, Part, Pointer, Scalar, element
from tilec.emulate.foreign.syntax import CType, Function, Node
from tilec.emulate.instructions import registry
from tilec.emulate.instructions.registry import Instruction
from tilec.emulate.lanes import Spot
from tilec.emulate.numbers import logical, negated
from tilec.emulate.runtime import moved

Steps = Generator[str, None, None]


@dataclass(eq=False)
class Call(Expressions):
    """One call of a function."""

    result: Operand | None = None
    has_returned: bool = False

    def run(self, args: Sequence[Operand]) -> Running:
        """What the function returns for these arguments."""
        if len(args) != len(self.function.params):
            raise self.unsupported(f"{len(args)} arguments")
        for (kind, name), arg in zip(self.function.params, args, strict=True):
            self._parameter(kind, name, arg)
        yield from self._block(self.function.body)
        return self.result

    def inner(self, function: Function, args: list[Operand]) -> Running:
        """A call of another function."""
        return (yield from Call(function, self.others, self.lanes).run(args))

    def _parameter(self, kind: CType, name: str, arg: Operand) -> None:
        if isinstance(arg, Pointer):
            typed = arg.typed(kind)
            (self.places if kind.reference else self.pointers)[name] = typed
        elif isinstance(arg, tuple):
            self.places[name] = Pointer(
                Part([part.value for part in arg], arg[0].dtype), arg[0].dtype, len(arg)
            )
        elif arg.dtype in ("map", "text"):
            self.pointers[name] = arg
        else:
            self._variable(name, element(kind)[0], [arg])

    def _variable(self, name: str, dtype: str, values: Sequence[Scalar]) -> None:
        self.places[name] = Pointer(
            Part([value.to(dtype).value for value in values], dtype), dtype, len(values)
        )

    # ---- statements ----

    def _block(self, body: Sequence[Node]) -> Steps:
        for node in body:
            if self.has_returned:
                return
            steps = getattr(self, f"_do_{node.kind}")(*node.args)
            if steps is not None:
                yield from steps

    def _do_block(self, *body: Node) -> Steps:
        return self._block(body)

    def _do_expr(self, value: Node) -> Any:
        if value.kind == "call":
            return self.call(*value.args)  # type: ignore[arg-type]
        self.effect(value)
        return None

    def _do_return(self, value: Node | None) -> None:
        if self.is_masked:
            raise self.unsupported("return inside a branch")
        made, kind = None if value is None else self.value(value), self.function.result
        if isinstance(made, Scalar) and kind.name not in ("auto", "void") and kind.pointer == 0:
            made = made.to(element(kind)[0])
        self.result, self.has_returned = made, True

    def _do_declare(self, kind: CType, name: str, count: Node | None, init: Node | None) -> None:
        dtype, lanes = element(kind)
        if count is not None:
            given: Any = () if init is None else init.args
            items = [self.scalar(item).to(dtype).value for item in given]
            items += [None if init is None else 0] * (self.scalar(count).value - len(items))
            self.pointers[name] = Pointer(Part(items, dtype), dtype)
            return
        value = None if init is None else self.value(init)
        if isinstance(value, Pointer):
            self.pointers[name] = value if kind.name == "auto" else value.typed(kind)
        elif isinstance(value, tuple):
            self._variable(name, value[0].dtype, value)
        elif value is None:
            self.places[name] = Pointer(Part([None] * lanes, dtype), dtype, lanes)
        else:
            self._variable(name, value.dtype if kind.name == "auto" else dtype, [value])

    def _do_if(self, cond: Node, then: tuple[Node, ...], orelse: tuple[Node, ...]) -> Steps:
        outer, test = self.lanes, logical(self.scalar(cond).value)
        for holds, body in ((test, then), (negated(test), orelse)):
            lanes = outer.under(holds) if body else None
            if lanes is not None:
                self.lanes = lanes
                yield from self._block(body)
        self.lanes = outer

    def _do_for(self, init: tuple[Node, ...], cond: Node, step: Node | None, body: tuple[Node, ...]) -> Steps:
        yield from self._block(init)
        yield from self._loop(cond, body, step)

    def _do_while(self, cond: Node, body: tuple[Node, ...]) -> Steps:
        return self._loop(cond, body, None)

    def _do_do(self, cond: Node, body: tuple[Node, ...]) -> Steps:
        outer = self.lanes
        yield from self._block(body)
        while self._goes(cond):
            yield from self._block(body)
        self.lanes = outer

    def _loop(self, cond: Node, body: tuple[Node, ...], step: Node | None) -> Steps:
        outer = self.lanes
        while self._goes(cond):
            yield from self._block(body)
            if step is not None:
                self.effect(step)
        self.lanes = outer

    def _goes(self, cond: Node) -> bool:
        """Leaves the lanes that go on."""
        lanes = None if self.has_returned else self.lanes.under(logical(self.scalar(cond).value))
        self.lanes = lanes or self.lanes
        return lanes is not None

    # ---- assembly ----

    def _do_asm(
        self, template: str, outputs: tuple[tuple[str, Node], ...], inputs: tuple[tuple[str, Node], ...]
    ) -> Steps:
        holes = [node for _, node in (*outputs, *inputs)]
        registers: dict[str, Any] = {}
        outer = self.lanes
        for each in parse_assembly(template):
            if each.name == "pragma" or each.name.startswith("."):
                continue
            test = registers[each.guard.lstrip("!")] if each.guard else True
            lanes = outer.under(negated(test) if each.guard.startswith("!") else test)
            if lanes is not None:
                self.lanes = lanes
                yield from self._instruction(each, holes, registers)
        self.lanes = outer

    def _instruction(self, each: Instruction, holes: list[Node], registers: dict[str, Any]) -> Steps:
        found = registry.find(each.parts)
        if found is None:
            raise self.unsupported(f"instruction {each.name}")
        count = found.outputs(each)
        results, sources = each.operands[:count], each.operands[count:]
        args = [self._source(text, holes, registers) for text in sources]
        if found.in_place:
            places = [self._spot(text, holes) for text in results]
            args.insert(0, (places[0].registers, [place.index for place in places]))
        kept = {"kept": self._kept(sources, holes)} if found.keeps else {}
        made = found.run(self.lanes.g, self.lanes.m, each.parts, *args, **kept)
        if found.waits:
            made = yield from made
        if found.mixes:
            self.lanes.g.taint.lanes = None
        for number, text in enumerate(() if found.in_place else results):
            self._result(text, made[number], holes, registers)

    def _result(self, text: str, made: Any, holes: list[Node], registers: dict[str, Any]) -> None:
        if not text[1:].isdigit() or text[0] != "%":
            registers[text] = made
            return
        place = self.place(holes[int(text[1:])])
        self.put(place, Scalar(registry.from_register(made, place.dtype), place.dtype))

    def _source(self, text: str, holes: list[Node], registers: dict[str, Any]) -> Any:
        if text in registers:
            return registers[text]
        number, _, more = text[1:].partition("+")
        if text[0] == "%" and number.strip().isdigit():
            made = self.passed(self.value(holes[int(number)]))
            return moved(made, int(more)) if more else made
        if text.startswith("0f"):
            return registry.float_literal(text)
        try:
            return int(text, 0)
        except ValueError:
            return self.lanes.place(text.replace("%", ""))

    def _spot(self, text: str, holes: list[Node]) -> Spot:
        place = self.place(holes[int(text[1:])])
        if not isinstance(place.to, Spot):
            raise self.unsupported("asynchronous result outside of an array in registers")
        return place.to

    def _kept(self, operands: Sequence[str], holes: list[Node]) -> list[tuple[Any, Any]]:
        """The registers that operands are read from: pairs of the array and the index."""
        nodes = [holes[int(text[1:])] for text in operands if text[:1] == "%" and text[1:].isdigit()]
        places = [self.place(node).to for node in nodes if node.kind == "index"]
        return [(place.registers, place.index) for place in places if isinstance(place, Spot)]
