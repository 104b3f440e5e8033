"""Runs statements. Inside a Parallel one statement runs for all iterations of the grid under a mask."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilec.errors import EvalError, UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.exprs import int_value
from tilec.ir.interp import scaled, sparse, threads, tile
from tilec.ir.interp.expressions import Compiler, State
from tilec.ir.interp.parallel import Accumulation, Plan, plan
from tilec.ir.interp.storage import Storage
from tilec.ir.interp.sums import Sums
from tilec.ir.interp.values import cast, numpy_dtype
from tilec.ir.nodes.threads import Lane, LaneLoad, LaneMma, Return, Sync, ThreadReduce
from tilec.ir.places import place_of
from tilec.ir.text.expr_printer import format_expr

_HANDLERS: dict[type[ir.Stmt], Callable[[Machine, Any, Any], None]] = {}


class _Trip:
    """One run of a loop's body: ``stopped`` iterations skip its rest, ``broken`` ones leave the loop."""

    def __init__(self) -> None:
        self.stopped: Any = False
        self.broken: Any = False

    def begin(self) -> None:
        """The next trip: broken iterations stay out."""
        self.stopped = self.broken


class Machine:
    """The state of one call and the statements' meanings. ``reverse``: a grid's last block runs first.
    ``spoils``: as `Sums` has it.

    ``threads`` is the grid of threads while they run statements each, ``ended`` those that have ended."""

    def __init__(self, reverse: bool = False, spoils: bool = False) -> None:
        self.reverse = reverse
        self.sums = Sums(spoils)
        self.state = State()
        self.threads: tuple[int, ...] = ()
        self.ended: Any = False
        self.compile = Compiler()
        self._trips: list[_Trip] = [_Trip()]
        self._plans: dict[ir.Stmt, Plan] = {}
        self._grids: dict[ir.Stmt, tuple[tuple[int, ...], list[np.ndarray]]] = {}
        self._accumulations: dict[ir.Stmt, Accumulation] = {}
        self.expansions: dict[ir.Stmt, ir.Block] = {}

    # Values

    def value(self, expr: Any) -> Any:
        """An expression's value: a scalar, or one per iteration of the grid."""
        return self.compile(expr)(self.state)

    def integer(self, expr: Any) -> int:
        """An integer that is the same in all iterations."""
        known = int_value(expr)
        return int(self.value(expr)) if known is None else known

    def bind(self, var: Any, value: Any) -> None:
        """Gives a scalar its value."""
        self.state.scalars[self.compile.number(var)] = value

    def buffer(self, var: Any) -> Storage:
        """The storage of a buffer."""
        return self.state.buffers[self.compile.number(var)]

    def place(self, var: Any, storage: Storage) -> None:
        """Gives a buffer its storage."""
        self.state.buffers[self.compile.number(var)] = storage

    def box(self, region: ir.Region) -> tuple[Storage, list[int], list[int]]:
        """Storage, start and extent of a region."""
        start = [self.integer(part) for part in region.start]
        extent = [max(0, self.integer(part)) for part in region.extent]
        return self.buffer(region.buffer), start, extent

    def read(self, region: ir.Region) -> np.ndarray:
        """A copy of a region's elements."""
        storage, start, extent = self.box(region)
        return storage.load_box(start, extent)

    # Control

    def block(self, body: ir.Block, mask: Any) -> None:
        """The statements of a block, for the iterations of ``mask``."""
        for stmt in body:
            live = self._live(mask)
            if live is not True and not np.any(live):
                return
            self.stmt(stmt, live)

    def stmt(self, stmt: ir.Stmt, mask: Any) -> None:
        """One statement."""
        self.state.mask = mask
        handler = next((_HANDLERS[cls] for cls in type(stmt).__mro__ if cls in _HANDLERS), None)
        if handler is None:
            raise UnsupportedError(f"the interpreter has no {type(stmt).__name__}")
        if not self.threads or not isinstance(stmt, ir.COLLECTIVE):
            return handler(self, stmt, mask)
        with threads.together(self, mask):
            self.state.mask = True
            return handler(self, stmt, True)

    def _live(self, mask: Any) -> Any:
        stopped = self._trips[-1].stopped
        mask = mask if self.ended is False else np.logical_and(mask, np.logical_not(self.ended))
        return mask if stopped is False else np.logical_and(mask, np.logical_not(stopped))

    def stop(self, mask: Any, *, leave: bool) -> None:
        """Ends the trip, or with ``leave`` the loop, for the iterations of ``mask``."""
        trip = self._trips[-1]
        trip.stopped = np.logical_or(trip.stopped, mask)
        if leave:
            trip.broken = np.logical_or(trip.broken, mask)

    def loop(
        self, body: ir.Block, mask: Any, condition: Callable[[], Any], advance: Callable[[], None]
    ) -> None:
        """A sequential loop: ``condition`` before each trip, ``advance`` after it."""
        trip = _Trip()
        self._trips.append(trip)
        while True:
            trip.begin()
            self.state.mask = mask = _whole(self._live(mask))
            mask = _whole(np.logical_and(mask, condition())) if np.any(mask) else False
            if not np.any(mask):
                break
            self.block(body, mask)
            advance()
        self._trips.pop()

    # Parallel

    def parallel(self, stmt: ir.Parallel, mask: Any) -> None:
        """Every iteration once."""
        extents = tuple(max(0, self.integer(extent)) for extent in stmt.extents)
        if 0 in extents:
            return
        values = self._indices(stmt, extents)
        found = self._plan(stmt, extents, values)
        self._trips.append(_Trip())
        if found.together:
            self._together(stmt, extents, values, found)
        else:
            self._one_by_one(stmt, extents)
        self._trips.pop()

    def _indices(self, stmt: ir.Parallel, extents: tuple[int, ...]) -> list[np.ndarray]:
        """The loop variables over the whole grid, one axis each."""
        known = self._grids.get(stmt)
        if known is None or known[0] != extents:
            axes = np.ogrid[tuple(slice(0, extent) for extent in extents)]
            kinds = [numpy_dtype(str(var.ty.dtype)) for var in stmt.vars]
            values = [axis.astype(kind) for axis, kind in zip(axes, kinds, strict=True)]
            known = self._grids[stmt] = (extents, values)
        return known[1]

    def _plan(self, stmt: ir.Parallel, extents: tuple[int, ...], values: list[np.ndarray]) -> Plan:
        known = self._plans.get(stmt)
        if known is not None:
            return known
        self._bind_all(stmt, values)
        found = plan(stmt, lambda store: self._distinct(store, extents))
        if found.always:
            self._plans[stmt] = found
        return found

    def _distinct(self, store: ir.Store, extents: tuple[int, ...]) -> bool:
        """Whether all iterations write different elements."""
        place: Any = np.zeros(extents, np.int64)
        for index in store.indices:
            values = np.asarray(self.value(index)).astype(np.int64)
            place = place * (np.ptp(values) + 1) + (values - values.min())
        return bool(len(np.unique(place)) == place.size)

    def _bind_all(self, stmt: ir.Parallel, values: list[Any]) -> None:
        for var, value in zip(stmt.vars, values, strict=True):
            self.bind(var, value)

    def _together(
        self, stmt: ir.Parallel, extents: tuple[int, ...], values: list[np.ndarray], found: Plan
    ) -> None:
        self._accumulations, self.state.grid = found.accumulations, extents
        self._bind_all(stmt, values)
        self.block(stmt.body, True)
        self._accumulations, self.state.grid = {}, ()

    def _one_by_one(self, stmt: ir.Parallel, extents: tuple[int, ...]) -> None:
        for place in itertools.product(*(range(extent) for extent in extents)):
            kinds = [numpy_dtype(str(var.ty.dtype)).type for var in stmt.vars]
            self._bind_all(stmt, [kind(index) for kind, index in zip(kinds, place, strict=True)])
            self._trips[-1] = _Trip()
            self.block(stmt.body, True)

    def store(self, stmt: ir.Store, mask: Any) -> None:
        """One element, or one per iteration."""
        storage = self.buffer(stmt.buffer)
        indices = [self.value(index) for index in stmt.indices]
        found = self._accumulations.get(stmt)
        if found is None:
            return storage.write(indices, self.value(stmt.value), mask)
        return storage.combine(found.ufunc, indices, self.value(found.value), mask, self.state.grid)


