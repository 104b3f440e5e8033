"""What elementwise loops over an accumulator may hold: arithmetic with code here, on their own elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import Call

from tilec.backends.cuda.warp_roles.neighbours import stays_in_pairs
from tilec.backends.cuda.warp_roles.tma import TENSORS
from tilec.backends.cuda.warp_roles.unfit import about, need
from tilec.ir.exprs import dtype_of, int_value, substitute, uses, walk
from tilec.ir.nodes import Atomic, Parallel, Stmt, Store
from tilec.ir.traits import expressions, loads_of
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Elements of epilogues; calls that take any of them; what other functions take and give.
_ELEMENTS = ("float16", "bfloat16", "float32", "int32")
_CALLS = (
    *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "fabs", "if_then_else"),
    *("floor", "ceil", "trunc", "round", "nearbyint"),
)
#: Functions of 32 bits without branches, by the names that TVM and CUDA have. Sines that are accurate for
#: all numbers branch for each element: where warpgroups take turns at tiles, they take longer than where two
#: share one (H200, 8192^3: 1699 us and 1669).
_WORDS = ("float32", "int32", "uint32", "bool")
_OF_WORDS = ("reinterpret", "popcount", "clz", "copysign", "isnan", "isinf", "isfinite")
_BY_NAME = tuple(f"__{name}f" for name in ("exp", "exp10", "log", "log2", "log10", "sin", "cos", "fdivide"))


def check_elements(stmt: Stmt, loop: Parallel, fragments: set[Var]) -> None:
    """Every fragment is read and written at (i, j), or read at the other column of a pair, and all arithmetic
    has code here."""
    with about(stmt, "use arithmetic, or one of " + ", ".join((*_CALLS, *_OF_WORDS))):
        for node in (part for expr in expressions(stmt) for part in walk(expr)):
            check_arithmetic(node)
    touched = [(load.source, load.indices) for load in loads_of(stmt)]
    if isinstance(stmt, (Store, Atomic)):
        touched.append((stmt.buffer, stmt.indices))
    for buffer, indices in touched:
        known = buffer in fragments or buffer.scope() in TENSORS
        need(
            known,
            f"its epilogue uses {buffer.name}, which is neither the accumulator's fragment nor a tensor",
            stmt,
            f"read or write the tensor in place of {buffer.name}: results are staged anyway",
        )
        need(
            str(buffer.dtype) in _ELEMENTS,
            f"its epilogue uses elements of {buffer.dtype}",
            stmt,
            f"use {', '.join(_ELEMENTS)}",
        )
        if buffer in fragments:
            own = all(index.same_as(var) for index, var in zip(indices, loop.vars, strict=True))
            need(
                own or _of_pair(stmt, buffer, loop, fragments),
                f"its epilogue reads {buffer.name} across elements",
                stmt,
                f"use {buffer.name}[{', '.join(str(var.name) for var in loop.vars)}] alone",
            )


def _of_pair(stmt: Stmt, buffer: Var, loop: Parallel, fragments: set[Var]) -> bool:
    """Whether a statement reads its own pair of columns of a fragment that its loop does not write."""
    return buffer not in written_in(loop.body) and stays_in_pairs(stmt, loop.vars, fragments)


def check_arithmetic(node: Expr) -> None:
    """Unfit for an operation that has no code here."""
    check_call(node)
    divides = isinstance(node, (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod))
    if divides and dtype_of(node) != "float32":
        constant = int_value(node.b)
        need(constant is not None and constant > 0, "it divides integers by what is no constant")


def check_call(node: Expr) -> None:
    """Unfit for a call that has no code here."""
    name = call_name(node)
    need(name is None or name in _CALLS or _is_of_words(node), f"its epilogue calls {name}")


def _is_of_words(call: Expr) -> bool:
    """Whether a call is one of the functions of numbers of 32 bits."""
    name, values = call_name(call), [call, *call.args]
    if name == "call_pure_extern":
        name, values = str(call.args[0].value), [call, *call.args[1:]]
    return name in (*_OF_WORDS, *_BY_NAME) and all(dtype_of(value) in _WORDS for value in values)


def call_name(node: Expr) -> str | None:
    """The short name of the intrinsic that an expression calls, None where it calls none."""
    if not isinstance(node, Call):
        return None
    return str(getattr(node.op, "name", node.op)).rpartition(".")[2]


def moves_by_one(index: Expr, var: Var) -> bool:
    """Whether ``index`` grows by one with ``var``."""
    return int_value(sym.Analyzer().simplify(substitute(index, {var: var + 1}) - index)) == 1


def bounds(store: Store | Atomic, var: Var) -> Iterator[tuple[Expr, Expr]]:
    """The indices of a store that grow by one with ``var``, and the extents of their axes."""
    for index, extent in zip(store.indices, store.buffer.shape, strict=True):
        if uses(index, (var,)) and moves_by_one(index, var):
            yield index, extent


def one_plus_erf(expr: Expr) -> Expr | None:
    """The x of an expression 1 + erf(x) in float32, as GELU has it; None for others. It is erfc(-x), in fewer
    instructions than erf itself: a warpgroup's epilogue runs beside the products of another one, and every
    instruction of an element counts."""
    if not isinstance(expr, tirx.Add) or dtype_of(expr) != "float32":
        return None
    for one, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if call_name(other) == "erf" and isinstance(one, tirx.FloatImm) and float(one.value) == 1.0:
            return other.args[0]
    return None
