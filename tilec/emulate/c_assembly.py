"""Inline assembly of device helpers: each instruction as a call of its function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilec.emulate import instructions
from tilec.emulate.asm_syntax import Instruction
from tilec.emulate.asm_syntax import instructions as parse_assembly
from tilec.emulate.c_expressions import HelperExpressions
from tilec.emulate.c_places import address_code
from tilec.emulate.c_syntax import Node
from tilec.emulate.special import SPECIAL
from tilec.emulate.writer import Pointer, Value
from tilec.errors import UnsupportedError


@dataclass
class _Hole:
    """An operand of assembly: its constraint, what it is, and its source once written."""

    constraint: str
    node: Node
    code: str | None = None


@dataclass(eq=False)
class HelperAssembly(HelperExpressions):
    """Writes the assembly of one call of a helper."""

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
        found = instructions.find(each.parts)
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
            sources.insert(0, register_run([self._place(text, holes) for text in operands[:count]]))
        if found.keeps:
            sources.append(f"kept={self._origins(operands[count:], holes)}")
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
            made = self.rvalue(hole.node)
            if isinstance(made, Pointer):
                hole.code = address_code(made)
            elif isinstance(made, Value):
                hole.code = self.writer.hold(made.code)
            else:
                raise self._unsupported("vector operand of assembly")
        return hole.code if offset == 0 else f"moved({hole.code}, {offset})"

    def _origins(self, operands: Sequence[str], holes: list[_Hole]) -> str:
        """The registers that operands were read from: pairs of the array and the index."""
        found = []
        for text in operands:
            number = text[1:] if text.startswith("%") else ""
            origin = self._origin(holes[int(number)].node) if number.isdigit() else None
            if origin is not None:
                found.append(f"({origin.base}, {origin.offset})")
        return f"[{', '.join(found)}]"

    def _origin(self, node: Node) -> Pointer | None:
        """The register that an operand is read from, None where it comes from elsewhere."""
        if node.kind == "name":
            known = self.variables.get(str(node.args[0]))
            return None if known is None else known.origin
        place = self._lvalue(node) if node.kind == "index" else None
        return place if isinstance(place, Pointer) and place.space == "local" else None

    def _place(self, text: str, holes: list[_Hole]) -> Pointer:
        place = self._lvalue(holes[int(text[1:])].node)
        if not isinstance(place, Pointer) or place.space != "local":
            raise self._unsupported("asynchronous result outside of an array in registers")
        return place


def register_run(places: list[Pointer]) -> str:
    """The registers of an asynchronous result: the array and the index of each element."""
    if len({place.base for place in places}) != 1:
        raise UnsupportedError("an asynchronous product whose sums lie in several arrays")
    return f"({places[0].base}, [{', '.join(place.offset for place in places)}])"
