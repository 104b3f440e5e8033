"""Which tensors a launch moves in more than elements: those have to start where vectors do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tvm_ffi
from tvm import ir as tvm_ir
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from tilec.backends.cuda.device.helper import called
from tilec.backends.cuda.device.moves import TAKE
from tilec.ir.exprs import loads

if TYPE_CHECKING:
    from tilec.backends.cuda.launch import LoweredCudaLaunch

_ADDRESS = tvm_ir.Op.get("tirx.address_of")


def wide_tensors(launch: LoweredCudaLaunch) -> tuple[int, ...]:
    """The places, among the pointers that its function takes, of tensors of which the code takes vectors or
    addresses, or that tensor maps describe. Those of which it takes elements alone may begin anywhere."""
    begins: dict[Var, object] = {}
    found: set[object] = set()
    calls: list[Call] = []

    def begin(stmt: tirx.DeclBuffer) -> None:
        begins[stmt.buffer] = stmt.data

    def load(expr: TensorLoad) -> None:
        if expr.ty.dtype.lanes > 1:
            found.add(expr.source)

    def store(stmt: tirx.BufferStore) -> None:
        if stmt.value.ty.dtype.lanes > 1:
            found.add(stmt.buffer)

    visits = [(tirx.DeclBuffer, begin), (Call, calls.append), (TensorLoad, load), (tirx.BufferStore, store)]
    tvm_ffi.structural_walk(launch.func.body, visits)
    single = {arg for each in calls if _takes_element(each) for arg in each.args}
    wide_calls = [each for each in calls if each not in single]
    found.update(var for each in wide_calls for var in _addressed(each))
    found |= {begins[buffer] for buffer in found if buffer in begins}
    wide = {place for place, param in enumerate(launch.func.params) if param in found}
    return tuple(sorted(wide | {each.tensor for each in launch.tensor_maps}))


def _takes_element(call: Call) -> bool:
    """Whether a call reads one element, whose tensor may begin anywhere."""
    function = called(call)
    return function is not None and function.name.startswith(TAKE)


def _addressed(call: Call) -> list[Var]:
    """The tensors and pointers that a call gets addresses of."""
    if call.op == _ADDRESS:
        return [load.source for arg in call.args for load in loads(arg)]
    return [arg for arg in call.args if isinstance(arg, Var)]
