"""What emission of a specialised launch knows: parameters, shared memory, registers, the current role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.device.floats import ONE_PLUS_ERF, SIGMOID
from tilec.backends.cuda.emit.context import mark_of
from tilec.backends.cuda.emit.narrow import LEAVING, NARROW, combined
from tilec.backends.cuda.matmul.match import call_name
from tilec.backends.cuda.warp_roles.build import run, u32
from tilec.backends.cuda.warp_roles.map_parameters import MapParameters
from tilec.backends.cuda.warp_roles.one_plus_erf import argument_of
from tilec.backends.cuda.warp_roles.tma import element_strides
from tilec.errors import UnsupportedError
from tilec.lowering.exprs import all_of, dtype_of, same, scalar_dtype, transform
from tilec.lowering.passes.expand_copies import cast_to

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.matmul.emit_residual import Residual
    from tilec.backends.cuda.warp_roles.nodes import Ring, Roles, TileOrder
    from tilec.ir.nodes import Stmt
    from tilec.lowering.analysis.facts import Facts


@dataclass(frozen=True)
class SharedPlan:
    """Byte offsets in dynamic shared memory: tiles by buffer, staging of one warpgroup after the other, parts
    of sums, full and empty barriers of the ring, the two barriers of an exchange of parts,
    those of residuals."""

    tiles: Mapping[Var, int]
    staging: int
    staging_bytes: int
    parts: int
    barriers: int
    exchange: int
    total: int
    residual: int = 0


@dataclass(eq=False)
class Context(MapParameters):
    """State of one launch's emission. ``rank`` is the block's in its cluster, ``loader`` the number of a
    thread among those that load, ``is_last`` whether a block's tile is its last one. ``values`` are what
    kernel variables stand for here; ``tensors`` the flat buffers behind pointers; ``maps`` the tensor map
    parameters; ``fragments`` registers by fragment; ``scalars`` those of mutable scalars; ``loaded`` what
    elements that are in registers stand for; ``present`` whether the block's tile lies in the grid, None
    where all do; ``crossed`` whether the tiles of its pair lie along the other axis (`TileOrder`); ``marks``
    as in `tilec.backends.cuda.emit.context.DeviceContext`."""

    facts: Facts
    roles: Roles
    ring: Ring
    shared: SharedPlan
    base: Expr
    thread: Expr
    group: Expr
    rank: Expr
    order: TileOrder
    loader: Expr
    is_last: Expr | None = None
    values: dict[Var, Expr] = field(default_factory=dict)
    tensors: dict[Var, Var] = field(default_factory=dict)
    maps: dict[int, Expr] = field(default_factory=dict)
    fragments: dict[Var, Var] = field(default_factory=dict)
    residuals: dict[int, Residual] = field(default_factory=dict)
    scalars: dict[Var, Var] = field(default_factory=dict)
    loaded: list[tuple[TensorLoad, Expr]] = field(default_factory=list)
    present: Expr | None = None
    crossed: Expr | None = None
    marks: bool = False

    def mark(self, stmt: Stmt) -> None:
        """Says where the code that follows comes from, where ``marks`` asks for it."""
        mark = mark_of(stmt) if self.marks else None
        if mark is not None:
            run(mark)

    @contextmanager
    def scope(self, values: Mapping[Var, Expr]) -> Iterator[None]:
        """Within it variables have other values too."""
        before = dict(self.values)
        self.values.update(values)
        try:
            yield
        finally:
            self.values = before

    @contextmanager
    def loaded_from(self, pairs: Sequence[tuple[TensorLoad, Var]], side: int) -> Iterator[None]:
        """Within it the loads of ``pairs`` are elements ``side`` of their registers."""
        at = [tirx.const(side, "int32")]
        self.loaded = [(load, tirx.BufferLoad(pair, at)) for load, pair in pairs]
        try:
            yield
        finally:
            self.loaded = []

    @property
    def share(self) -> Expr:
        """The number of the warpgroup among those that share a tile."""
        return tirx.const(0, "int32") if self.roles.pingpong else self.group

    # ---- addresses ----

    def full(self, stage: Expr) -> Expr:
        """The barrier that a stage's loads complete."""
        return self.base + u32(self.shared.barriers) + u32(stage) * u32(8)

    def empty(self, stage: Expr) -> Expr:
        """The barrier that consumers of a stage arrive at."""
        return self.full(stage) + u32(8 * self.ring.stages)

    # ---- expressions ----

    def expr(self, expr: Expr, register: int | None = None) -> Expr:
        """``expr`` over device variables; fragments are read at ``register``. Global elements outside of
        their tensor are 0."""

        def visit(node: Expr) -> Expr | None:
            if isinstance(node, TensorLoad):
                return self._load(node, register)
            if call_name(node) == "sigmoid" and dtype_of(node) == "float32":
                return SIGMOID.call(self.expr(node.args[0], register))
            argument = argument_of(node)
            if argument is not None:
                return ONE_PLUS_ERF.call(self.expr(argument, register))
            if type(node) in LEAVING and scalar_dtype(node) in NARROW:
                left, right = self.expr(node.a, register), self.expr(node.b, register)
                return combined(type(node), left, right, self.facts.analyzer)
            return self.values.get(node) if isinstance(node, Var) else None

        return transform(expr, visit)

    def _load(self, node: TensorLoad, register: int | None) -> Expr:
        if node.source in self.fragments and register is not None:
            held = tirx.BufferLoad(self.fragments[node.source], [tirx.const(register, "int32")])
            return cast_to(held, str(node.source.dtype))
        if node.source in self.scalars:
            return tirx.BufferLoad(self.scalars[node.source], [tirx.const(0, "int32")])
        known = next((value for load, value in self.loaded if same(load, node)), None)
        if known is not None:
            return known
        if node.source not in self.tensors:
            raise UnsupportedError(
                f"an epilogue that reads {node.source.name}",
                why="on sm_90a it reads fragments, scalars and tensors alone",
                remedy="read the tensor itself in the epilogue",
            )
        indices = tuple(node.indices)
        place = self.offset(node.source, indices, register)
        value = tirx.BufferLoad(self.tensors[node.source], [place])
        inside = self.inside(node.source, indices, register)
        if inside is None:
            return value
        return tirx.if_then_else(inside, value, tirx.const(0, str(node.source.dtype)))

    def offset(self, buffer: Var, indices: tuple[Expr, ...], register: int | None = None) -> Expr:
        """The flat index of a global element."""
        total: Expr = tirx.const(0, "int64")
        for index, stride in zip(indices, element_strides(buffer), strict=True):
            step = tirx.const(stride, "int64") if isinstance(stride, int) else self.expr(stride)
            total = total + tirx.Cast("int64", self.expr(index, register)) * tirx.Cast("int64", step)
        return total

    def inside(self, buffer: Var, indices: tuple[Expr, ...], register: int | None = None) -> Expr | None:
        """The condition that an element lies in its tensor; None where it is known to."""
        conditions = []
        for index, extent in zip(indices, buffer.shape, strict=True):
            limit = extent if dtype_of(extent) == dtype_of(index) else tirx.Cast(dtype_of(index), extent)
            for condition in (index >= tirx.const(0, dtype_of(index)), index < limit):
                if self.facts.prove(condition) is not True:
                    conditions.append(self.expr(condition, register))
        return all_of(conditions) if conditions else None
