"""Which statements of device TIR may have to wait for other warps."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, StringImm

from tilec.backends.cuda.device.helper import called
from tilec.emulate.foreign import may_wait
from tilec.emulate.instructions.registry import find as find_instruction
from tilec.emulate.translation import ptx_calls
from tilec.emulate.translation.builtins import BUILTINS


def blocks(stmt: Any) -> bool:
    """Whether a statement has something inside that may wait for others."""
    if isinstance(stmt, tirx.Evaluate):
        return isinstance(stmt.value, Call) and _waits(stmt.value)
    if isinstance(stmt, tirx.SeqStmt):
        return any(blocks(part) for part in stmt.seq)
    if isinstance(stmt, tirx.IfThenElse):
        return blocks(stmt.then_case) or (stmt.else_case is not None and blocks(stmt.else_case))
    if isinstance(stmt, (tirx.For, tirx.While, tirx.AttrStmt)):
        return blocks(stmt.body)
    return False


def _waits(call: Call) -> bool:
    name = str(getattr(call.op, "name", call.op))
    if name.startswith(ptx_calls.PREFIX):
        entry = find_instruction(ptx_calls.opcode(call))
        return entry is not None and entry.waits
    if name in BUILTINS:
        return BUILTINS[name].waits
    function = called(call)
    if function is not None and function.helper is not None:
        return function.helper.waits
    return any(may_wait(str(arg.value)) for arg in call.args if isinstance(arg, StringImm))
