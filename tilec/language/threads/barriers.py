"""Barriers that threads arrive at and wait for by hand, and copies that arrive at them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceIndexError, SourceTypeError, SourceValueError
from tilec.ir.nodes import barriers as ir
from tilec.language.tiles.boxes import box, meet
from tilec.language.tiles.copies import copy
from tilec.language.tiles.views import View
from tilec.language.values import session as sessions
from tilec.language.values.annotations import unheeded
from tilec.language.values.asked_hints import hints_of
from tilec.language.values.operands import expression, stored_value
from tilec.language.values.places import loc, source_error, unsupported
from tilec.language.values.value import Value, check_alive, resolve
from tilec.spelling import counted

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.language.values.builder import Frame

_WARP = 32
#: Keywords that calls on barriers have -> those of this module.
_NAMES = {
    **dict.fromkeys(("mb", "mbar", "barrier", "barrier_id"), "mbarrier"),
    **dict.fromkeys(("bytes", "tx_bytes", "transaction_bytes"), "tx"),
    "phase": "parity",
}


def _named(function: Callable[..., None]) -> Callable[..., None]:
    """``function`` of a barrier, which callers may also give under the other names that it has."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        function(*args, **{_NAMES.get(name, name): value for name, value in kwargs.items()})

    return call


class Barriers:
    """What `alloc_barrier` gives: ``mb[i]`` is one barrier, ``mb`` alone the first."""

    def __init__(self, var: Var, counts: tuple[int, ...], frame: Frame) -> None:
        self._var, self.counts, self.frame = var, counts, frame

    @property
    def var(self) -> Var:
        """TVM's buffer. `SourceRuntimeError` outside the region that the barriers live in."""
        check_alive(self.frame, self.name)
        return self._var

    @property
    def name(self) -> str:
        """The name of the barriers."""
        return str(self._var.name)

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, index: Any) -> BarrierAt:
        place = resolve(index)
        if isinstance(place, Value):
            known = sessions.constant(place.expr)
            place = place if known is None else known
        if isinstance(place, Value):
            return BarrierAt(self, stored_value(place, "int32", self.name))
        if not -len(self) <= place < len(self):
            raise source_error(
                SourceIndexError,
                f"{self.name}[{place}] does not exist: it has {counted(len(self), 'barrier')}",
                construct=self.name,
                remedy="give T.alloc_barrier a count for each barrier",
            )
        return BarrierAt(self, expression(place % len(self)))

    def __repr__(self) -> str:
        return f"{self.name}: barriers{list(self.counts)}"


@dataclass(frozen=True, eq=False)
class BarrierAt:
    """One barrier."""

    of: Barriers
    index: Expr


def alloc_barrier(arrive_count: int | list[int] | tuple[int, ...]) -> Barriers:
    """A barrier whose phases end with ``arrive_count`` arrivals, or one for each count of a list.

    Raises `SourceValueError` for counts below 1, `SourceTypeError` for what is no build-time integer."""
    return _barriers("T.alloc_barrier", arrive_count, cluster=False)


def alloc_cluster_barrier(arrive_count: int | list[int] | tuple[int, ...]) -> Barriers:
    """As `alloc_barrier`; blocks of the cluster may arrive, too."""
    return _barriers("T.alloc_cluster_barrier", arrive_count, cluster=True)


def _barriers(construct: str, given: Any, cluster: bool) -> Barriers:
    from tvm import tirx

    from tilec.ir.nodes.barriers import SCOPE

    counts = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, int):
            raise source_error(
                SourceTypeError,
                f"{construct} takes build-time integers, not {count!r}",
                construct=construct,
                remedy="give the number of arrivals of one phase",
            )
    if not counts or min(counts) < 1:
        raise source_error(
            SourceValueError,
            f"{construct}({given!r}): a phase takes at least one arrival",
            construct=construct,
            remedy="give the number of threads that arrive in one phase",
        )
    builder = sessions.builder(construct)
    plain = tuple(map(int, counts))
    var = tirx.decl_buffer((len(plain),), "uint64", builder.wish("barrier"), scope=SCOPE)
    builder.emit(ir.AllocBarrier(var, plain, cluster, loc=loc()), construct)
    return Barriers(var, plain, builder.region())


@_named
def mbarrier_arrive(mbarrier: Any, cta_id: Any = None) -> None:
    """One arrival by each thread that runs it; ``cta_id``: at the barrier of that block of the cluster."""
    at = _one("T.mbarrier_arrive", mbarrier)
    block = None if cta_id is None else stored_value(cta_id, "int32", "T.mbarrier_arrive")
    _emit("T.mbarrier_arrive", ir.Arrive(at.of.var, at.index, None, block, loc=loc()))


@_named
def mbarrier_wait_parity(mbarrier: Any, parity: Any) -> None:
    """Waits while the phase under way has this parity: on a fresh barrier 1 passes at once, 0 waits for the
    end of the first phase."""
    at = _one("T.mbarrier_wait_parity", mbarrier)
    _emit("T.mbarrier_wait_parity", ir.WaitPhase(at.of.var, at.index, _parity(parity), loc=loc()))


