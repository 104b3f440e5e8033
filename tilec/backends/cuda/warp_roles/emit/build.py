"""Short forms for building the device TIR of launches whose warps have roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any, TypeVar

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tilec.backends.cuda.codegen.words import spelled
from tilec.backends.cuda.device import exchange, moves
from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.statements import emit
from tilec.ir.exprs import dtype_of
from tilec.ir.guards import largest_dim

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.ir.nodes import Stmt

Code = TypeVar("Code", bound="Callable[[Any, Any], None]")


def add(part: tirx.Stmt | None) -> None:
    """Adds a statement that code for all GPUs has made."""
    if part is not None:
        T.add_to_parent(part)


def emits(kind: type[Stmt]) -> Callable[[Code], Code]:
    """Registers the code of a statement that may stand in what code for all GPUs emits: a function that adds
    it to the function under way."""

    def register(code: Code) -> Code:
        emit.register(kind)(lambda stmt, ctx: _built(code, stmt, ctx))
        return code

    return register


def _built(code: Code, stmt: Stmt, ctx: DeviceContext) -> tirx.Stmt:
    zero = tirx.const(0, "int32")
    with IRBuilder() as builder, T.attr(zero, "apart", zero):
        code(stmt, ctx)
    return builder.get().body


def run(call: Any) -> None:
    """A statement that evaluates ``call``."""
    T.evaluate(call)


def ptx(name: str, *args: Any) -> None:
    """A PTX instruction as a statement."""
    run(instruction(name)(*args))


def cached(name: str, evict: str | None) -> tuple[str, tuple[Expr, ...]]:
    """A bulk copy whose lines leave the L2 cache ``evict``: its name, and the operand that says so."""
    if evict is None:
        return name, ()
    return f"{name}.L2::cache_hint", (tirx.const(moves.EVICTION[evict], "uint64"),)


def i32(value: int) -> Expr:
    """An int32 constant."""
    return tirx.const(value, "int32")


def coordinate(index: Expr) -> Expr:
    """An index as a coordinate of a tensor map, which has 32 bits: one that they do not hold lies outside."""
    if dtype_of(index) == "int32":
        return index
    low, high = (tirx.const(sign * largest_dim(32), dtype_of(index)) for sign in (-1, 1))
    return tirx.Cast("int32", tirx.max(tirx.min(index, high), low))


def u32(value: Expr | int) -> Expr:
    """``value`` as uint32."""
    return tirx.const(value, "uint32") if isinstance(value, int) else tirx.Cast("uint32", value)


def let(name: str, value: Expr) -> Var:
    """A name for ``value``."""
    var = tirx.Var(spelled(name), value.ty)
    T.Bind(value, var=var)
    return var


def tile_count(extents: Sequence[Var]) -> Expr:
    """The tiles of a grid, or of some of its axes."""
    return reduce(mul, extents)


def registers(count: int, dtype: str) -> Var:
    """An array in registers."""
    return T.alloc_buffer((count,), dtype, scope="local")


def cell(value: Expr | int) -> Var:
    """A mutable int32."""
    made = registers(1, "int32")
    put(made, i32(value) if isinstance(value, int) else value)
    return made


def put(buffer: Var, value: Expr, at: int = 0) -> None:
    """Stores one element."""
    T.buffer_store(buffer, value, [at])


@contextmanager
def when(condition: Expr) -> Iterator[None]:
    """Statements under a condition."""
    with T.If(condition), T.Then():
        yield


def move(to: Var, source: Var, place: Expr, size: int, first: int = 0) -> None:
    """Moves ``size`` bytes from an element of ``source`` to ``to`` from element ``first`` on, at once."""
    run(moves.fetch(size).call(to.ptr_to([first]), source.ptr_to([place])))


def pin(buffer: Var, count: int) -> None:
    """Keeps what reads the registers of ``buffer`` behind this point."""
    run(exchange.pin(str(buffer.dtype), count).call(buffer.ptr_to([0])))
