"""Short forms for building device TIR of specialised launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.device.ptx import instruction
from tilec.ir.guards import largest_dim
from tilec.lowering.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def run(call: Any) -> None:
    """A statement that evaluates ``call``."""
    T.evaluate(call)


def ptx(name: str, *args: Any) -> None:
    """A PTX instruction as a statement."""
    run(instruction(name)(*args))


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
    var = tirx.Var(name, value.ty)
    T.Bind(value, var=var)
    return var


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


_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}


def move(to: Var, source: Var, place: Expr, size: int, first: int = 0) -> None:
    """Moves ``size`` bytes from an element of ``source`` to ``to`` from element ``first`` on, at once."""
    name, word = f"tilec_fetch_{size}", _WORDS[size]
    run(
        T.cuda.func_call(
            name,
            to.ptr_to([first]),
            source.ptr_to([place]),
            source_code=f"__forceinline__ __device__ void {name}(void* to, const void* from) {{\n"
            f"  *({word}*)to = *(const {word}*)from;\n}}\n",
        )
    )


def sigmoid(value: Expr) -> Expr:
    """1 / (1 + exp(-value)) in float32 with the division that has no slow path: its operand is at least 1,
    and beyond 2**126, where the exact division would go that way, the result is below the normal numbers."""
    return T.cuda.func_call(
        "tilec_sigmoid",
        value,
        source_code="__forceinline__ __device__ float tilec_sigmoid(float value) {\n"
        "  return __fdividef(1.0f, 1.0f + expf(-value));\n}\n",
        return_type="float32",
    )


def pin(buffer: Var, count: int) -> None:
    """Keeps what reads the registers of ``buffer`` behind this point: the C++ compiler does not know that
    asynchronous products write them until they are waited for."""
    kind, register = ("float", "f") if str(buffer.dtype) == "float32" else ("unsigned", "r")
    name = f"tilec_pin_{kind}_{count}"
    run(
        T.cuda.func_call(
            name,
            buffer.ptr_to([0]),
            source_code=f"__forceinline__ __device__ void {name}({kind}* values) {{\n"
            f"#pragma unroll\n  for (int i = 0; i < {count}; ++i)"
            f' asm volatile("" : "+{register}"(values[i]) :: "memory");\n}}\n',
        )
    )


def grid_blocks() -> Expr:
    """gridDim.x."""
    return T.cuda.func_call(
        "tilec_grid_blocks",
        source_code="__forceinline__ __device__ int tilec_grid_blocks() { return int(gridDim.x); }\n",
        return_type="int32",
    )


def uniform(value: Expr) -> Expr:
    """An int32 that all lanes of a warp know to be equal, so that what follows from it is computed once."""
    return T.cuda.func_call(
        "tilec_uniform",
        value,
        source_code="__forceinline__ __device__ int tilec_uniform(int value) {\n"
        "  return __shfl_sync(0xffffffffu, value, 0);\n}\n",
        return_type="int32",
    )