@_named
def mbarrier_expect_tx(mbarrier: Any, tx: Any) -> None:
    """The phase under way also waits for ``tx`` bytes of `tma_copy`."""
    at = _one("T.mbarrier_expect_tx", mbarrier)
    count = stored_value(tx, "int32", "T.mbarrier_expect_tx")
    _emit("T.mbarrier_expect_tx", ir.ExpectBytes(at.of.var, at.index, count, loc=loc()))


@_named
def mbarrier_arrive_expect_tx(mbarrier: Any, tx: Any) -> None:
    """`mbarrier_expect_tx`, then `mbarrier_arrive`."""
    at = _one("T.mbarrier_arrive_expect_tx", mbarrier)
    count = stored_value(tx, "int32", "T.mbarrier_arrive_expect_tx")
    _emit("T.mbarrier_arrive_expect_tx", ir.Arrive(at.of.var, at.index, count, loc=loc()))


def named_barrier_arrive(barrier_id: int, arrive_count: int) -> None:
    """Comes to barrier ``barrier_id`` (1 to 15) of ``arrive_count`` threads and goes on; others wait there by
    ``T.sync_threads(barrier_id, arrive_count)``. `SourceValueError` for other numbers."""
    construct = "T.named_barrier_arrive"
    known = isinstance(barrier_id, int) and 1 <= barrier_id <= 15
    if not known or not isinstance(arrive_count, int) or arrive_count < 1 or arrive_count % _WARP:
        raise source_error(
            SourceValueError,
            f"T.named_barrier_arrive({barrier_id!r}, {arrive_count!r})",
            construct=construct,
            why=f"a named barrier has a number from 1 to 15 and a multiple of {_WARP} threads",
            remedy="give both as build-time integers",
        )
    _emit(construct, ir.NamedArrive(int(barrier_id), int(arrive_count), loc=loc()))


@_named
def cp_async_barrier_noinc(mbarrier: Any) -> None:
    """An arrival by each thread once its copies so far are complete, which they are."""
    mbarrier_arrive(mbarrier)


def set_max_nreg(reg_count: int, is_inc: Any) -> None:
    """Each thread of the warpgroups that run it has ``reg_count`` registers from here on: more than before
    where ``is_inc``, else less. `SourceValueError` for what is no multiple of 8 from 24 to 256."""
    construct = "T.set_max_nreg"
    if isinstance(reg_count, bool) or reg_count not in range(24, 257, 8):
        raise source_error(
            SourceValueError,
            f"{construct}({reg_count!r}): threads cannot have so many registers",
            construct=construct,
            remedy="give a multiple of 8 from 24 to 256",
        )
    _emit(construct, ir.SetRegisters(int(reg_count), bool(is_inc), loc=loc()))


def inc_max_nreg(reg_count: int) -> None:
    """`set_max_nreg` to more registers."""
    set_max_nreg(reg_count, True)


def dec_max_nreg(reg_count: int) -> None:
    """`set_max_nreg` to fewer registers."""
    set_max_nreg(reg_count, False)


def wait_wgmma(pending: Any = 0) -> None:
    """At most the last ``pending`` products are under way behind it: those before them have read their
    operands, as who waits for an arrival behind it relies on. Results are complete wherever they are read."""
    known = isinstance(pending, int) and pending >= 0
    _emit("T.wait_wgmma", ir.WaitProducts(int(pending) if known else 0, loc=loc()))


def warpgroup_wait(num_mma: Any = 0) -> None:
    """`wait_wgmma`."""
    wait_wgmma(num_mma)


def tma_copy(
    src: Any,
    dst: Any,
    *,
    barrier: Any = None,
    cluster_mask: int | None = None,
    leader_scope_threads: int | None = None,
    eviction_policy: str | None = None,
    annotations: Any = None,
) -> None:
    """A copy between global and shared memory.

    A load (global to shared) is complete for those who wait for the phase of ``barrier`` that is under way; a
    store (shared to global) when it ends. Extents as in `copy`. Raises `SourceValueError` for a load without
    a barrier, other memories, and hints that are out of range."""
    construct = "T.tma_copy"
    _check_hints(construct, cluster_mask, leader_scope_threads)
    if leader_scope_threads is not None:
        unheeded(construct, "tilec chooses the thread that issues a copy", "leave leader_scope_threads out")
    source, target = box(src, construct), box(dst, construct)
    scopes = (source.buffer.scope(), target.buffer.scope())
    if scopes[0] == "shared.dyn" and scopes[1].startswith("global"):
        return copy(
            src, dst, eviction_policy=eviction_policy, prefer_instruction="tma", annotations=annotations
        )
    if not (scopes[0].startswith("global") and scopes[1] == "shared.dyn"):
        raise source_error(
            SourceValueError,
            f"T.tma_copy from {scopes[0]} to {scopes[1]} memory",
            construct=construct,
            why="it copies between global and shared memory",
            remedy="use T.copy",
        )
    if barrier is None:
        raise source_error(
            SourceValueError,
            "T.tma_copy into shared memory needs a barrier",
            construct=construct,
            remedy="give barrier=mb[i] and wait for it, or use T.copy",
        )
    source, target = meet(source, target, construct)
    if (
        isinstance(source.buffer, View)
        or isinstance(target.buffer, View)
        or source.buffer.safe_value is not None
    ):
        raise unsupported("T.tma_copy of a reinterpreted buffer", remedy="use T.copy")
    at = _one(construct, barrier)
    hints = hints_of(construct, {"eviction_policy": eviction_policy}, annotations)
    stmt = ir.BulkLoad(source.region(), target.region(), at.of.var, at.index, hints=hints, loc=loc())
    return _emit(construct, stmt)


