"""PTX instructions of device TIR: their opcodes and operands, by TVM's own table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm.backend.cuda.ptx.table import TABLE, mods, operand_layout, operand_type

from tilec.emulate.instructions.registry import Entry, find
from tilec.errors import UnsupportedError

if TYPE_CHECKING:
    from tvm.ir import Call, Expr

PREFIX = "tirx.ptx."
_SINK = "_"


@dataclass(frozen=True)
class PtxCall:
    """An instruction with its operands in the order of its text: ``results`` are elements in registers,
    ``sources`` what it reads, numbers of the text among them; ``tests`` says which of them are predicates."""

    entry: Entry
    parts: tuple[str, ...]
    results: tuple[Expr, ...]
    sources: tuple[Expr | int, ...]
    tests: frozenset[int]


def opcode(call: Call) -> tuple[str, ...]:
    """The opcode of an instruction with its modifiers."""
    found = TABLE[call.op.name.removeprefix(PREFIX)]
    tokens = [str(each.value) for each in call.args[len(call.args) - len(found.slots) - 1 : -1]]
    return tuple(".".join([found.ptx_name, *filter(None, tokens)]).split("."))


def read(call: Call) -> PtxCall:
    """The instruction of a call. UnsupportedError for one that the emulator does not know."""
    found = TABLE[call.op.name.removeprefix(PREFIX)]
    count = len(call.args) - len(found.slots) - 1
    *tokens, flags = (str(each.value) for each in call.args[count:])
    parts = opcode(call)
    entry = find(parts)
    if entry is None or {"pred", "keep"} & set(flags.split(",")):
        raise UnsupportedError(
            f"the emulator does not know the instruction {'.'.join(parts)}",
            why=str(call)[:200],
            remedy="add it to tilec/emulate/instructions",
        )
    sunk = {int(flag[1:]) for flag in flags.split(",") if flag.startswith("s")}
    return _with_operands(entry, parts, found, mods(found, tokens), iter(call.args[:count]), sunk)


def _with_operands(
    entry: Entry, parts: tuple[str, ...], found: Any, modifiers: dict[str, str], args: Any, sunk: set[int]
) -> PtxCall:
    """``args`` come in the order of the table's operands; those of ``sunk`` are left out."""
    places = list(operand_layout(found, modifiers))
    results: list[Expr] = []
    sources: list[Expr | int] = []
    tests = set()
    for slot in found.operands:
        if slot.kind == "imm" and slot.literal is not None:
            sources += [] if slot.literal == _SINK else [int(slot.literal, 0)]
            continue
        first, lanes = next((first, lanes) for each, first, lanes in places if each is slot)
        given = [next(args) for lane in range(lanes) if first + lane not in sunk]
        if slot.kind == "reg" and slot.rw != "r":
            results += given
            continue
        if slot.kind == "reg" and operand_type(slot, modifiers) == "pred":
            tests.add(len(sources))
        sources += [int(each) for each in given] if slot.kind == "imm" else given
    return PtxCall(entry, parts, tuple(results), tuple(sources), frozenset(tests))
