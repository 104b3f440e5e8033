"""What the printer and the parser of tile IR text share: operators, words, names, result types of calls.

The text is valid Python syntax, so that Python's own grammar carries precedence and blocks. Integer literals
are int32, float literals float32, as in the kernel language; everything else spells its type.
"""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Op

from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import ATOMIC_KINDS, FOR_KINDS, REDUCE_KINDS, SCAN_KINDS
from tilec.ir.nodes.threads import LANE_KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

#: Node class -> (operator, precedence as in Python; larger binds tighter). Div is here for floats only.
BINARY = {
    tirx.Or: ("or", 3),
    tirx.And: ("and", 4),
    tirx.LT: ("<", 6),
    tirx.LE: ("<=", 6),
    tirx.GT: (">", 6),
    tirx.GE: (">=", 6),
    tirx.EQ: ("==", 6),
    tirx.NE: ("!=", 6),
    tirx.BitwiseOr: ("|", 7),
    tirx.BitwiseXor: ("^", 8),
    tirx.BitwiseAnd: ("&", 9),
    tirx.LShift: ("<<", 10),
    tirx.RShift: (">>", 10),
    tirx.Add: ("+", 11),
    tirx.Sub: ("-", 11),
    tirx.Mul: ("*", 12),
    tirx.Div: ("/", 12),
    tirx.FloorDiv: ("//", 12),
    tirx.FloorMod: ("%", 12),
}
NOT = 5
COMPARISON = 6
UNARY = 13
ATOM = 15

#: Nodes that are written as calls of two operands.
CALLED = {tirx.Min: "min", tirx.Max: "max", tirx.Div: "truncdiv", tirx.Mod: "truncmod"}

#: Words of expressions that are no intrinsic of TVM.
EXPR_WORDS = frozenset(
    "min max truncdiv truncmod cast reinterpret select let ramp broadcast shuffle call".split()
)
#: Words of statements that no variable is called by. Texts in libraries depend on them: words of later
#: statements do not join, since where a word stands tells it from a name.
STMT_WORDS = frozenset(
    "kernel dim tensor scalar alloc launch copy fill gemm assume node parallel pipelined sync "
    "thread_return thread_reduce "
    "alloc_barriers thread_group barrier_arrive barrier_expect barrier_wait bulk_load "
    "cluster_barrier cluster_copy grid_barrier named_arrive".split()
) | {
    *FOR_KINDS,
    *(f"reduce_{kind}" for kind in REDUCE_KINDS),
    *(f"scan_{kind}" for kind in SCAN_KINDS),
    *(f"atomic_{kind}" for kind in ATOMIC_KINDS),
    *(f"lane_{kind}" for kind in LANE_KINDS),
}

#: Intrinsics whose result is bool, whatever their arguments.
PREDICATES = frozenset(["isnan", "isinf", "isfinite", "isnullptr"])

DTYPE = re.compile(r"(bool|b?float\d+(_\w+)?|u?int\d+|handle)(x\d+)?")


def is_float(dtype: str) -> bool:
    """Whether ``dtype`` is a floating-point type, bfloat16 and float8 included."""
    return dtype.startswith(("float", "bfloat"))


def find_op(word: str) -> Op | None:
    """The intrinsic that a short word names: ``exp`` is ``tirx.exp``, ``likely`` is ``prim.likely``."""
    for space in ("tirx", "prim"):
        try:
            return Op.get(f"{space}.{word}")
        except AttributeError:
            continue
    return None


def result_dtype(word: str, args: Sequence[Expr]) -> str | None:
    """The dtype that a call written with the short ``word`` has, or None where the text must spell it."""
    if word in PREDICATES:
        return "bool"
    carrier = args[1:2] if word == "if_then_else" else args[:1]
    return dtype_of(carrier[0]) if carrier and hasattr(carrier[0].ty, "dtype") else None


def is_reserved(name: str) -> bool:
    """Whether a variable must not be called so in the text."""
    taken = keyword.iskeyword(name) or name in EXPR_WORDS or name in STMT_WORDS
    return taken or DTYPE.fullmatch(name) is not None


class Names:
    """One distinct identifier per variable, from its own name, in order of first use."""

    def __init__(self) -> None:
        self._names: dict[Var, str] = {}
        self._taken: set[str] = set()

    def of(self, var: Var) -> str:
        """The identifier of ``var``; a new one at its first use."""
        found = self._names.get(var)
        if found is None:
            found = self._names[var] = self.fresh(str(var.name))
        return found

    def fresh(self, wish: str) -> str:
        """An identifier that nothing has yet: ``wish``, or ``wish_1``, ``wish_2``... Where they read as types
        with a number behind, too (``float32_sum``), a letter stands in front, as before a digit."""
        base = re.sub(r"\W", "_", wish) or "v"
        base = f"v{base}" if base[0].isdigit() or DTYPE.fullmatch(f"{base}_1") else base
        name, count = base, 0
        while name in self._taken or is_reserved(name):
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name
