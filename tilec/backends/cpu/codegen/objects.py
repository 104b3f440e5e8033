"""TIR of a CPU variant -> one relocatable object with one function per launch, through TVM's LLVM.

In: functions whose Parallel loops are explicit vectors or VECTORIZED loops. Out: machine code that leaves
nothing undefined but memcpy, memset, functions of the runtime and, for what has no vector form, functions of
libm. The bytes depend on the function bodies, the target and the compiler alone.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.backends.cpu.codegen.foreign import llvm_text
from tilec.codegen.failures import failure
from tilec.codegen.image import RUNTIME_CALLS, RUNTIME_FACTS, Image, LaunchCode, image_with
from tilec.codegen.objects import trimmed, undefined_symbols
from tilec.disk import require_room
from tilec.errors import UnsupportedError
from tilec.ir.options import FAST_MATH, IMPORTED
from tilec.ir.roads import Loss, encode, in_order, multipliers, road_at
from tilec.lowering.lowered import overlapping_pointers
from tilec.targets import Target

if TYPE_CHECKING:
    import tvm
    from tvm.ir import Expr

    from tilec.lowering.lowered import LoweredKernel, LoweredLaunch

#: What float32 has no vector form of.
_OF_FLOAT32 = {"fmodf"}
#: TVM's calling convention of a plain C function.
_C_CALL = 0
#: TVM puts the conversions that every module carries, then debug information, after the launches.
_AFTER_LAUNCHES = "\t.section\t.text.tvm.fp16.conv"
_DEBUG_REFERENCE = re.compile(r",? !dbg !\d+")
#: Also of macOS, and what grows stacks on Windows, which every linker there brings.
_LIBC_FUNCTIONS = frozenset(
    {
        "memcpy",
        "memmove",
        "memset",
        "bzero",
        "__bzero",
        "memset_pattern16",
        "___chkstk_ms",
        "__chkstk",
        "_fltused",
    }
)

_LIBM_FLOAT64 = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "exp", "exp10", "exp2",
    "fmod", "hypot", "ldexp", "log", "log10", "log1p", "log2", "nextafter", "pow", "sin", "sinh", "tan",
    "tanh",
)  # fmt: skip
#: Every function of libm that generated code may call, float32 forms included.
_LIBM = frozenset(name + suffix for name in (*_LIBM_FLOAT64, "fma") for suffix in ("", "f"))


def compile_kernel(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> Image:
    """Machine code of every launch of one variant; launch i is the symbol ``<symbol_prefix>_<i>``."""
    module = _build(lowered, target, symbol_prefix)
    code = _object_bytes(module)
    calls = _libm_calls(lowered, target, code)
    launches = (
        _launch_code(launch, _symbol(symbol_prefix, index), calls)
        for index, launch in enumerate(lowered.launches)
    )
    return image_with(code, lowered, target, launches)


def assembly(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
    """The assembly of all launches, without debug information and float16's conversions in software."""
    module = _build(lowered, target, symbol_prefix)
    launches, _, _ = module.inspect_source("asm").partition(_AFTER_LAUNCHES)
    lines = launches.splitlines()
    return "\n".join(line for line in lines if not _is_debug_line(line)) + "\n"