def copy_cluster(
    src: Any,
    dst: Any,
    *,
    dst_block: Any = None,
    cluster_mask: int | None = None,
    remote_barrier: Any = None,
    eviction_policy: str | None = None,
    coalesced_width: int | None = None,
    annotations: Any = None,
    loop_layout: Any = None,
) -> None:
    """A copy within a cluster (sm_90a); the keywords without a meaning here are hints.

    Without ``dst_block`` as `copy`, which blocks of ``cluster_mask`` may carry out once for all of them that
    copy the same. With it, a copy
    into the shared tile ``dst`` of the block of that rank, complete behind one arrival at ``remote_barrier``
    of that block, or behind a barrier of the cluster. Raises `SourceValueError` for other memories, and for a
    barrier without a block."""
    construct = "T.copy_cluster"
    given = {
        "eviction_policy": eviction_policy,
        "coalesced_width": coalesced_width,
        "loop_layout": loop_layout,
        "cluster_mask": cluster_mask,
    }
    hints = hints_of(construct, given, annotations)
    source, target = meet(box(src, construct), box(dst, construct), construct)
    if isinstance(source.buffer, View) or isinstance(target.buffer, View):
        raise unsupported(f"{construct} of a reinterpreted buffer", remedy="copy the buffer itself")
    if dst_block is None and remote_barrier is not None:
        raise source_error(
            SourceValueError,
            f"{construct} with a remote_barrier and no dst_block",
            construct=construct,
            remedy="give dst_block, the rank in its cluster of the block that gets the tile",
        )
    if dst_block is None:
        return _emit(construct, ir.ClusterCopy(source.region(), target.region(), hints=hints, loc=loc()))
    if target.buffer.scope() != "shared.dyn" or source.buffer.dtype != target.buffer.dtype:
        raise source_error(
            SourceValueError,
            f"{construct} into {target.buffer.dtype} in {target.buffer.scope()} memory of another block",
            construct=construct,
            why="blocks of a cluster reach each other's shared tiles, and nothing is converted on the way",
            remedy="copy into a shared tile of the same dtype",
        )
    block = stored_value(dst_block, "int32", construct)
    at = None if remote_barrier is None else _one(construct, remote_barrier)
    signal, number = (None, None) if at is None else (at.of.var, at.index)
    stmt = ir.ClusterCopy(source.region(), target.region(), block, signal, number, hints, loc=loc())
    return _emit(construct, stmt)


def _check_hints(construct: str, mask: Any, leaders: Any) -> None:
    if mask is not None and (not isinstance(mask, int) or mask < 1):
        raise source_error(
            SourceValueError,
            f"cluster_mask {mask!r} is no positive integer",
            construct=construct,
            remedy="give a positive integer, a bit per block",
        )
    if mask is not None and mask & (mask - 1):
        raise unsupported(
            f"{construct}(cluster_mask={mask})", remedy="let each block of the cluster load its own tile"
        )
    if leaders is not None and (not isinstance(leaders, int) or leaders < 1 or leaders % _WARP):
        raise source_error(
            SourceValueError,
            f"leader_scope_threads {leaders!r} is no positive multiple of {_WARP}",
            construct=construct,
            remedy="leave it out, or give a multiple of 32",
        )


def _one(construct: str, given: Any) -> BarrierAt:
    if isinstance(given, Barriers):
        return given[0]
    if isinstance(given, BarrierAt):
        return given
    raise source_error(
        SourceTypeError,
        f"{construct} takes a barrier, not {type(given).__name__}",
        construct=construct,
        remedy="make one with T.alloc_barrier",
    )


def _parity(value: Any) -> Expr:
    """0 or 1: what the hardware takes."""
    from tvm import tirx

    expr = sessions.simplify(stored_value(value, "int32", "T.mbarrier_wait_parity"))
    two = tirx.const(2, "int32")
    if sessions.prove(tirx.And(expr >= tirx.const(0, "int32"), expr < two)) is True:
        return expr
    return sessions.simplify(tirx.floormod(expr, two))


def _emit(construct: str, stmt: Any) -> None:
    builder = sessions.builder(construct)
    if any(frame.kind == "parallel" for frame in builder.frames):
        raise unsupported(
            f"{construct} inside T.Parallel",
            why="an iteration of T.Parallel is no thread",
            remedy="move it in front of the loop or behind it",
        )
    builder.emit(stmt, construct)
