"""What emission of launches whose warps have roles knows: shared memory, registers, parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.tirx.script import builder as T

from tilec.backends.cuda.device.floats import ONE_PLUS_ERF, SIGMOID
from tilec.backends.cuda.emit.emitter import DeviceEmitter
from tilec.backends.cuda.emit.marks import mark_of
from tilec.backends.cuda.emit.numbers.narrow import LEAVING, NARROW, combined
from tilec.backends.cuda.warp_roles.emit.barriers import Barriers
from tilec.backends.cuda.warp_roles.emit.build import run, u32
from tilec.backends.cuda.warp_roles.epilogue import call_name, one_plus_erf
from tilec.backends.cuda.warp_roles.neighbours import Column
from tilec.backends.cuda.warp_roles.ring import place_tiles
from tilec.backends.cuda.warp_roles.tma import element_strides
from tilec.errors import UnsupportedError
from tilec.ir.exprs import all_of, cast_to, dtype_of, same, scalar_dtype, transform

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.warp_roles.nodes import Ring, Roles, TensorMap
    from tilec.ir.nodes import Stmt


@dataclass(frozen=True, eq=False)
class SharedPlan:
    """Byte offsets in dynamic shared memory: ``tiles`` by buffer, ``steps`` from one version of each to the
    next, ``places`` of all else by name; ``total`` is what it takes."""

    tiles: Mapping[Var, int]
    steps: Mapping[Var, int]
    places: Mapping[object, int]
    total: int

    @classmethod
    def of(
        cls, tiles: Iterable[Var], sizes: Mapping[Any, int], together: Sequence[Sequence[Var]] = ()
    ) -> SharedPlan:
        """Tiles (`tilec.backends.cuda.warp_roles.ring.place_tiles`), and behind them ``sizes`` bytes by name,
        one after the other."""
        offsets, steps, at = place_tiles(tiles, together)
        places = {}
        for name, size in sizes.items():
            places[name] = at
            at += size
        return cls(offsets, steps, places, at)


def _zero() -> Expr:
    return tirx.const(0, "int32")


@dataclass(eq=False, kw_only=True)
class RoleContext(DeviceEmitter):
    """State of the emission of a launch whose warps have roles. ``base`` is the address of shared memory,
    ``warpgroup`` the number of a thread's warpgroup, ``own`` the thread's in it; ``maps`` are tensor map
    parameters by map, ``held`` registers of fragments without a layout, or held as words."""

    roles: Roles
    plan: SharedPlan
    base: Expr = field(default_factory=_zero)
    warpgroup: Expr = field(default_factory=_zero)
    own: Expr = field(default_factory=_zero)
    held: dict[Var, Var] = field(default_factory=dict)

    def mark(self, stmt: Stmt) -> None:
        """Says where the code that follows comes from, where ``marks`` asks for it."""
        mark = mark_of(stmt) if self.marks else None
        if mark is not None:
            run(mark)

    def map_of(self, found: TensorMap) -> Expr:
        """The address of a tensor map parameter."""
        return T.address_of(self.maps[found])

    def shared(self, tile: Var, offset: Expr | int = 0) -> Expr:
        """The shared address of a byte of a tile."""
        start = self.base + u32(self.plan.tiles[tile])
        return start if isinstance(offset, int) and offset == 0 else start + u32(offset)

    def version(self, tile: Var, stage: Expr) -> Expr:
        """The shared address of one version of a tile."""
        return self.shared(tile) + u32(stage) * u32(self.plan.steps[tile])

    def named_place(self, name: object, offset: int = 0) -> Expr:
        """The shared address of what the plan knows by a name."""
        return self.base + u32(self.plan.places[name] + offset)

    def barriers(self, name: object, stages: int) -> Barriers:
        """The barriers of a ring that the plan knows by a name."""
        return Barriers(self.named_place(name), stages)

    @contextmanager
    def scope(self, values: Mapping[Var, Expr] | None = None) -> Iterator[None]:
        """What is defined inside ends with the context; variables have other ``values`` in it."""
        with super().scope():
            self.env.update(values or {})
            yield


@dataclass(eq=False, kw_only=True)
class TileContext(RoleContext):
    """State of the emission of a launch whose sums leave by `TileStore`. ``rank`` is the block's in its
    cluster; ``tensors`` are the flat buffers behind pointers, ``scalars`` the registers of mutable scalars,
    ``loaded`` what elements that are in registers stand for, ``column`` that of the element where others of
    its pair are read, ``staging_bytes`` the staging buffers of one warpgroup."""

    ring: Ring
    staging_bytes: int
    rank: Expr = field(default_factory=_zero)
    tensors: dict[Var, Var] = field(default_factory=dict)
    scalars: dict[Var, Var] = field(default_factory=dict)
    loaded: list[tuple[TensorLoad, Expr]] = field(default_factory=list)
    column: Column | None = None

    @contextmanager
    def loaded_from(self, pairs: Sequence[tuple[TensorLoad, Var]], side: int) -> Iterator[None]:
        """Within it the loads of ``pairs`` are elements ``side`` of their registers."""
        at = [tirx.const(side, "int32")]
        self.loaded = [(load, tirx.BufferLoad(pair, at)) for load, pair in pairs]
        try:
            yield
        finally:
            self.loaded = []

    @contextmanager
    def of_pair(self, column: Column | None) -> Iterator[None]:
        """Within it elements are those of a column, and may be made of both of its pair."""
        self.column = column
        try:
            yield
        finally:
            self.column = None

    @property
    def share(self) -> Expr:
        """The number of the warpgroup among those that share a tile."""
        return tirx.const(0, "int32") if self.roles.pingpong else self.warpgroup

    # ---- addresses ----

    def full(self, stage: Expr) -> Expr:
        """The barrier that a stage's loads complete."""
        return self.barriers("barriers", self.ring.stages).full(stage)

    def empty(self, stage: Expr) -> Expr:
        """The barrier that consumers of a stage arrive at."""
        return self.barriers("barriers", self.ring.stages).empty(stage)

    # ---- expressions ----

    def value(self, expr: Expr, register: int | None = None) -> Expr:
        """``expr`` over device variables; fragments are read at ``register``. Global elements outside of
        their tensor are 0."""

        def visit(node: Expr) -> Expr | None:
            if isinstance(node, TensorLoad):
                return self._load(node, register)
            chosen = None if self.column is None else self.column.chosen(node)
            if chosen is not None:
                return self.value(chosen, register)
            if call_name(node) == "sigmoid" and dtype_of(node) == "float32":
                return SIGMOID.call(self.value(node.args[0], register))
            argument = one_plus_erf(node)
            if argument is not None:
                return ONE_PLUS_ERF.call(self.value(argument, register))
            if type(node) in LEAVING and scalar_dtype(node) in NARROW:
                left, right = self.value(node.a, register), self.value(node.b, register)
                return combined(type(node), left, right, self.facts.analyzer)
            return self.env.get(node) if isinstance(node, Var) else None

        return transform(expr, visit)

    def _load(self, node: TensorLoad, register: int | None) -> Expr:
        if node.source in self.held and register is not None:
            place = tirx.const(register + self._across(node), "int32")
            held = tirx.BufferLoad(self.held[node.source], [place])
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
        return self.element(node, self.flat_index(node.source, tuple(node.indices), register), register)

    def element(self, node: TensorLoad, place: Expr, register: int | None = None) -> Expr:
        """The element of a tensor at a flat index; 0 where it lies outside."""
        value = tirx.BufferLoad(self.tensors[node.source], [place])
        inside = self.inside(node.source, tuple(node.indices), register)
        if inside is None:
            return value
        return tirx.if_then_else(inside, value, tirx.const(0, str(node.source.dtype)))

    def flat_index(self, buffer: Var, indices: tuple[Expr, ...], register: int | None = None) -> Expr:
        """The flat index of a global element."""
        total: Expr = tirx.const(0, "int64")
        for index, stride in zip(indices, element_strides(buffer), strict=True):
            step = tirx.const(stride, "int64") if isinstance(stride, int) else self.value(stride)
            total = total + tirx.Cast("int64", self.value(index, register)) * tirx.Cast("int64", step)
        return total

    def inside(self, buffer: Var, indices: tuple[Expr, ...], register: int | None = None) -> Expr | None:
        """The condition that an element lies in its tensor; None where it is known to."""
        found = [self.value(each, register) for each in self.tests(buffer, indices)]
        return all_of(found) if found else None

    def tests(self, buffer: Var, indices: tuple[Expr, ...]) -> list[Expr]:
        """What is to be tested before an element may be touched, axis by axis."""
        starts = (index >= tirx.const(0, dtype_of(index)) for index in indices)
        pairs = zip(starts, _limits(buffer, indices), strict=True)
        return self._open([test for pair in pairs for test in pair])

    def ends(self, buffer: Var, indices: tuple[Expr, ...]) -> list[Expr]:
        """The conditions that an element lies in front of the ends of its tensor, but for those that are
        known to hold."""
        return self._open(_limits(buffer, indices))

    def _open(self, conditions: list[Expr]) -> list[Expr]:
        return [each for each in conditions if self.facts.prove(each) is not True]

    def _across(self, node: TensorLoad) -> int:
        """How many registers an element of a fragment lies from that of the column."""
        side = None if self.column is None else self.column.side_of(node.indices[-1])
        return 0 if side is None or self.column is None else side - self.column.side


def _limits(buffer: Var, indices: tuple[Expr, ...]) -> list[Expr]:
    """That each index is in front of its axis' end."""
    found = []
    for index, extent in zip(indices, buffer.shape, strict=True):
        found.append(index < cast_to(extent, dtype_of(index)))
    return found