def source(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
    """The C of all launches; where C has no words for something, their LLVM IR, which says so first."""
    from tilec.backends.cpu.c_source import c_source

    try:
        module = _through(_readable_passes(), lowered, target, symbol_prefix)
        functions = {symbol: module[symbol] for symbol in _symbols(lowered, symbol_prefix)}
        return c_source(functions, f"{lowered.name} for {target.name}")
    except UnsupportedError as reason:
        why = reason.what
    except Exception as defect:  # what is for people to read must not keep a kernel from being compiled
        why = f"there is no C: {type(defect).__name__}: {defect}".replace("\n", " ")
    return f"; {why}\n{llvm_ir(lowered, target, symbol_prefix)}"


def llvm_ir(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
    """The LLVM IR of all launches after LLVM's optimisation, without debug information."""
    text = _build(lowered, target, symbol_prefix).inspect_source("ll")
    lines = (
        _DEBUG_REFERENCE.sub("", line)
        for line in text.splitlines()
        if not line.lstrip().startswith(("!", "#dbg_"))
    )
    return "\n".join(lines).rstrip() + "\n"


def tir_text(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> str:
    """The TIR that LLVM gets, after all passes."""
    return str(_legalized(lowered, target, symbol_prefix)) + "\n"


def _build(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> Any:
    import tvm_ffi

    module = _legalized(lowered, target, symbol_prefix)
    build = tvm_ffi.get_global_func("target.build.llvm")
    try:
        return build(module, _tvm_target(target, bool(lowered.option(FAST_MATH))))
    except Exception as problem:
        raise failure(lowered, target, problem) from problem


def _legalized(lowered: LoweredKernel, target: Target, symbol_prefix: str) -> tvm.IRModule:
    from tilec.backends.cpu.codegen.keep_steps import is_costly
    from tilec.backends.cpu.codegen.open_tests import open_tests
    from tilec.backends.cpu.math import register

    register()
    passes = [*_passes(), open_tests()] if target.vector_bits == 512 else _passes()
    return _through(passes, _with_imported(lowered, target), target, symbol_prefix, is_costly)


def _with_imported(lowered: LoweredKernel, target: Target) -> LoweredKernel:
    """The kernel with the functions of the source that it imports in front of its first launch."""
    from tilec.backends.cpu.llvm_text import with_llvm

    source = lowered.option(IMPORTED)
    if not source:
        return lowered
    first, *others = lowered.launches
    body = with_llvm(llvm_text(str(source), target), first.func.body)
    return replace(lowered, launches=(replace(first, func=first.func.with_body(body)), *others))


def _through(
    passes: Sequence[Any],
    lowered: LoweredKernel,
    target: Target,
    symbol_prefix: str,
    dear: Callable[[Expr], bool] = lambda value: False,
) -> tvm.IRModule:
    """All launches after ``passes``; names of ``dear`` values are kept."""
    import tvm

    from tilec.lowering.emission.long_names import with_names_kept

    symbols = _symbols(lowered, symbol_prefix)
    functions = {symbol: launch.func for symbol, launch in zip(symbols, lowered.launches, strict=True)}
    native = _tvm_target(target, bool(lowered.option(FAST_MATH)))
    module = tvm.IRModule({name: _entry(func, name, native) for name, func in functions.items()})
    try:
        with native, tvm.transform.PassContext(opt_level=3):
            return with_names_kept(lambda names: tvm.transform.Sequential([names, *passes])(module), dear)
    except Exception as problem:
        raise failure(lowered, target, problem) from problem


def _entry(func: Any, symbol: str, native: Any) -> Any:
    """``func`` as a plain C function named ``symbol`` whose pointers do not alias. Where some may, LLVM is
    promised nothing: TVM has one promise for all pointers of a function."""
    return (
        func.with_attr("global_symbol", symbol)
        .with_attr("target", native)
        .with_attr("calling_conv", _C_CALL)
        .with_attr("tirx.noalias", not overlapping_pointers(func))
    )


def _passes() -> list[Any]:
    """bfloat16 arithmetic becomes float32 before vectorising, its storage becomes uint16 after; float16
    arithmetic is float32 inside LLVM where the target has no float16 unit. LowerTVMBuiltin stays out: it
    rejects large stack buffers and nothing here needs it."""
    from tvm import tirx

    from tilec.backends.cpu.codegen.keep_steps import keep_steps
    from tilec.backends.cpu.codegen.round_alike import round_alike
    from tilec.codegen.registered import schedule_pass
    from tilec.lowering.emission.keep_numbers import (
        hide_numbers,
        part_unequal,
        show_numbers,
        without_whole_parts,
    )

    return [
        schedule_pass("LowerOpaqueBlock"),
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.UnrollLoop(),
        hide_numbers(),
        tirx.transform.StmtSimplify(),
        show_numbers(),
        round_alike(),
        tirx.transform.BF16StorageLegalize(),
        keep_steps(),
        *without_whole_parts([tirx.transform.LowerIntrin()]),
        keep_steps(),
        part_unequal(),
    ]


def _readable_passes() -> list[Any]:
    """Those that C needs: values keep their names, functions and floor divisions stay what they are."""
    from tvm import tirx

    from tilec.codegen.registered import schedule_pass
    from tilec.lowering.emission.keep_numbers import without_whole_parts

    return [
        schedule_pass("LowerOpaqueBlock"),
        *without_whole_parts([tirx.transform.FlattenBuffer()]),
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.BF16StorageLegalize(),
    ]


@lru_cache(maxsize=32)
def _tvm_target(target: Target, fast: bool = False) -> Any:
    """``fast``: products and sums may be contracted, quotients multiplied by inverses; NaN and infinities
    stay what they are."""
    import tvm

    spec: dict[str, Any] = {"kind": "llvm", "mtriple": target.triple, "mcpu": target.mcpu}
    if fast:
        spec |= dict.fromkeys(("fast-math-contract", "fast-math-arcp"), True)
    if target.mattr:
        spec["mattr"] = list(target.mattr)
    return tvm.target.Target(spec)


def _object_bytes(module: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.o"
        require_room("writing machine code", path.parent)
        module.write_to_file(str(path), "o")
        return trimmed(path.read_bytes())


def _symbols(lowered: LoweredKernel, prefix: str) -> list[str]:
    return [_symbol(prefix, index) for index in range(len(lowered.launches))]


def _symbol(prefix: str, index: int) -> str:
    return f"{prefix}_{index}"


def _libm_calls(lowered: LoweredKernel, target: Target, code: bytes) -> tuple[str, ...]:
    """The functions of libm that ``code`` calls. Any other undefined symbol is a defect, those of the runtime
    aside."""
    needed = undefined_symbols(code) - _LIBC_FUNCTIONS - RUNTIME_CALLS - RUNTIME_FACTS
    unknown = sorted(needed - _LIBM)
    if unknown:
        remedy = "define functions that a kernel calls in T.import_source"
        raise failure(lowered, target, f"the code calls {', '.join(unknown)}, which nothing provides", remedy)
    return tuple(sorted(needed))


def _launch_code(launch: LoweredLaunch, symbol: str, calls: tuple[str, ...]) -> LaunchCode:
    roads = list(launch.roads)
    if calls:
        remedy = "compute in float32, whose functions have one"
        if set(calls) <= _OF_FLOAT32:
            remedy = "a - T.trunc(a / b) * b is one, and less exact than T.fmod(a, b)"
        loss = Loss("vectors", "they have no vector form here", remedy)
        how = f"calls libm, one element at a time: {', '.join(calls)}"
        roads.append(road_at(launch.place, "libm", how, loss))
    text = encode(in_order(roads))
    size, products = launch.scratch_bytes, multipliers(launch.roads)
    return LaunchCode(symbol, launch.grid, launch.threads, size, launch.notes, roads=text, products=products)


def _is_debug_line(line: str) -> bool:
    text = line.strip()
    return text.startswith((".loc", ".cfi_", ".Ltmp", ".file"))
