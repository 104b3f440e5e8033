"""Calls of instructions, of device helpers and of functions of authors, as Python source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tvm.ir import Call, TensorLoad

from tilec.backends.cuda.device.helper import Helper, called
from tilec.emulate import foreign
from tilec.emulate.foreign import Foreign
from tilec.emulate.lanes import runner
from tilec.emulate.translation import ptx_calls
from tilec.emulate.translation.builtins import builtin
from tilec.emulate.translation.expressions import Expressions
from tilec.emulate.translation.writer import Constants, Pointer, Value, Writer

if TYPE_CHECKING:
    from tvm.ir import Expr


@dataclass(frozen=True)
class Calls:
    """Writes calls with the operands that ``expressions`` write."""

    constants: Constants
    expressions: Expressions
    writer: Writer

    def write(self, call: Call) -> Value | None:
        """The value of a call, None where it has none."""
        name = str(getattr(call.op, "name", call.op))
        if name.startswith(ptx_calls.PREFIX):
            self._instruction(ptx_calls.read(call))
            return None
        function = called(call)
        if function is None:
            return self._known(builtin(name), call.args)
        return self._known(function.helper or foreign.read(function.name, function.text), function.operands)

    def _instruction(self, call: ptx_calls.PtxCall) -> None:
        """A call of an instruction's function."""
        entry, writer = call.entry, self.writer
        codes = [self._source(each, at in call.tests) for at, each in enumerate(call.sources)]
        places = [self.expressions.pointer(each) for each in call.results]
        if entry.in_place:
            codes.insert(0, register_runs(places))
        if entry.keeps:
            codes.append(f"kept=[{', '.join(self._origins(call.sources))}]")
        code = f"{self.constants.of(entry.run)}({', '.join(['g', writer.mask, repr(call.parts), *codes])})"
        if entry.waits:
            writer.waits = True
            code = f"yield from {code}"
        if not places or entry.in_place:
            writer.line(code)
            return
        held = writer.hold(code)
        if entry.mixes:
            writer.line("T.lanes = None")
        for number, to in enumerate(places):
            made = f"from_register({held}[{number}], {to.dtype!r})"
            writer.line(f"{to.base}.write({to.offset}, {made}, {writer.mask})")

    def _source(self, operand: Expr | int, is_test: bool) -> str:
        """An operand that an instruction reads."""
        if isinstance(operand, int):
            return str(operand)
        made = self.expressions.operand(operand)
        if isinstance(made, Pointer):
            return address_code(made)
        assert isinstance(made, Value), operand
        return f"logical({made.code})" if is_test else made.code

    def _origins(self, operands: Sequence[Expr | int]) -> list[str]:
        """The registers that operands are read from: pairs of the array and the index."""
        loads = [each for each in operands if isinstance(each, TensorLoad)]
        places = [self.expressions.pointer(each) for each in loads]
        return [f"({place.base}, {place.offset})" for place in places if place.space == "local"]

    def _known(self, helper: Helper | Foreign, args: Sequence[Expr]) -> Value | None:
        """A call of what a helper means, or of a function of an author."""
        given = [self._passed(arg, kind) for arg, kind in zip(args, helper.params, strict=True)]
        run = runner(helper) if isinstance(helper, Helper) else helper.runner([each.dtype for each in given])
        codes = [each.code for each in given]
        code = f"{self.constants.of(run)}({', '.join(['g', self.writer.mask, *codes])})"
        if helper.waits:
            self.writer.waits = True
            code = f"yield from {code}"
        if helper.result == "void":
            self.writer.line(code)
            return None
        return Value(self.writer.hold(code), helper.result)

    def _passed(self, expr: Expr, kind: str) -> Value:
        """An argument: a value of the parameter's dtype, or an address with what it points to."""
        is_place = kind == "pointer" and isinstance(expr, TensorLoad)
        made = self.expressions.pointer(expr) if is_place else self.expressions.operand(expr)
        if isinstance(made, Pointer):
            return Value(address_code(made), made.dtype if made.space != "map" else "map")
        if kind in ("pointer", made.dtype):
            return made
        return Value(f"cast({made.code}, {made.dtype!r}, {kind!r})", kind)


def address_code(place: Pointer) -> str:
    """What an instruction gets for a pointer."""
    if place.space == "map":
        return place.base
    return f"{'Spot' if place.space == 'local' else 'At'}({place.base}, {place.offset})"


def register_runs(places: list[Pointer]) -> str:
    """The registers of an asynchronous result: each array, and the indices of its elements."""
    runs = groupby(places, lambda place: place.base)
    return f"[{', '.join(_run_code(base, list(run)) for base, run in runs)}]"


def _run_code(base: str, places: list[Pointer]) -> str:
    return f"({base}, [{', '.join(place.offset for place in places)}])"
