"""Copies that run beside the threads that start them, and what waits for these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilec.ir.nodes import Atomic
from tilec.ir.stmt import At, Block, Defines, Operands, Region, Signals, Stmt, Updates, Writes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer


@dataclass(frozen=True, eq=False)
class AsyncCopy(Stmt):
    """``dst = src`` by cp.async in pieces of ``width`` elements; it is complete after a `WaitGroup` that
    covers its group. Elements outside of ``src`` become 0. Its lines leave the L2 cache ``evict`` ("first" or
    "last"), None for in the common order. ``ends``: rows of ``src`` begin and end within pieces, and pieces
    may begin anywhere; of those that are no whole vectors threads move the elements one by one, at once."""

    src: Region
    dst: Writes[Region]
    width: int
    evict: str | None = None
    ends: bool = False


@dataclass(frozen=True, eq=False)
class AsyncGather(Stmt):
    """An AsyncCopy whose places are computed: ``body`` is one Store to a shared tile of an element of global
    memory behind a condition (0 where it fails), for all values of ``vars``. Pieces of ``width`` elements
    along the last variable share the condition. What `LookUp` names under ``registers`` is there for each
    piece."""

    syntax = "async_gather(*extents, width=, evict=, registers=)"

    vars: Defines[tuple[Var, ...]]
    extents: tuple[int, ...]
    body: Block
    width: int
    evict: str | None = None
    registers: str | None = None


@dataclass(frozen=True, eq=False)
class LookUp(Stmt):
    """Each thread computes ``value`` for its pieces of the `AsyncGather` that shares ``registers`` (a name)
    and stands behind: over the same ``vars``, under the name ``place`` there. ``size``: bytes of an element
    that the gather moves."""

    syntax = "place = look_up(vars, value, extents, width=, size=, registers=)"

    place: Defines[Var]
    vars: Operands[tuple[Var, ...]]
    value: Expr
    extents: tuple[int, ...]
    width: int
    size: int
    registers: str


@dataclass(frozen=True, eq=False)
class CommitGroup(Stmt):
    """Closes a group of asynchronous copies."""


@dataclass(frozen=True, eq=False)
class WaitGroup(Stmt):
    """Waits until at most ``pending`` groups of this thread's copies are not complete."""

    syntax = "wait_group(pending)"

    pending: int


@dataclass(frozen=True, eq=False)
class BoxLoad(Stmt):
    """``dst = src`` by TMA, started by one of the threads that run it (``alone``: by the one that does): from
    global memory into a shared tile, zeros from outside of the tensor. The phase of ``barrier[index]`` counts
    its bytes, which the thread announces first where it ``announces``. ``evict``: "first" or "last" to leave
    the L2. ``pair``: the barrier is that of the first block of the cluster."""

    syntax = "box_load(src, dst, barrier[index], evict=, alone=, announces=, pair=)"

    src: Region
    dst: Writes[Region]
    barrier: Signals[Buffer]
    index: At[Expr]
    evict: str | None = None
    alone: bool = False
    announces: bool = False
    pair: bool = False


@dataclass(frozen=True, eq=False)
class TensorStore(Stmt):
    """``dst = src`` by TMA, started by one of the threads that run it: a whole shared tile to global memory,
    where nothing outside of the tensor is written. That thread goes on at once, the tile being read until it
    comes to `DrainStores`, or when all is written (``complete``). ``again``: it may write where it has
    written before, and starts when that has ended. ``evict``: "first" or "last" to leave the L2."""

    syntax = "tensor_store(src, dst, evict=, complete=, again=)"

    src: Region
    dst: Writes[Region]
    evict: str | None = None
    complete: bool = False
    again: bool = False


@dataclass(frozen=True, eq=False)
class TensorAdd(TensorStore):
    """A TensorStore whose elements are added to those of the tensor, each atomically, in any order."""

    syntax = "tensor_add(src, dst, evict=)"

    dst: Updates[Region]


@dataclass(frozen=True, eq=False)
class PartStore(TensorStore):
    """A TensorStore by each warpgroup of the part of ``src`` that its own threads fill, as ``body`` (a
    ThreadLoop) says: all wait for what they stored before to be read, and then each stores when its own
    threads have filled their part."""

    syntax = "part_store(src, dst, evict=)"

    body: Block = ()


@dataclass(frozen=True, eq=False)
class DrainStores(Stmt):
    """The threads that store tiles wait until all of these have been read."""

    syntax = "drain_stores()"


@dataclass(frozen=True, eq=False)
class TakeAhead(Stmt):
    """``dst`` becomes ``src``, fragments of one layout, ``width`` elements at once."""

    src: Region
    dst: Writes[Region]
    width: int


@dataclass(frozen=True, eq=False)
class RemoteStore(Atomic):
    """Leaves ``value`` in that element of the shared tile of the block of rank ``block`` in the cluster. Its
    bytes count at ``barrier[index]`` of that block, where there is a barrier."""

    syntax = "remote_store(buffer[indices], value, block=, barrier[index]=)"

    block: Expr = field(kw_only=True)
    barrier: Signals[Buffer | None] = None
    index: At[Expr | None] = None