def register(node: type[ir.Stmt]) -> Callable[[Callable[[Machine, Any, Any], None]], Any]:
    """Decorator: the function runs statements of class ``node`` for the iterations of a mask."""

    def add(handler: Callable[[Machine, Any, Any], None]) -> Callable[[Machine, Any, Any], None]:
        _HANDLERS[node] = handler
        return handler

    return add


register(Sync)(threads.run_sync)
register(Return)(threads.run_return)
register(Lane)(threads.run_lane)
register(LaneMma)(threads.run_product)
register(LaneLoad)(threads.run_product)
register(ThreadReduce)(threads.run_thread_reduce)
register(ir.Parallel)(Machine.parallel)
register(ir.Store)(Machine.store)


@register(ir.Alloc)
def _alloc(machine: Machine, stmt: ir.Alloc, mask: Any) -> None:
    shape = tuple(machine.integer(extent) for extent in stmt.buffer.shape)
    dtype = numpy_dtype(str(stmt.buffer.dtype))
    if stmt.buffer.scope() == "global.address":
        strides = tuple(machine.integer(stride) for stride in stmt.buffer.strides)
        machine.place(stmt.buffer, Storage.at_address(machine.integer(stmt.init), shape, dtype, strides))
        return
    storage = Storage.undefined(shape, dtype, threads.owners(machine, stmt.buffer))
    if stmt.init is not None:
        init = np.asarray(machine.value(stmt.init))
        storage.array[...] = init.reshape(init.shape + (1,) * len(shape))
    elif stmt.buffer.scope() == "local.var":
        storage.array[...] = np.zeros((), dtype)
    machine.place(stmt.buffer, storage)


