"""Device TIR as functions of Metal: statements, and how arguments arrive.

A function takes a buffer for each pointer, then one with the other arguments, each in 8 bytes."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, PointerType, Var

from tilec.backends.cuda.emit.marks import PLACE
from tilec.backends.metal.codegen.expressions import LEAVES, Expressions, operator
from tilec.backends.metal.codegen.helpers import Helpers
from tilec.backends.metal.codegen.words import DEVICE, THREAD, THREADGROUP, Names, Pointer, refused, type_of
from tilec.backends.metal.devices import BUFFERS
from tilec.codegen.statements import StatementWriter
from tilec.errors import CompileError, UnsupportedError
from tilec.ir.exprs import dtype_of, int_value

#: Where local arrays begin: the widest access of a thread.
_ALIGNED = 16
_AXES = {"threadIdx": "here.item", "blockIdx": "here.block"}
_PLACE = (
    "uint3 tilec_grid [[threadgroups_per_grid]]",
    "uint3 tilec_block [[threadgroup_position_in_grid]]",
    "uint3 tilec_thread [[thread_position_in_threadgroup]]",
    "uint tilec_lane [[thread_index_in_simdgroup]]",
)
_HERE = "tilec_place here = {tilec_grid, tilec_block, tilec_thread, tilec_lane};"


class FunctionWriter(StatementWriter):
    """Writes one function, whose blocks have ``threads`` threads; ``helpers`` gets what it calls."""

    def __init__(self, symbol: str, func: Any, threads: int, helpers: Helpers) -> None:
        self.symbol, self.func, self.threads = symbol, func, threads
        self.names = Names()
        self.expressions = Expressions(helpers, self._declared)
        self.shared: list[str] = []
        self.lines: list[str] = []
        self.depth = 1

    def text(self) -> str:
        """The function."""
        params = self._params()
        self.stmt(self.func.body)
        head = f"[[max_total_threads_per_threadgroup({self.threads})]]\nkernel void {self.symbol}(\n    "
        body = "\n".join([f"  {_HERE}", *self.shared, *self.lines])
        return f"{head}{(',' + chr(10) + '    ').join([*params, *_PLACE])}) {{\n{body}\n}}\n"

    # ---- arguments ----

    def _params(self) -> list[str]:
        """The declarations of parameters; scalars are read from the last buffer."""
        params = []
        pointers = [param for param in self.func.params if isinstance(param.ty, PointerType)]
        if len(pointers) >= BUFFERS:
            raise CompileError(
                f"{self.symbol} takes {len(pointers)} tensors and slices of workspace, Metal {BUFFERS - 1}"
            )
        for place, param in enumerate(pointers):
            name, dtype = self.names.fresh(param.name), str(param.ty.element_type.dtype)
            self.expressions.buffers[param] = Pointer(name, DEVICE, dtype)
            params.append(f"device {type_of(dtype)}* {name} [[buffer({place})]]")
        scalars = [param for param in self.func.params if not isinstance(param.ty, PointerType)]
        for place, param in enumerate(scalars):
            self._define(param, _argument(f"given[{place}]", dtype_of(param)))
        return [*params, f"constant long* given [[buffer({len(pointers)})]]"]

    # ---- lines ----

    def line(self, text: str) -> None:
        """One line of the body."""
        self.lines.append(f"{'  ' * self.depth}{text}")

    def _define(self, var: Var, value: str) -> None:
        dtype = dtype_of(var)
        name = self.names.fresh(var.name)
        self.expressions.names[var] = name
        self.line(f"{type_of(dtype)} {name} = {value};")

    def _declared(self, var: Var) -> str:
        name = self.names.fresh(var.name)
        self.line(f"{type_of(dtype_of(var))} {name};")
        return name

    def _block(self, head: str, body: Any) -> None:
        self.line(f"{head} {{")
        self.depth += 1
        self.stmt(body)
        self.depth -= 1

    # ---- statements ----

    def _refused(self, stmt: Any) -> UnsupportedError:
        return refused(type(stmt).__name__)

    def _axis(self, node: Any, extent: Any) -> None:
        kind, _, axis = str(node.thread_tag).partition(".")
        if kind not in _AXES:
            raise refused(f"the axis {node.thread_tag}")
        self.expressions.names[node.var] = f"int({_AXES[kind]}.{axis})"
        if isinstance(extent, Var):
            self.expressions.names.setdefault(extent, f"int(here.blocks.{axis})")

    def _bind(self, stmt: Any) -> None:
        if not isinstance(stmt.var.ty, PointerType):
            self._define(stmt.var, self.expressions.value(stmt.value))
            return
        self._point(stmt.var, stmt.value, str(stmt.var.ty.element_type.dtype))

    def _point(self, var: Var, value: Any, dtype: str) -> None:
        """``var`` points to elements of ``dtype`` where ``value`` points."""
        behind = self.expressions.pointer(value)
        if behind.dtype == dtype and not behind.text.startswith("&"):
            self.expressions.buffers[var] = behind
            return
        name, kind = self.names.fresh(var.name), f"{behind.space} {type_of(dtype)}*"
        self.line(f"{kind} {name} = ({kind})({behind.text});")
        self.expressions.buffers[var] = Pointer(name, behind.space, dtype)

    def _declare(self, stmt: Any) -> None:
        self._point(stmt.buffer, stmt.data, str(stmt.buffer.dtype))

    def _allocate(self, stmt: Any) -> None:
        buffer = stmt.buffer
        dtype, name = str(buffer.dtype), self.names.fresh(buffer.name)
        count = 1
        for extent in buffer.shape:
            count *= int_value(extent) or 1
        is_shared = str(buffer.scope()).startswith("shared")
        space = THREADGROUP if is_shared else THREAD
        self.expressions.buffers[buffer] = Pointer(name, space, dtype)
        if is_shared:
            self.shared.append(f"  alignas({_ALIGNED}) threadgroup {type_of(dtype)} {name}[{count}];")
        else:
            self.line(f"alignas({_ALIGNED}) {type_of(dtype)} {name}[{count}];")

    def _store(self, stmt: Any) -> None:
        value = self.expressions.value(stmt.value)
        self.line(f"{self.expressions.element(stmt.buffer, stmt.indices)} = {value};")

    def _evaluate(self, stmt: Any) -> None:
        call = stmt.value
        if not isinstance(call, Call):
            return
        name = operator(call)
        if name in LEAVES:
            self.line(LEAVES[name])
            return
        if name == "tirx.call_extern" and str(call.args[0].value) == PLACE:
            return
        text = self.expressions.value(call)
        if text:
            self.line(f"{text};")

    # ---- control ----

    def _branch(self, stmt: Any) -> None:
        self._block(f"if ({self.expressions.value(stmt.condition)})", stmt.then_case)
        if stmt.else_case is not None:
            self._block("} else", stmt.else_case)
        self.line("}")

    def _for(self, stmt: Any) -> None:
        name, kind = self.names.fresh(stmt.loop_var.name), type_of(dtype_of(stmt.loop_var))
        low, count = self.expressions.value(stmt.min), self.expressions.value(stmt.extent)
        self.expressions.names[stmt.loop_var] = name
        if stmt.kind == tirx.ForKind.UNROLLED:
            self.line("#pragma clang loop unroll(full)")
        end = count if low == "0" else f"{low} + {count}"
        self._block(f"for ({kind} {name} = {low}; {name} < {end}; ++{name})", stmt.body)
        self.line("}")

    def _while(self, stmt: Any) -> None:
        self._block(f"while ({self.expressions.value(stmt.condition)})", stmt.body)
        self.line("}")


def _argument(text: str, dtype: str) -> str:
    """An argument from its 8 bytes."""
    if dtype == "int64":
        return text
    return f"as_type<float>(int({text}))" if dtype == "float32" else f"{type_of(dtype)}({text})"
