"""The threads of a block in lockstep: one statement runs for all of them under a mask.

The grid of a machine is then (z, y, x), so that a thread's number is its place in row-major order. Statements
of the block see one value of what threads have of their own; that it is the same in all of them is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.errors import EvalError
from tilec.ir import nodes as ir
from tilec.ir.analysis.threads.fragments import expanded
from tilec.ir.interp.lanes import of_block, of_warps
from tilec.ir.interp.storage import Storage
from tilec.ir.interp.values import cast, numpy_dtype
from tilec.ir.nodes.threads import (
    BLOCK_VOTES,
    PER_THREAD,
    Lane,
    LaneLoad,
    LaneMma,
    Return,
    Sync,
    ThreadReduce,
)

if TYPE_CHECKING:
    from tilec.ir.interp.machine import Machine

#: Statements that the threads which meet there carry out together.


def enter_threads(machine: Machine, launch: ir.Launch) -> None:
    """One block begins: every thread knows its place."""
    grid = tuple(reversed(launch.threads))
    for var, axis in zip(
        launch.thread_vars, reversed(np.ogrid[tuple(slice(0, n) for n in grid)]), strict=True
    ):
        machine.bind(var, axis.astype(np.int32))
    machine.state.grid, machine.threads, machine.ended = grid, grid, False


def leave_threads(machine: Machine) -> None:
    """The block is over."""
    machine.state.grid, machine.threads, machine.ended = (), (), False


def owners(machine: Machine, buffer: Any) -> tuple[int, ...]:
    """The grid of which every place has a ``buffer`` of its own."""
    shared = machine.threads and buffer.scope() not in PER_THREAD
    return () if shared else machine.state.grid


@contextmanager
def together(machine: Machine, mask: Any) -> Iterator[None]:
    """Within the context a statement runs once, for the threads of ``mask``."""
    state, threads, ended = machine.state, machine.threads, machine.ended
    taken = np.broadcast_to(mask, threads)
    scalars, buffers = state.scalars, state.buffers
    seen = _Buffers(buffers, taken)
    state.scalars, state.buffers = _Scalars(scalars, taken), seen
    state.grid, machine.threads, machine.ended = (), (), False
    try:
        yield
    finally:
        state.scalars, state.buffers = scalars, buffers
        state.grid, machine.threads, machine.ended = threads, threads, ended
        seen.give_back()


class _Scalars(dict[int, Any]):
    """Scalars by number; those that threads have of their own become one value when they are asked for."""

    def __init__(self, outer: dict[int, Any], taken: np.ndarray) -> None:
        super().__init__()
        self._outer, self._taken = outer, taken

    def __missing__(self, number: int) -> Any:
        value = self._outer[number]
        if np.ndim(value):
            found = np.broadcast_to(value, self._taken.shape)[self._taken]
            if not _alike(found).all():
                raise EvalError("a statement of the block reads a value that its threads do not agree on")
            value = found[0]
        self[number] = value
        return value


class _Buffers(dict[int, Storage]):
    """Buffers by number, as `_Scalars`; `give_back` hands every thread what was written to its own."""

    def __init__(self, outer: dict[int, Storage], taken: np.ndarray) -> None:
        super().__init__()
        self._outer, self._taken = outer, taken
        self._own: list[tuple[Storage, _Agreed]] = []

    def __missing__(self, number: int) -> Storage:
        storage = self._outer[number]
        if storage.lanes:
            own = storage.array[self._taken]
            one = self[number] = _Agreed(own[0].copy(), ~_alike(own))
            self._own.append((storage, one))
            return one
        self[number] = storage
        return storage

    def give_back(self) -> None:
        """What the statement wrote, in every thread that took part."""
        for storage, one in self._own:
            storage.array[self._taken] = np.where(one.differs, storage.array[self._taken], one.array)


class _Agreed(Storage):
    """The storage of several threads as one; ``differs`` marks elements that they do not agree on."""

    def __init__(self, array: np.ndarray, differs: np.ndarray) -> None:
        super().__init__(array)
        self.differs = differs

    def read(self, indices: Any) -> Any:
        """The elements, which must be the same in all threads."""
        if np.any(Storage(self.differs).read(indices)):
            raise EvalError("a statement of the block reads an element that its threads do not agree on")
        return super().read(indices)

    def store_box(self, start: Any, box: np.ndarray) -> None:
        """Writes a box; all threads agree on it then."""
        super().store_box(start, box)
        Storage(self.differs).store_box(start, np.zeros(box.shape, np.bool_))


def _alike(values: np.ndarray) -> np.ndarray:
    """Where all entries of the first axis are the same, NaN included."""
    same = values == values[:1]
    if values.dtype.kind not in "biu":
        wide = values.astype(np.float64)
        same = same | (np.isnan(wide) & np.isnan(wide[:1]))
    return np.asarray(same.all(axis=0))


def run_sync(machine: Machine, stmt: Sync, mask: Any) -> None:
    """Threads are in step anyway; whether all of them meet is checked."""
    if stmt.kind != "threads" or stmt.barrier is not None:
        return
    living = np.logical_not(np.broadcast_to(machine.ended, machine.threads))
    if not np.array_equal(np.logical_and(np.broadcast_to(mask, machine.threads), living), living):
        raise EvalError("a barrier of the block stands where only some of its threads come")


def run_return(machine: Machine, stmt: Return, mask: Any) -> None:
    """These threads run nothing more."""
    machine.ended = np.logical_or(machine.ended, np.broadcast_to(mask, machine.threads))


def run_lane(machine: Machine, stmt: Lane, mask: Any) -> None:
    """What each thread gets from the others."""
    operands = [_flat(machine, machine.value(operand)) for operand in stmt.operands]
    taken = _flat(machine, mask)
    if stmt.kind in BLOCK_VOTES:
        found = of_block(stmt.kind, operands[0], taken)
    else:
        limit = None if stmt.mask is None else _flat(machine, machine.value(stmt.mask))
        found = of_warps(stmt.kind, operands, taken, stmt.width, limit)
    dtype = numpy_dtype(str(stmt.var.ty.dtype))
    machine.bind(stmt.var, np.asarray(cast(found, dtype)).reshape(machine.threads))


def run_product(machine: Machine, stmt: LaneMma | LaneLoad, mask: Any) -> None:
    """By shuffles, as a CPU does."""
    if stmt not in machine.expansions:
        machine.expansions[stmt] = expanded(stmt)
    machine.block(machine.expansions[stmt], mask)


def run_thread_reduce(machine: Machine, stmt: ThreadReduce, mask: Any) -> None:
    """Pairs of threads, then pairs of their results, and so on."""
    identity = machine.value(stmt.identity)
    counts = np.logical_and(mask, machine.value(stmt.cond))
    values = np.broadcast_to(np.where(counts, machine.value(stmt.value), identity), machine.threads)
    axes = [2 - axis for axis in stmt.axes]
    moved = np.moveaxis(values, axes, range(-len(axes), 0))
    parts = moved.reshape(*moved.shape[: 3 - len(axes)], -1)
    while parts.shape[-1] > 1:
        half = parts.shape[-1] // 2
        for var, part in zip(stmt.vars, (parts[..., :half], parts[..., half : 2 * half]), strict=True):
            machine.bind(var, part)
        parts = np.concatenate([machine.value(stmt.combine), parts[..., 2 * half :]], axis=-1)
    result = np.expand_dims(parts[..., 0], sorted(axes))
    storage = machine.buffer(stmt.buffer)
    dtype = numpy_dtype(str(stmt.buffer.dtype))
    whole = np.broadcast_to(cast(result, dtype), machine.threads)
    storage.write([machine.value(index) for index in stmt.indices], whole, mask)


def run_atomic(machine: Machine, stmt: ir.Atomic, combine: np.ufunc, mask: Any) -> None:
    """Thread after thread, each with what the one before left; ``prev`` is each thread's own."""
    storage = machine.buffer(stmt.buffer)
    taken = np.broadcast_to(mask, machine.threads)
    indices = [np.broadcast_to(machine.value(index), machine.threads) for index in stmt.indices]
    values = np.broadcast_to(machine.value(stmt.value), machine.threads)
    before = np.zeros(machine.threads, storage.dtype)
    for place in np.argwhere(taken):
        at = tuple(place)
        element = [index[at] for index in indices]
        before[at] = storage.read(element)
        storage.combine(combine, element, values[at], True, ())
    machine.bind(stmt.prev, before)


def _flat(machine: Machine, value: Any) -> np.ndarray:
    """A value per thread, by number."""
    return np.broadcast_to(np.asarray(value), machine.threads).reshape(-1)
