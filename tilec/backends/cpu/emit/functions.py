"""Functions that expressions call by a name of their own, as CPU code: plain arithmetic and the functions of
`tilec.backends.cpu.math`. CPUs round to nearest alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.errors import UnsupportedError
from tilec.ir.exprs import dtype_of
from tilec.ir.extremes import DROPPING, KEPT
from tilec.lowering.emission.storage import is_nan

if TYPE_CHECKING:
    from tvm.ir import Expr

_FAST = {f"__{name}f": name for name in ("exp", "exp10", "log", "log2", "log10", "sin", "cos", "tan")}
_ARITHMETIC: dict[str, Callable[..., Expr]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "maf": lambda x, y, z: tirx.call_llvm_pure_intrin(dtype_of(x), "llvm.fma", x, y, z),
    "rcp": lambda x: _one(x) / x,
    "sqrt": lambda x: tirx.sqrt(x),
    "rsqrt": lambda x: tirx.rsqrt(x),
}
_OTHER_MODES = ("_rz", "_ru", "_rd")


def named_call(name: str, args: list[Expr]) -> Expr | None:
    """The TIR of a function that the language offers; None for another name. All args have the same lanes."""
    if name in KEPT:
        return keeping_nan(KEPT[name], *args)
    if name in _FAST:
        made: Expr = getattr(tirx, _FAST[name])(*args)
        return made
    if name == "__fdividef":
        return args[0] / args[1]
    word, _, mode = name[3:].rpartition("_")
    if not name.startswith(("__f", "__d")) or word not in _ARITHMETIC:
        return None
    if f"_{mode}" in _OTHER_MODES:
        raise UnsupportedError(
            f'arithmetic with rounding mode "{mode}" has no CPU code',
            why="CPU code rounds to nearest",
            remedy='use "rn", or give the kernel CUDA targets alone',
        )
    return _ARITHMETIC[word](*args)


def keeping_nan(kind: str, left: Expr, right: Expr) -> Expr:
    """max or min that is NaN where either operand is: the machine's instruction gives the second operand when
    either is NaN, so only the first one costs a test."""
    return tirx.Select(is_nan(left), left, DROPPING[kind](left, right))


def _one(like: Expr) -> Expr:
    kind, _, lanes = dtype_of(like).partition("x")
    one = tirx.const(1.0, kind)
    return tirx.Broadcast(one, int(lanes)) if lanes else one
