"""Inline assembly: the instructions of a PTX text with their operands, run over the lanes of a group."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tree_sitter import Node

from tilec.emulate.foreign.expressions import Expressions
from tilec.emulate.foreign.memory import Scalar, write
from tilec.emulate.foreign.syntax import part, parts, string, unsupported
from tilec.emulate.instructions import registry
from tilec.emulate.instructions.registry import Instruction
from tilec.emulate.lanes import Spot
from tilec.emulate.runtime import moved
from tilec.emulate.state.numbers import negated
from tilec.errors import UnsupportedError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(
    r"%\d+(?:\s*\+\s*-?\d+)?|0[fF][0-9a-fA-F]{8}|[-+]?0[xX][0-9a-fA-F]+|[-+]?\d+(?:\.\d+)?|[%\w.$]+"
)
_BRACKETS = re.compile(r"[\[\]{},|]")
_LABEL = re.compile(r"([A-Za-z_$][\w$]*):(?!:)\s*")


@lru_cache(maxsize=4096)
def instructions(template: str) -> tuple[Instruction, ...]:
    """The instructions of a PTX text. A loop around a wait on an mbarrier is that wait: the emulator's waits
    end when the phase does. UnsupportedError for other branches."""
    text = _COMMENT.sub(" ", template).strip()
    while text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    found, labels = [], set()
    for line in text.split(";"):
        statement = line.strip()
        while label := _LABEL.match(statement):
            labels.add(label.group(1))
            statement = statement[label.end() :]
        if statement and not statement.startswith((".reg", ".pragma")):
            found.append(_instruction(statement))
    return _without_spinning(found, labels, template)


def _instruction(statement: str) -> Instruction:
    guard = ""
    if statement.startswith("@"):
        guard, statement = statement[1:].split(maxsplit=1)
    name, *rest = statement.split(maxsplit=1)
    words = _WORD.findall(_BRACKETS.sub(" ", "".join(rest)))
    operands = tuple(word for word in words if word != "_")
    return Instruction(name, operands, guard, len(words) - len(operands))


def _without_spinning(found: list[Instruction], labels: set[str], template: str) -> tuple[Instruction, ...]:
    branches = [each for each in found if each.parts[0] == "bra"]
    if not branches:
        return tuple(found)
    waits = [each for each in found if each.name.startswith(("mbarrier.try_wait", "mbarrier.test_wait"))]
    rest = [each for each in found if each not in branches and each not in waits]
    if len(waits) != 1 or rest or any(each.operands[0] not in labels for each in branches):
        raise UnsupportedError(
            "the emulator reads no branches in assembly but those around a wait on an mbarrier",
            why=" ".join(template.split())[:200],
            remedy="branch in C, or in the tile program",
        )
    (wait,) = waits
    return (replace(wait, name=wait.name.replace("test_wait", "try_wait")),)


@dataclass(eq=False)
class Assembly(Expressions):
    """Assembly in the functions of an author."""

    def assembly(self, node: Node) -> Generator[str, None, None]:
        """One statement."""
        lists = [node.child_by_field_name(f"{kind}_operands") for kind in ("output", "input")]
        given = [part(each, "value") for found in lists if found for each in parts(found)]
        holes = {f"%{number}": each for number, each in enumerate(given)}
        registers: dict[str, Any] = {}
        outer = self.lanes
        for each in instructions(string(part(node, "assembly_code"))):
            test = registers[each.guard.lstrip("!")] if each.guard else True
            lanes = outer.under(negated(test) if each.guard.startswith("!") else test)
            if lanes is not None:
                self.lanes = lanes
                yield from self._instruction(each, holes, registers)
        self.lanes = outer

    def _instruction(
        self, each: Instruction, holes: dict[str, Node], registers: dict[str, Any]
    ) -> Generator[str, None, None]:
        found = registry.find(each.parts)
        if found is None:
            raise UnsupportedError(
                f"the emulator has no instruction {each.name}",
                why=f"the function {self.function.name} has it",
                remedy="add it to tilec/emulate/instructions",
            )
        count = found.outputs(each)
        results, sources = each.operands[:count], each.operands[count:]
        args = [self._source(word, holes, registers) for word in sources]
        if found.in_place:
            spots = [self._spot(holes[word]) for word in results]
            args.insert(0, [(spots[0].registers, [spot.index for spot in spots])])
        kept = {"kept": self._kept(sources, holes)} if found.keeps else {}
        made = found.run(self.lanes.g, self.lanes.m, each.parts, *args, **kept)
        if found.waits:
            made = yield from made
        if found.mixes:
            self.lanes.g.taint.lanes = None
        for number, word in enumerate(() if found.in_place else results):
            if word not in holes:
                registers[word] = made[number]
                continue
            place = self.place(holes[word])
            write(place, Scalar(registry.from_register(made[number], place.dtype), place.dtype), self.lanes)

    def _source(self, word: str, holes: dict[str, Node], registers: dict[str, Any]) -> Any:
        if word in registers:
            return registers[word]
        hole, _, more = word.partition("+")
        if hole.strip() in holes:
            made = self.passed(self.value(holes[hole.strip()]))
            return moved(made, int(more)) if more else made
        if word[:2] in ("0f", "0F"):
            return registry.float_literal(word)
        try:
            return int(word, 0)
        except ValueError:
            return self.lanes.place(word.replace("%", ""))

    def _spot(self, node: Node) -> Spot:
        place = self.place(node)
        if not isinstance(place.to, Spot):
            raise unsupported("asynchronous result in memory", node)
        return place.to

    def _kept(self, words: Sequence[str], holes: dict[str, Node]) -> list[tuple[Any, Any]]:
        """The registers that operands are read from: pairs of the array and the index."""
        nodes = [holes[word] for word in words if word in holes]
        places = [self.place(node).to for node in nodes if node.type == "subscript_expression"]
        return [(place.registers, place.index) for place in places if isinstance(place, Spot)]
