"""The table of instructions and device functions: one Python function each."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.emulate.state.numbers import TYPES
from tilec.errors import UnsupportedError

Handler = Callable[..., Any]


@dataclass(frozen=True)
class Instruction:
    """``name`` is the opcode with its modifiers ("mma.sync.aligned..."), ``operands`` their texts in order,
    brackets and braces gone, ``sinks`` (_) left out. ``guard`` is a predicate, with "!" if negated."""

    name: str
    operands: tuple[str, ...]
    guard: str = ""
    sinks: int = 0

    @property
    def parts(self) -> tuple[str, ...]:
        """The opcode and its modifiers."""
        return tuple(self.name.split("."))


@dataclass(frozen=True)
class Entry:
    """An instruction. ``run(group, mask, parts, *operands)`` gives its results, ``outputs`` of them, which
    are the first operands of the text; with ``in_place`` it gets the registers themselves. ``waits``: it is a
    generator that yields why it cannot go on; ``mixes``: lanes get what others had; ``keeps``: it goes on
    reading the registers that its operands come from, and gets them as ``kept``."""

    run: Handler
    outputs: Callable[[Instruction], int]
    waits: bool = False
    in_place: bool = False
    mixes: bool = False
    keeps: bool = False


@dataclass(frozen=True)
class Function:
    """A device function in C. ``dtype`` is its result's, "" for the type of argument ``typed_by`` (of what it
    points to), which the function gets as its last argument."""

    run: Handler
    dtype: str
    waits: bool = False
    typed_by: int | None = None
    mixes: bool = False


_INSTRUCTIONS: dict[str, Entry] = {}
_FUNCTIONS: dict[str, Function] = {}


def instruction(
    *names: str,
    outputs: int | Callable[[Instruction], int] = 0,
    waits: bool = False,
    in_place: bool = False,
    mixes: bool = False,
    keeps: bool = False,
) -> Callable[[Handler], Handler]:
    """Registers a function for instructions that start with ``names`` (whole parts)."""
    count = outputs if callable(outputs) else (lambda each, fixed=outputs: fixed)

    def decorate(run: Handler) -> Handler:
        for name in names:
            _INSTRUCTIONS[name] = Entry(run, count, waits, in_place, mixes, keeps)
        return run

    return decorate


def function(
    *names: str, dtype: str, waits: bool = False, typed_by: int | None = None, mixes: bool = False
) -> Callable[[Handler], Handler]:
    """Registers a device function."""

    def decorate(run: Handler) -> Handler:
        for name in names:
            _FUNCTIONS[name] = Function(run, dtype, waits, typed_by, mixes)
        return run

    return decorate


def unknown(parts: tuple[str, ...]) -> UnsupportedError:
    """The error for a form of an instruction that its function does not have."""
    return UnsupportedError(
        f"the emulator does not know this form of an instruction: {'.'.join(parts)}",
        why="its first parts have a function, the rest is none of the forms that the function tells apart",
        remedy="add the form to the function of its name in tilec/emulate/instructions",
    )


def find(parts: tuple[str, ...]) -> Entry | None:
    """The entry with the longest name that an opcode with these modifiers starts with."""
    for length in range(len(parts), 0, -1):
        found = _INSTRUCTIONS.get(".".join(parts[:length]))
        if found is not None:
            return found
    return None


def find_function(name: str) -> Function | None:
    """The device function of a name."""
    return _FUNCTIONS.get(name)


def float_literal(text: str) -> Any:
    """A PTX literal such as 0f3F800000."""
    return np.float32(struct.unpack(">f", bytes.fromhex(text[2:]))[0])


# ---- operands ----


def as_bits(value: Any, dtype: str, count: int) -> np.ndarray:
    """A register as an array of ``dtype``, its bits unchanged."""
    if not isinstance(value, np.ndarray):
        if isinstance(value, (float, np.floating)):
            kind = np.asarray([value]).dtype
            value = np.full(count, value, kind)
        else:
            size = TYPES[dtype].itemsize
            wrapped = int(value) & ((1 << (8 * size)) - 1)
            return np.asarray(np.full(count, wrapped, f"uint{8 * size}").view(TYPES[dtype]))
    if value.dtype == TYPES[dtype]:
        return np.asarray(value)
    if value.dtype.itemsize == TYPES[dtype].itemsize:
        return np.asarray(np.ascontiguousarray(value).view(TYPES[dtype]))
    return np.asarray(value.astype(TYPES[dtype]))


def from_register(value: Any, dtype: str) -> Any:
    """A result as the C type that takes it, its bits unchanged."""
    kind = TYPES[dtype]
    if isinstance(value, np.ndarray):
        if value.dtype == kind:
            return value
        if value.dtype.itemsize == kind.itemsize:
            return np.ascontiguousarray(value).view(kind)
        return value.astype(kind)
    if isinstance(value, (bool, int, np.integer)) and dtype[0] in "iub":
        return int(value)
    made = np.asarray([value])
    return made.view(kind)[0] if made.dtype.itemsize == kind.itemsize else kind.type(value)