@register(ir.Bind)
def _bind(machine: Machine, stmt: ir.Bind, mask: Any) -> None:
    machine.bind(stmt.var, machine.value(stmt.value))


@register(ir.Atomic)
def _atomic(machine: Machine, stmt: ir.Atomic, mask: Any) -> None:
    storage = machine.buffer(stmt.buffer)
    if stmt.kind in ("load", "store"):
        return _atomic_access(machine, stmt, mask)
    if machine.threads and stmt.prev is not None:
        return threads.run_atomic(machine, stmt, tile.update(stmt.kind, storage.dtype), mask)
    indices = [machine.value(index) for index in stmt.indices]
    value = machine.value(stmt.value)
    if stmt.prev is not None:
        machine.bind(stmt.prev, storage.read(indices))
    return storage.combine(tile.update(stmt.kind, storage.dtype), indices, value, mask, machine.state.grid)


def _atomic_access(machine: Machine, stmt: ir.Atomic, mask: Any) -> None:
    """A read or a write that leaves nothing to combine."""
    storage, indices = machine.buffer(stmt.buffer), [machine.value(index) for index in stmt.indices]
    if stmt.prev is not None:
        machine.bind(stmt.prev, storage.read(indices))
    if stmt.kind == "store":
        storage.write(indices, machine.value(stmt.value), mask)


@register(ir.Copy)
def _copy(machine: Machine, stmt: ir.Copy, mask: Any) -> None:
    _outside(machine, stmt)
    storage, start, extent = machine.box(stmt.dst)
    storage.store_box(start, tile.reshaped(machine.read(stmt.src), extent))


