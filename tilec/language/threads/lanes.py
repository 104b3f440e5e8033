"""What the lanes of a warp, or the threads of a block, say to each other: shuffles, votes, reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.ir.nodes import threads as ir
from tilec.language.threads.launches import current_launch
from tilec.language.values.conversions import condition
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.operands import stored_value, wrap
from tilec.language.values.outside_parallel import outside_parallel
from tilec.language.values.value import Value, is_number, resolve

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.language.values.kernel.builder import Builder

_FULL = 2**ir.WARP - 1


def shfl_sync(value: Any, srcLane: Any, width: int = ir.WARP, mask: Any = None) -> Value:
    """``value`` of lane ``srcLane`` in the group of ``width`` lanes."""
    return _shuffle("T.shfl_sync", "shfl", value, srcLane, width, mask)


def shfl_xor(value: Any, delta: Any, width: int = ir.WARP, mask: Any = None) -> Value:
    """``value`` of the lane whose number differs in the bits of ``delta``."""
    return _shuffle("T.shfl_xor", "shfl_xor", value, delta, width, mask)


def shfl_down(value: Any, delta: Any, width: int = ir.WARP, mask: Any = None) -> Value:
    """``value`` of the lane ``delta`` further up in number; the own one past the group's end."""
    return _shuffle("T.shfl_down", "shfl_down", value, delta, width, mask)


def shfl_up(value: Any, delta: Any, width: int = ir.WARP, mask: Any = None) -> Value:
    """``value`` of the lane ``delta`` further down in number; the own one before the group's start."""
    return _shuffle("T.shfl_up", "shfl_up", value, delta, width, mask)


def tvm_warp_shuffle(mask: Any, value: Any, warp_id: Any, width: int, warp_size: int) -> Value:
    """`shfl_sync` in TVM's order of arguments."""
    return _tvm_shuffle("T.tvm_warp_shuffle", "shfl", mask, value, warp_id, width, warp_size)


def tvm_warp_shuffle_up(mask: Any, value: Any, offset: Any, width: int, warp_size: int) -> Value:
    """`shfl_up` in TVM's order of arguments."""
    return _tvm_shuffle("T.tvm_warp_shuffle_up", "shfl_up", mask, value, offset, width, warp_size)


def tvm_warp_shuffle_down(mask: Any, value: Any, offset: Any, width: int, warp_size: int) -> Value:
    """`shfl_down` in TVM's order of arguments."""
    return _tvm_shuffle("T.tvm_warp_shuffle_down", "shfl_down", mask, value, offset, width, warp_size)


def any_sync(predicate: Any, mask: Any = None) -> Value:
    """1 where the condition holds in some lane of the warp, else 0; int32."""
    return _vote("T.any_sync", "any", predicate, mask)


def all_sync(predicate: Any, mask: Any = None) -> Value:
    """1 where the condition holds in every lane of the warp, else 0; int32."""
    return _vote("T.all_sync", "all", predicate, mask)


def ballot_sync(predicate: Any, mask: Any = None) -> Value:
    """A bit for each lane of the warp in which the condition holds; uint64."""
    return _vote("T.ballot_sync", "ballot", predicate, mask)


def ballot(predicate: Any) -> Value:
    """`ballot_sync` of the lanes that are here."""
    return _vote("T.ballot", "ballot", predicate, None)


def activemask() -> Value:
    """A bit for each lane of the warp that is here; uint64."""
    return _lane("T.activemask", "active", ())


def tvm_warp_activemask() -> Value:
    """`activemask` as uint32."""
    return activemask().astype("uint32")


def match_any_sync(value: Any, mask: Any = None) -> Value:
    """A bit for each lane of the warp that has the same value; uint32."""
    _check_order("T.match_any_sync", value, mask)
    return _lane("T.match_any_sync", "match_any", (wrap(value).expr,), mask=mask)


def match_all_sync(value: Any, mask: Any = None) -> Value:
    """The bits of all lanes that are here if they have one value, else 0; uint32."""
    _check_order("T.match_all_sync", value, mask)
    return _lane("T.match_all_sync", "match_all", (wrap(value).expr,), mask=mask)


def syncthreads_count(predicate: Any) -> Value:
    """In how many threads of the block the condition holds, int32; a barrier, too."""
    return _vote("T.syncthreads_count", "block_count", predicate, None)


def syncthreads_and(predicate: Any) -> Value:
    """1 where the condition holds in every thread of the block, else 0; a barrier, too."""
    return _vote("T.syncthreads_and", "block_and", predicate, None)


