"""What a device helper is: a function in CUDA C++ that lowered code calls by name, and what it means.

A GPU compiles the text; `tilec.emulate` runs the meaning over the lanes of a group. Both stand in one entry
of this folder, and `tests/unit/emulate/instructions/test_device_helpers.py` compares them bit by bit.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from tvm.ir import Call
from tvm.tirx.script import builder as T

if TYPE_CHECKING:
    from tvm.ir import Expr

#: What C calls a dtype whose values lanes exchange.
C_NAMES = {"float32": "float", "int32": "int", "uint32": "unsigned", "float64": "double", "int64": "long",
           "uint64": "unsigned long"}  # fmt: skip
#: C spelling -> dtype.
C_TYPES: dict[str, str] = {
    "char": "int8", "signed char": "int8", "int8_t": "int8", "unsigned char": "uint8", "uchar": "uint8",
    "uint8_t": "uint8", "short": "int16", "int16_t": "int16", "unsigned short": "uint16", "ushort": "uint16",
    "uint16_t": "uint16", "int": "int32", "int32_t": "int32", "unsigned": "uint32", "unsigned int": "uint32",
    "uint": "uint32", "uint32_t": "uint32", "long": "int64", "long long": "int64", "int64_t": "int64",
    "unsigned long": "uint64", "unsigned long long": "uint64", "uint64_t": "uint64", "size_t": "uint64",
    "half": "float16", "float": "float32", "double": "float64", "bool": "bool", "void": "void",
}  # fmt: skip
_FUNC_CALL = "tirx.cuda.func_call"
_QUALIFIERS = re.compile(r"__\w+__|\bconst\b")


class Lanes(Protocol):
    """The lanes that run a helper, ``count`` of them. Values are arrays with one element a lane, or a number
    where all lanes agree; pointers are opaque, and elements behind them are counted by ``step``."""

    count: int

    def ptx(self, name: str, *operands: Any, **options: Any) -> Any:
        """What a PTX instruction of this name gives: a value, or several as a tuple; ``yield from`` it where
        it may wait. Operands are those of its text behind the results; ``options`` are the emulator's."""

    def cuda(self, name: str, *args: Any) -> Any:
        """What a function of CUDA gives; those for every type get the dtype as a further argument."""

    def shared(self, pointer: Any) -> Any:
        """The address in shared memory that instructions take."""

    def load(self, pointer: Any, dtype: str, step: Any = 0) -> Any:
        """An element."""

    def store(self, pointer: Any, dtype: str, value: Any, step: Any = 0) -> None:
        """Writes an element."""

    def move(self, to: Any, source: Any, size: int, to_step: Any = 0, step: Any = 0) -> None:
        """Copies ``size`` bytes; steps are of that size."""

    def bits(self, value: Any, dtype: str) -> Any:
        """The bits of a value as ``dtype``, one element a lane."""

    def under(self, test: Any) -> Lanes | None:
        """Those lanes in which ``test`` holds, None for none."""

    def chosen(self, value: Any, other: Any) -> Any:
        """``value`` in these lanes, ``other`` elsewhere."""

    def place(self, name: str) -> Any:
        """A coordinate of C, such as ``gridDim.x``."""


@dataclass(frozen=True)
class Helper:
    """``text`` is the function ``name`` in C++; ``meaning(lanes, *args)`` gives what it returns, and is a
    generator where it may wait for other warps. Arguments have the types of the text's parameters."""

    name: str
    text: str
    meaning: Callable[..., Any]

    def call(self, *args: Any) -> Call:
        """A call of it in device TIR."""
        _KNOWN[self.name, self.text] = self
        return T.cuda.func_call(self.name, *args, source_code=self.text, return_type=self.result)

    @cached_property
    def _signature(self) -> tuple[str, tuple[str, ...]]:
        found = re.search(rf"([\w ]+?)\s+{self.name}\(([^)]*)\)", self.text)
        assert found is not None, self.text
        result, params = (_QUALIFIERS.sub("", part).strip() for part in found.groups())
        names = [part.strip() for part in params.split(",")] if params else []
        return C_TYPES[result], tuple(
            "pointer" if "*" in name else C_TYPES[name.rpartition(" ")[0]] for name in names
        )

    @property
    def result(self) -> str:
        """The dtype of what it returns, or "void"."""
        return self._signature[0]

    @property
    def params(self) -> tuple[str, ...]:
        """The dtype of each parameter, or "pointer"."""
        return self._signature[1]

    @cached_property
    def waits(self) -> bool:
        """Whether it may wait for other warps."""
        return inspect.isgeneratorfunction(self.meaning)


_KNOWN: dict[tuple[str, str], Helper] = {}


@dataclass(frozen=True)
class Called:
    """A call in device TIR of a function whose text goes with it, ``text`` in C++."""

    name: str
    operands: tuple[Expr, ...]
    text: str

    @property
    def helper(self) -> Helper | None:
        """The helper that is called; None for a function that an author has written."""
        return _KNOWN.get((self.name, self.text))


def called(expr: Expr) -> Called | None:
    """A call of a helper or of an author's function, taken apart; None for anything else."""
    if not isinstance(expr, Call) or getattr(expr.op, "name", "") != _FUNC_CALL:
        return None
    name, *operands, text = expr.args
    return Called(str(name.value), tuple(operands), str(text.value))