@register(ir.Fill)
def _fill(machine: Machine, stmt: ir.Fill, mask: Any) -> None:
    _outside(machine, stmt)
    storage, start, extent = machine.box(stmt.dst)
    storage.store_box(start, np.full(tuple(extent), machine.value(stmt.value), storage.dtype))


@register(ir.Gemm)
def _gemm(machine: Machine, stmt: ir.Gemm, mask: Any) -> None:
    _outside(machine, stmt)
    a, b = machine.read(stmt.a), machine.read(stmt.b)
    a = a.swapaxes(-1, -2) if stmt.trans_a else a
    b = b.swapaxes(-1, -2) if stmt.trans_b else b
    storage, start, extent = machine.box(stmt.c)
    old = storage.load_box(start, extent)
    old = np.zeros_like(old) if machine.value(stmt.clear) else old
    storage.store_box(start, machine.sums.matmul(a, b, old))


@register(ir.SparseGemm)
def _sparse_gemm(machine: Machine, stmt: ir.SparseGemm, mask: Any) -> None:
    _outside(machine, stmt)
    a, e, b = (machine.read(region) for region in (stmt.a, stmt.e, stmt.b))
    a, e, b = (
        (part.swapaxes(-1, -2) if turned else part).reshape(-1, part.shape[-2 if turned else -1])
        for part, turned in ((a, stmt.trans_a), (e, stmt.trans_e), (b, stmt.trans_b))
    )
    storage, start, extent = machine.box(stmt.c)
    old = storage.load_box(start, extent)
    old = np.zeros_like(old) if machine.value(stmt.clear) else old
    storage.store_box(start, machine.sums.matmul(sparse.expanded(a, e), b, old))


@register(ir.ScaledGemm)
def _scaled_gemm(machine: Machine, stmt: ir.ScaledGemm, mask: Any) -> None:
    _outside(machine, stmt)
    a, b = (
        scaled.operand(machine.read(numbers), machine.read(scales), stmt.group, turned)
        for numbers, scales, turned in (
            (stmt.a, stmt.sfa, stmt.trans_a),
            (stmt.b, stmt.sfb, not stmt.trans_b),
        )
    )
    storage, start, extent = machine.box(stmt.c)
    old = storage.load_box(start, extent)
    old = np.zeros_like(old) if machine.value(stmt.clear) else old
    storage.store_box(start, machine.sums.matmul(a, b.swapaxes(-1, -2), old))


@register(ir.Reduce)
def _reduce(machine: Machine, stmt: ir.Reduce, mask: Any) -> None:
    _outside(machine, stmt)
    storage, start, extent = machine.box(stmt.dst)
    src = machine.read(stmt.src)
    new = tile.reduce(stmt.kind, src, stmt.axis, storage.dtype, stmt.nan_propagate)
    if stmt.kind == "sum":
        new = machine.sums.checked(new, src, lambda terms: terms.sum(axis=stmt.axis))
    new = new.reshape(extent)
    if not stmt.clear:
        new = tile.combine(stmt.kind, storage.load_box(start, extent), new, stmt.nan_propagate)
    storage.store_box(start, new)


@register(ir.Scan)
def _scan(machine: Machine, stmt: ir.Scan, mask: Any) -> None:
    _outside(machine, stmt)
    storage, start, extent = machine.box(stmt.dst)
    src = machine.read(stmt.src)
    new = tile.scan(stmt.kind, src, stmt.axis, storage.dtype, stmt.reverse)
    if stmt.kind == "sum":
        form = partial(tile.scan, "sum", axis=stmt.axis, dtype=np.dtype(np.float64), reverse=stmt.reverse)
        new = machine.sums.checked(new, src, form)
    storage.store_box(start, tile.reshaped(new, extent))


@register(ir.For)
def _for(machine: Machine, stmt: ir.For, mask: Any) -> None:
    _count(machine, stmt, mask, stmt.step)


@register(ir.Pipelined)
def _pipelined(machine: Machine, stmt: ir.Pipelined, mask: Any) -> None:
    _count(machine, stmt, mask, 1)


