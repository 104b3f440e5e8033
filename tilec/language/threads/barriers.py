"""Barriers that threads arrive at and wait for by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceIndexError, SourceTypeError, SourceValueError
from tilec.ir.nodes import barriers as ir
from tilec.ir.nodes.threads import WARP
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, source_error
from tilec.language.values.operands import expression, stored_value
from tilec.language.values.outside_parallel import emit_outside_parallel
from tilec.language.values.value import Value, check_alive, resolve
from tilec.spelling import counted

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.language.values.kernel.builder import Frame

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
    at = one_barrier("T.mbarrier_arrive", mbarrier)
    block = None if cta_id is None else stored_value(cta_id, "int32", "T.mbarrier_arrive")
    emit_outside_parallel("T.mbarrier_arrive", ir.Arrive(at.of.var, at.index, None, block, loc=loc()))


@_named
def mbarrier_wait_parity(mbarrier: Any, parity: Any) -> None:
    """Waits while the phase under way has this parity: on a fresh barrier 1 passes at once, 0 waits for the
    end of the first phase."""
    at = one_barrier("T.mbarrier_wait_parity", mbarrier)
    emit_outside_parallel(
        "T.mbarrier_wait_parity", ir.WaitPhase(at.of.var, at.index, _parity(parity), loc=loc())
    )


@_named
def mbarrier_expect_tx(mbarrier: Any, tx: Any) -> None:
    """The phase under way also waits for ``tx`` bytes of `tma_copy`."""
    at = one_barrier("T.mbarrier_expect_tx", mbarrier)
    count = stored_value(tx, "int32", "T.mbarrier_expect_tx")
    emit_outside_parallel("T.mbarrier_expect_tx", ir.ExpectBytes(at.of.var, at.index, count, loc=loc()))


@_named
def mbarrier_arrive_expect_tx(mbarrier: Any, tx: Any) -> None:
    """`mbarrier_expect_tx`, then `mbarrier_arrive`."""
    at = one_barrier("T.mbarrier_arrive_expect_tx", mbarrier)
    count = stored_value(tx, "int32", "T.mbarrier_arrive_expect_tx")
    emit_outside_parallel("T.mbarrier_arrive_expect_tx", ir.Arrive(at.of.var, at.index, count, loc=loc()))


def named_barrier_arrive(barrier_id: int, arrive_count: int) -> None:
    """Comes to barrier ``barrier_id`` (1 to 15) of ``arrive_count`` threads and goes on; others wait there by
    ``T.sync_threads(barrier_id, arrive_count)``. `SourceValueError` for other numbers."""
    construct = "T.named_barrier_arrive"
    known = isinstance(barrier_id, int) and 1 <= barrier_id <= 15
    if not known or not isinstance(arrive_count, int) or arrive_count < 1 or arrive_count % WARP:
        raise source_error(
            SourceValueError,
            f"T.named_barrier_arrive({barrier_id!r}, {arrive_count!r})",
            construct=construct,
            why=f"a named barrier has a number from 1 to 15 and a multiple of {WARP} threads",
            remedy="give both as build-time integers",
        )
    emit_outside_parallel(construct, ir.NamedArrive(int(barrier_id), int(arrive_count), loc=loc()))


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
    emit_outside_parallel(construct, ir.SetRegisters(int(reg_count), bool(is_inc), loc=loc()))


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
    emit_outside_parallel("T.wait_wgmma", ir.WaitProducts(int(pending) if known else 0, loc=loc()))


def warpgroup_wait(num_mma: Any = 0) -> None:
    """`wait_wgmma`."""
    wait_wgmma(num_mma)


def one_barrier(construct: str, given: Any) -> BarrierAt:
    """The barrier that is named; the first of several. Raises `SourceTypeError` for what is none."""
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