def syncthreads_or(predicate: Any) -> Value:
    """1 where the condition holds in some thread of the block, else 0; a barrier, too."""
    return _vote("T.syncthreads_or", "block_or", predicate, None)


def _warp_reduction(kind: str) -> Callable[[Any], Value]:
    word = f"warp_reduce_{kind}"

    def reduce(value: Any) -> Value:
        found = wrap(value)
        if kind.startswith("bit") and not found.dtype.row.is_integer:
            raise source_error(
                SourceTypeError, f"T.{word} of {found.dtype}", remedy="only integers have bits to combine"
            )
        return _lane(f"T.{word}", f"warp_{kind}", (found.expr,))

    reduce.__name__ = reduce.__qualname__ = word
    reduce.__doc__ = f"The {kind} of ``value`` over the 32 lanes of the warp; every lane gets it."
    if kind in ("max", "min"):
        reduce.__doc__ += " NaN does not count: T.any_sync(T.isnan(value)) finds it."
    return reduce


REDUCTIONS: dict[str, Callable[[Any], Value]] = {
    f"warp_reduce_{kind}": _warp_reduction(kind) for kind in ("sum", "max", "min", "bitand", "bitor")
}


def _tvm_shuffle(
    construct: str, kind: str, mask: Any, value: Any, lane: Any, width: int, warp_size: int
) -> Value:
    if warp_size != ir.WARP:
        raise unsupported(f"{construct} with warps of {warp_size}", remedy=f"a warp has {ir.WARP} lanes")
    return _shuffle(construct, kind, value, lane, width, mask)


def _shuffle(construct: str, kind: str, value: Any, lane: Any, width: int, mask: Any) -> Value:
    if not isinstance(width, int) or width not in (1, 2, 4, 8, 16, 32):
        raise source_error(
            SourceValueError,
            f"{construct}: width={width!r}",
            construct=construct,
            remedy=f"a group has a power of two of lanes, {ir.WARP} at most",
        )
    if mask is None:
        _check_first(construct, value, lane, "x, lane, mask=mask", "x, lane")
    return _lane(construct, kind, (wrap(value).expr, stored_value(lane, "int32", construct)), width, mask)


def _vote(construct: str, kind: str, predicate: Any, mask: Any) -> Value:
    found = resolve(predicate)
    is_float = isinstance(found, float) or (isinstance(found, Value) and found.dtype.row.is_float)
    if is_float:
        raise source_error(
            SourceTypeError,
            f"{construct} takes a condition, not a float",
            construct=construct,
            remedy="compare it: x > 0.0",
        )
    _check_order(construct, found, mask)
    return _lane(construct, kind, (condition(found, construct),), mask=mask)


def _check_order(construct: str, first: Any, mask: Any) -> None:
    """Raises `SourceTypeError` where a mask stands in front, as CUDA's own functions have it."""
    _check_first(construct, first, mask, "x, mask", "x")


def _check_first(construct: str, first: Any, second: Any, form: str, short: str) -> None:
    if isinstance(resolve(first), int) and isinstance(resolve(second), Value):
        raise source_error(
            SourceTypeError,
            f"{construct} of a number, which all lanes have",
            construct=construct,
            why="a mask is the last argument, unlike CUDA's",
            remedy=f"write {construct}({form}), or {construct}({short}) for all lanes",
        )


def _lane(
    construct: str, kind: str, operands: tuple[Expr, ...], width: int = ir.WARP, mask: Any = None
) -> Value:
    from tvm import tirx

    builder = of_each_thread(construct)
    dtype = ir.lane_dtype(kind, tuple(str(operand.ty.dtype) for operand in operands))
    var = tirx.Var(builder.wish(kind), dtype)
    builder.emit(ir.Lane(kind, var, operands, width, _mask(mask, construct), loc=loc()), construct)
    return Value(var, frame=builder.region())


def of_each_thread(construct: str) -> Builder:
    """The builder, for a statement that each thread runs. Raises `UnsupportedError` in T.Parallel."""
    builder = outside_parallel(construct, remedy="loop over the threads' own elements with T.serial")
    current_launch(construct).thread_indices()
    return builder


def _mask(mask: Any, construct: str) -> Expr | None:
    """The lanes that meet; None for all of them."""
    found = resolve(mask)
    if found is None or (is_number(found) and int(found) & _FULL == _FULL):
        return None
    return stored_value(found, "uint32", construct) if isinstance(found, Value) else _constant(int(found))


def _constant(mask: int) -> Expr:
    """A mask of lanes as a constant."""
    from tvm import tirx

    return tirx.const(mask & _FULL, "uint32")
