"""Device TIR -> C++ as TVM's CUDA generator writes it, whichever compiler reads it then.

Host code generation of TVM stays out: the runtime packs the arguments itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tvm.ir import PointerType

from tilec.backends.cuda.codegen.text import cuda_text
from tilec.backends.cuda.device.atomics import SWAP_BYTE, SWAP_BYTE_CODE
from tilec.backends.cuda.gpu import gpu_of
from tilec.backends.cuda.launch import LoweredCudaLaunch, launches_of
from tilec.codegen.failures import failure
from tilec.lowering.lowered import output_pointers, overlapping_pointers

if TYPE_CHECKING:
    import tvm

    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target

_RESTRICT = "__restrict__ "
#: The lowest int32 as TVM writes it: to C++ the negative of a number that is a long, which no int goes with.
_LOWEST = re.compile(r"-2147483648(?![\w.])")
#: TVM's calling convention of a device kernel.
_DEVICE_KERNEL = 2


def device_source(
    lowered: LoweredKernel,
    target: Target,
    symbol_prefix: str,
    above: Callable[[Iterable[str]], str],
) -> str:
    """The C++ of all launches, without includes; ``above`` as in `cuda_text`."""
    module = _legalized(lowered, target, symbol_prefix)
    try:
        text = cuda_text(module, _tvm_target(target), above)
    except Exception as problem:
        raise failure(lowered, target, problem) from problem
    text = _LOWEST.sub("(-2147483647 - 1)", text)
    if f"{SWAP_BYTE}(" in text:
        text = SWAP_BYTE_CODE + text
    for index, launch in enumerate(launches_of(lowered)):
        text = _without_restrict(text, f"{symbol_prefix}_{index}", _plain_pointers(launch))
    return text


def _plain_pointers(launch: LoweredCudaLaunch) -> set[int]:
    """The places of the parameters of which no promise may be made. What is promised to be nobody else's and
    is only read gets ld.global.nc, which compilers move in front of griddepcontrol.wait: a launch that begins
    early would read what the one in front has yet to write."""
    plain = set(overlapping_pointers(launch.func))
    if launch.programmatic:
        pointers = {
            place for place, param in enumerate(launch.func.params) if isinstance(param.ty, PointerType)
        }
        plain |= pointers - set(output_pointers(launch.func))
    return plain


def _without_restrict(text: str, symbol: str, places: Collection[int]) -> str:
    """The declarations of a kernel without the promise for its parameters at ``places``: TVM makes it for all
    or none."""

    def freed(found: re.Match[str]) -> str:
        params = found[2].split(", ")
        for place in places:
            params[place] = params[place].replace(_RESTRICT, "")
        return f"{found[1]}{', '.join(params)}{found[3]}"

    return re.sub(rf"(\b{re.escape(symbol)}\()([^()]*)(\))", freed, text) if places else text


def tir_text(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
    """The TIR that the source is written from, after all passes."""
    return str(_legalized(lowered, target, symbol_prefix)) + "\n"


def device_functions(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> list[Any]:
    """The functions of all launches as the code generator gets them, in order."""
    module = _legalized(lowered, target, symbol_prefix)
    return [module[f"{symbol_prefix}_{index}"] for index in range(len(lowered.launches))]


@lru_cache(maxsize=16)
def _tvm_target(target: Target) -> Any:
    """Of a CUDA target its own; of other families one whose code asks for no more than C++ has."""
    import tvm

    arch = target.name.replace("compute_", "sm_") if gpu_of(target).capability else "sm_80"
    return tvm.target.Target({"kind": "cuda", "arch": arch})


def _legalized(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> tvm.IRModule:
    """The functions of all launches in TIR, after all passes of TVM; launch i is ``<symbol_prefix>_<i>``."""
    import tvm

    from tilec.lowering.emission.long_names import with_names_kept

    native = _tvm_target(target)
    functions = {
        f"{symbol_prefix}_{index}": _kernel(launch, f"{symbol_prefix}_{index}", native)
        for index, launch in enumerate(launches_of(lowered))
    }
    try:
        with native, tvm.transform.PassContext(opt_level=3):
            return with_names_kept(
                lambda names: tvm.transform.Sequential(_passes(names))(tvm.IRModule(functions))
            )
    except Exception as problem:
        raise failure(lowered, target, problem) from problem


def _kernel(launch: LoweredCudaLaunch, symbol: str, native: Any) -> Any:
    """The device kernel of a launch, named ``symbol``. Its pointers do not alias; those of a cooperative one
    may, as far as the compiler knows: what it has read through one, other blocks may have written since."""
    return (
        launch.func.with_attr("global_symbol", symbol)
        .with_attr("target", native)
        .with_attr("calling_conv", _DEVICE_KERNEL)
        .with_attr("tirx.is_global_func", True)
        .with_attr("tirx.noalias", not launch.cooperative)
    )


def _passes(names: Any) -> list[Any]:
    """``names`` and all others. No simplifier after the lowering's own: it copies every bound value to its
    uses, and with it reads of special registers and of memory."""
    from tvm import tirx

    from tilec.backends.cuda.codegen.name_values import name_values
    from tilec.backends.cuda.codegen.round_up import round_up
    from tilec.codegen.registered import schedule_pass
    from tilec.lowering.emission.keep_numbers import without_whole_parts

    flattening = [
        tirx.transform.LowerTIRx(),
        schedule_pass("UnifyThreadBinding"),
        tirx.transform.LowerTIRxOpaque(),
        tirx.transform.FlattenBuffer(),
    ]
    return [
        round_up(),
        name_values(),
        names,
        *without_whole_parts(flattening),
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.UnrollLoop(),
        tirx.transform.FP8ComputeLegalize(),
        tirx.transform.FP8StorageLegalize(),
        tirx.transform.BF16StorageLegalize(),
        tirx.transform.LowerWarpMemory(),
        *without_whole_parts([tirx.transform.LowerIntrin()]),
    ]
