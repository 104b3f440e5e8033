"""ThreadLoop as code of one thread: its registers' iterations, with vector loads and stores around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.tirx.script import builder as T

from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import terms
from tilec.ir.nodes import Bind, Block, For, Stmt, Store, walk
from tilec.lowering.cpu.access import open_bounds
from tilec.lowering.cpu.accesses import accesses
from tilec.lowering.cpu.emit import learn_binding, sequence
from tilec.lowering.cpu.storage import element_bytes
from tilec.lowering.cpu.uses import expressions, written_in
from tilec.lowering.cuda.context import DeviceContext, Part
from tilec.lowering.cuda.emit import call, emit, emit_block, guarded, once_tests
from tilec.lowering.cuda.nodes import ThreadLoop
from tilec.lowering.cuda.vectors import WIDEST, vector_width
from tilec.lowering.exprs import all_of, dtype_of, loads, same, uses

if TYPE_CHECKING:
    from tvm.ir import Expr

WARP = 32


@emit.register(ThreadLoop)
def _emit_thread_loop(stmt: ThreadLoop, ctx: DeviceContext) -> tirx.Stmt | None:
    body = stmt.body
    _note_scalar_accesses(stmt, ctx)
    return over_layout(
        stmt.vars, stmt.extents, stmt.layout, stmt.vector, lambda: _Vector(stmt, body, ctx).emit(), ctx
    )


def _note_scalar_accesses(stmt: ThreadLoop, ctx: DeviceContext) -> None:
    """Names the global buffers that a loop of neighbouring elements moves one by one."""
    if stmt.extents[-1] == 1 or stmt.vector > 1:
        return
    for item in accesses(stmt.body):
        if (
            item.buffer.scope().startswith("global")
            and item.indices
            and uses(item.indices[-1], (stmt.vars[-1],))
        ):
            verb = "written" if item.is_write else "read"
            ctx.note(
                f"{item.buffer.name} is {verb} element by element: extents and strides of its rows are not "
                "known to be multiples of a vector"
            )


def over_layout(
    variables: tuple[Var, ...],
    extents: tuple[int, ...],
    layout: Layout,
    vector: int,
    body: Callable[[], tirx.Stmt | None],
    ctx: DeviceContext,
) -> tirx.Stmt | None:
    """``body`` once per vector of iterations that this thread has under ``layout``, the variables being
    defined (the last one at the start of the vector)."""
    loops: list[tuple[Var, int]] = []
    with ctx.scope(), ctx.once_scope(replica_zero(layout, ctx)):
        guards, binds = [], []
        for axis, var in enumerate(variables):
            ctx.facts.bind_range(var, 0, extents[axis])
            step = vector if axis == len(variables) - 1 else 1
            parts = parts_of(layout, axis, step, loops, ctx)
            ctx.digits[var] = tuple(parts)
            value = convert_sum(parts, dtype_of(var))
            new = ctx.define(var)
            binds.append(tirx.Bind(new, value))
            if layout.shape[axis] > extents[axis]:
                guards.append(tirx.LT(new, tirx.const(extents[axis], dtype_of(var))))
        inner = body()
    if inner is None:
        return None
    result = sequence([*binds, guarded(inner, guards)])
    for var, size in reversed(loops):
        result = tirx.For(var, tirx.const(0), tirx.const(size), tirx.ForKind.UNROLLED, result)
    return result


def parts_of(
    layout: Layout, axis: int, vector: int, loops: list[tuple[Var, int]], ctx: DeviceContext
) -> list[Part]:
    """The digits of one variable; registers beyond the vector become loops, added to ``loops``."""
    parts = []
    for term in terms(layout, axis):
        weight, size = term.weight, term.size
        if term.space != "reg":
            parts.append(Part(weight, size, thread_digit(term.space, term.stride, size, ctx), False))
            continue
        if weight == 1 and vector > 1:
            parts.append(Part(1, vector, tirx.const(0, "int32"), True))
            weight, size = vector, size // vector
        if size > 1:
            var = ctx.fresh("r", "int32")
            ctx.facts.bind_range(var, 0, size)
            loops.append((var, size))
            parts.append(Part(weight, size, var, True))
    return parts


def thread_digit(space: str, stride: int, size: int, ctx: DeviceContext) -> Expr:
    """The value of a lane or warp digit in this thread."""
    place, count = (ctx.lane, WARP) if space == "lane" else (ctx.warp, ctx.warps)
    assert place is not None
    value = place if stride == 1 else tirx.truncdiv(place, tirx.const(stride, "int32"))
    return value if stride * size >= count else tirx.truncmod(value, tirx.const(size, "int32"))


def convert_sum(parts: list[Part], dtype: str) -> Expr:
    """The index that the digits spell."""
    total: Expr = tirx.const(0, "int32")
    for part in parts:
        total = total + (part.value if part.weight == 1 else part.value * tirx.const(part.weight, "int32"))
    return total if dtype == "int32" else tirx.Cast(dtype, total)


def replica_zero(layout: Layout, ctx: DeviceContext) -> Expr | None:
    """Where several threads have the same iterations, the condition that picks one; else None."""
    tests = []
    for space, place, count in (("lane", ctx.lane, WARP), ("warp", ctx.warp, ctx.warps)):
        used = [term for axis in range(len(layout.digits)) for term in terms(layout, axis)
                if term.space == space]  # fmt: skip
        total = 1
        for term in used:
            total *= term.size
        if total < count:
            own: Expr = tirx.const(0, "int32")
            for term in used:
                own = own + thread_digit(space, term.stride, term.size, ctx) * term.stride
            tests.append(tirx.EQ(own, place))
    return all_of(tests) if tests else None


class _Vector:
    """The iterations of one vector: loads ahead, the body per element, stores behind."""

    def __init__(self, stmt: ThreadLoop, body: Block, ctx: DeviceContext) -> None:
        self.stmt, self.body, self.ctx = stmt, body, ctx
        self.var, self.width = stmt.vars[-1], stmt.vector
        self.written = written_in(body)
        self.held: list[tuple[TensorLoad, Var, int]] = []
        self.kept: dict[int, tuple[Store, Var, int]] = {}

    def emit(self) -> tirx.Stmt | None:
        """The code of all iterations of the vector."""
        if self.width == 1:
            return emit_block(self.body, self.ctx)
        for inner in walk(self.body):
            if isinstance(inner, Bind):
                learn_binding(inner, self.ctx)
        ahead = self._loads()
        stores = self._plan_stores()
        base = self.ctx.env[self.var]
        parts: list[tirx.Stmt] = []
        for element in range(self.width):
            with self.ctx.scope():
                part = self._iteration(element, base)
            parts += [part] if part is not None else []
        return sequence([*ahead, *stores, *parts, *self._flush()])

    def _iteration(self, element: int, base: Expr) -> tirx.Stmt | None:
        ctx = self.ctx
        first, *rest = ctx.digits[self.var]
        ctx.digits[self.var] = (Part(1, first.size, tirx.const(element, "int32"), True), *rest)
        ctx.env[self.var] = base + tirx.const(element, dtype_of(self.var))
        place = [tirx.const(element, "int32")]
        done = [(load, tirx.BufferLoad(tmp, place)) for load, tmp, _ in self.held]
        with ctx.hoist_scope(done):
            parts = [self._stmt(stmt, place) for stmt in self.body]
        ctx.digits[self.var] = (first, *rest)
        return sequence([part for part in parts if part is not None])

    def _stmt(self, stmt: Stmt, place: list[Expr]) -> tirx.Stmt | None:
        kept = self.kept.get(id(stmt))
        if kept is None:
            return emit(stmt, self.ctx)
        store, tmp, _ = kept
        if self._copied(store) is not None:
            return None
        return tirx.BufferStore(tmp, self.ctx.stored(store.value, str(store.buffer.dtype)), place)

    def _copied(self, store: Store) -> Var | None:
        """The registers that a store writes as they were loaded; None where it computes anything."""
        for load, tmp, _ in self.held:
            if same(load, store.value) and str(load.source.dtype) == str(store.buffer.dtype):
                return tmp
        return None

    # ---- loads ----

    def _loads(self) -> list[tirx.Stmt]:
        """Loads every vector that the body reads element by element into registers of its own."""
        parts: list[tirx.Stmt] = []
        inner = {stmt.var for stmt in walk(self.body) if isinstance(stmt, Bind)}
        inner |= {stmt.var for stmt in walk(self.body) if isinstance(stmt, For)}
        for stmt in walk(self.body):
            for expr in expressions(stmt):
                for load in loads(expr):
                    parts += self._hoist(load, inner)
        return parts

    def _hoist(self, load: TensorLoad, inner: set[Var]) -> list[tirx.Stmt]:
        if not self._is_memory(load.source) or load.source in self.written:
            return []
        indices = tuple(self.ctx.facts.inline(index) for index in load.indices)
        if any(uses(index, inner) for index in indices) or any(
            same(load, other) for other, _, _ in self.held
        ):
            return []
        if any(other.source in self.written for index in indices for other in loads(index)):
            return []
        width = vector_width(load.source, indices, self.var, self.width, self.ctx.facts)
        if width == 1:
            return []
        tmp = self._registers(load.source, "v")
        self.held.append((load, tmp, width))
        return [tirx.AllocBuffer(tmp), *self._chunks(load.source, indices, tmp, width, load_vector)]

    def _is_memory(self, buffer: Var) -> bool:
        return str(buffer.scope()).startswith(("shared", "global"))

    def _registers(self, buffer: Var, prefix: str) -> Var:
        data = self.ctx.storage(buffer).data
        name = self.ctx.fresh(f"{buffer.name}_{prefix}", "int32").name
        return tirx.decl_buffer((self.width,), str(data.dtype), name=name, scope="local")

    def _chunks(
        self, buffer: Var, indices: tuple[Expr, ...], tmp: Var, width: int, move: Callable[..., tirx.Stmt]
    ) -> list[tirx.Stmt]:
        """``move`` for each access of ``width`` elements, behind the bounds that are open."""
        ctx, parts = self.ctx, []
        base = ctx.env[self.var]
        for start in range(0, self.width, width):
            with ctx.scope():
                ctx.env[self.var] = base + tirx.const(start, dtype_of(self.var))
                conds = open_bounds(buffer, indices, ctx)
                if conds is None:
                    conds = [tirx.const(False, "bool")]
                place = ctx.storage(buffer).offset([ctx.value(index) for index in indices])
                tests = [ctx.value(all_of(conds))] if conds else []
                parts.append(move(buffer, place, tmp, start, width, tests, ctx))
        return parts

    # ---- stores ----

    def _plan_stores(self) -> list[tirx.Stmt]:
        """Registers for the vectors that the body writes element by element."""
        parts: list[tirx.Stmt] = []
        read = {load.source for stmt in walk(self.body) for e in expressions(stmt) for load in loads(e)}
        count = [stmt.buffer for stmt in walk(self.body) if isinstance(stmt, Store)]
        inner = {stmt.var for stmt in walk(self.body) if isinstance(stmt, Bind)}
        for stmt in self.body:
            if not isinstance(stmt, Store) or not self._is_memory(stmt.buffer):
                continue
            indices = tuple(self.ctx.facts.inline(index) for index in stmt.indices)
            if stmt.buffer in read or count.count(stmt.buffer) > 1 or any(uses(i, inner) for i in indices):
                continue
            if any(load.source in self.written for index in indices for load in loads(index)):
                continue
            width = vector_width(stmt.buffer, indices, self.var, self.width, self.ctx.facts)
            if width > 1:
                copied = self._copied(stmt)
                tmp = self._registers(stmt.buffer, "w") if copied is None else copied
                self.kept[id(stmt)] = (stmt, tmp, width)
                parts += [tirx.AllocBuffer(tmp)] if copied is None else []
        return parts

    def _flush(self) -> list[tirx.Stmt]:
        parts: list[tirx.Stmt] = []
        for store, tmp, width in self.kept.values():
            indices = tuple(self.ctx.facts.inline(index) for index in store.indices)
            move = store_vector if self._copied(store) is None else copy_vector
            parts += self._chunks(store.buffer, indices, tmp, width, move)
        return parts


_MOVE = """
__device__ __forceinline__ void {name}(void* to, const void* from) {{ *({type}*)to = *(const {type}*)from; }}
"""
#: What was loaded as one vector leaves as one: nvcc splits a copy through registers into words.
_PUT = """
__device__ __forceinline__ void tilec_put_16(void* to, const void* from) {
  const uint4 value = *(const uint4*)from;
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :: "l"(__cvta_generic_to_global(to)), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
"""
_WORDS = {1: "uchar", 2: "ushort", 4: "uint", 8: "uint2", 16: "uint4"}


def _move(to: Var, to_place: Expr, source: Var, place: Expr, size: int) -> tirx.Stmt:
    """Moves ``size`` bytes at once."""
    name = f"tilec_move_{size}"
    code = _MOVE.format(name=name, type=_WORDS[size])
    pointers = (to.ptr_to([to_place]), source.ptr_to([place]))
    return call(T.cuda.func_call(name, *pointers, source_code=code))


def load_vector(
    buffer: Var, place: Expr, tmp: Var, start: int, width: int, tests: list[Expr], ctx: DeviceContext
) -> tirx.Stmt:
    """``tmp[start : start + width]`` = the elements from ``place``, zeros where a test fails."""
    storage = ctx.storage(buffer)
    read = _move(tmp, tirx.const(start, "int32"), storage.data, place, width * element_bytes(storage.dtype))
    if not tests:
        return read
    zeros = [
        tirx.BufferStore(tmp, tirx.const(0, str(tmp.dtype)), [tirx.const(start + step, "int32")])
        for step in range(width)
    ]
    return tirx.IfThenElse(all_of(tests), read, sequence(zeros))


def store_vector(
    buffer: Var, place: Expr, tmp: Var, start: int, width: int, tests: list[Expr], ctx: DeviceContext
) -> tirx.Stmt:
    """Writes ``tmp[start : start + width]`` from ``place`` on, where all tests hold."""
    storage = ctx.storage(buffer)
    size = width * element_bytes(storage.dtype)
    write = _move(storage.data, place, tmp, tirx.const(start, "int32"), size)
    return guarded(write, [*tests, *once_tests(buffer, ctx)])


def copy_vector(
    buffer: Var, place: Expr, tmp: Var, start: int, width: int, tests: list[Expr], ctx: DeviceContext
) -> tirx.Stmt:
    """As `store_vector`, for registers that hold what was loaded."""
    storage = ctx.storage(buffer)
    if width * element_bytes(storage.dtype) != WIDEST or not str(buffer.scope()).startswith("global"):
        return store_vector(buffer, place, tmp, start, width, tests, ctx)
    pointers = (storage.data.ptr_to([place]), tmp.ptr_to([start]))
    write = call(T.cuda.func_call("tilec_put_16", *pointers, source_code=_PUT))
    return guarded(write, [*tests, *once_tests(buffer, ctx)])