def _count(machine: Machine, stmt: ir.For | ir.Pipelined, mask: Any, step_expr: Any) -> None:
    """Start, stop and step are evaluated once, before the first trip."""
    kind = numpy_dtype(str(stmt.var.ty.dtype))
    stop, step = cast(machine.value(stmt.stop), kind), cast(machine.value(step_expr), kind)
    current = [cast(machine.value(stmt.start), kind)]

    def condition() -> Any:
        machine.bind(stmt.var, current[0])
        return np.where(np.greater(step, 0), np.less(current[0], stop), np.greater(current[0], stop))[()]

    def advance() -> None:
        current[0] = current[0] + step

    machine.loop(stmt.body, mask, condition, advance)


@register(ir.While)
def _while(machine: Machine, stmt: ir.While, mask: Any) -> None:
    machine.loop(stmt.body, mask, lambda: machine.value(stmt.cond), lambda: None)


@register(ir.If)
def _if(machine: Machine, stmt: ir.If, mask: Any) -> None:
    cond = machine.value(stmt.cond)
    for taken, body in ((cond, stmt.then), (np.logical_not(cond), stmt.orelse)):
        wanted = taken if mask is True else np.logical_and(mask, taken)
        if np.any(wanted):
            machine.block(body, _whole(wanted))


@register(ir.Break)
def _break(machine: Machine, stmt: ir.Break, mask: Any) -> None:
    machine.stop(mask, leave=True)


@register(ir.Continue)
def _continue(machine: Machine, stmt: ir.Continue, mask: Any) -> None:
    machine.stop(mask, leave=False)


@register(ir.Assume)
def _assume(machine: Machine, stmt: ir.Assume, mask: Any) -> None:
    if not np.all(np.logical_or(machine.value(stmt.cond), np.logical_not(mask))):
        raise EvalError(f"the assumption {format_expr(stmt.cond)} does not hold")


@register(ir.Check)
def _check(machine: Machine, stmt: ir.Check, mask: Any) -> None:
    if not np.all(np.logical_or(machine.value(stmt.cond), np.logical_not(mask))):
        raise EvalError(stmt.text, place=place_of(stmt), why=f"{format_expr(stmt.cond)} does not hold")


@register(ir.Print)
def _print(machine: Machine, stmt: ir.Print, mask: Any) -> None:
    """To stderr, one line per iteration of the grid that runs it."""
    shape = machine.state.grid
    values = [np.broadcast_to(machine.value(value), shape) for value in stmt.values]
    live = np.broadcast_to(mask, shape)
    for place in np.argwhere(live):
        shown = (_shown(value[tuple(place)]) for value in values)
        sys.stderr.write(stmt.text.format(*shown) + "\n")


def _shown(value: Any) -> str:
    """A number as C's %d and %g write it."""
    whole = np.issubdtype(np.asarray(value).dtype, np.integer) or np.asarray(value).dtype == np.bool_
    return f"{int(value)}" if whole else f"{float(value):g}"


@register(ir.Launch)
def _launch(machine: Machine, stmt: ir.Launch, mask: Any) -> None:
    grid = [machine.integer(extent) for extent in stmt.grid]
    axes = [range(extent)[:: -1 if machine.reverse else 1] for extent in reversed(grid)]
    for place in itertools.product(*axes):
        for var, index in zip(stmt.block_vars, reversed(place), strict=True):
            machine.bind(var, np.int32(index))
        if stmt.thread_vars:
            threads.enter_threads(machine, stmt)
        machine.block(stmt.body, True)
        threads.leave_threads(machine)


def _whole(mask: Any) -> Any:
    """True for a mask that holds everywhere."""
    return True if np.all(mask) else mask


def _outside(machine: Machine, stmt: ir.Stmt) -> None:
    """Tile statements work for the whole block."""
    if machine.state.grid:
        raise UnsupportedError(f"{type(stmt).__name__} inside of a Parallel")
