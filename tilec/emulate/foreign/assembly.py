"""Inline assembly, parsed: the instructions of a PTX text with their operands."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from tilec.emulate.instructions.registry import Instruction
from tilec.errors import UnsupportedError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(
    r"%\d+(?:\s*\+\s*-?\d+)?|[-+]?0[xX][0-9a-fA-F]+|[-+]?\d+(?:\.\d+)?|0f[0-9a-fA-F]{8}|[%\w.$]+"
)


@lru_cache(maxsize=4096)
def instructions(template: str) -> tuple[Instruction, ...]:
    """The instructions of a PTX text. A loop around a wait on an mbarrier is that wait: the emulator's waits
    end when the phase does. UnsupportedError for other branches."""
    text = _COMMENT.sub(" ", template).strip()
    while text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    found, labels = [], set()
    for part in text.replace("\n", " ").split(";"):
        statement = part.strip()
        while (
            label := re.match(r"([A-Za-z_$][\w$]*):\s*", statement)
        ) is not None and not statement.startswith("::"):
            labels.add(label.group(1))
            statement = statement[label.end() :]
        if statement and not statement.startswith(".reg"):
            found.append(_instruction(statement))
    return _without_spinning(found, labels, template)


def _instruction(statement: str) -> Instruction:
    guard = ""
    if statement.startswith("@"):
        guard, _, statement = statement[1:].partition(" ")
        statement = statement.strip()
    name, _, rest = statement.partition(" ")
    words = _WORD.findall(_opened(rest))
    operands = tuple(word for word in words if word != "_")
    return Instruction(name.strip(), operands, guard, len(words) - len(operands))


def _opened(text: str) -> str:
    return re.sub(r"[\[\]{},|]", " ", text)


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
