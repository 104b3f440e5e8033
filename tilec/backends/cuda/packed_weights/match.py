"""Which launches convert the first operand of their product: a pipelined loop of loads, one loop of
arithmetic from a packed tile into a fragment, and the product of that fragment with a loaded tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from tilec.backends.cuda.analysis.accesses.gathers import gather_of
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.backends.cuda.analysis.products.mma import extents
from tilec.backends.cuda.packed_weights.nodes import Teams
from tilec.backends.cuda.packed_weights.packing import Packing, evaluated, packing_of
from tilec.backends.cuda.warp_roles.epilogue import check_elements
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.tma import TENSORS
from tilec.backends.cuda.warp_roles.unfit import Unfit, about, check_cleared, load_of, need
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import dtype_of, int_value, loads, substitute, uses
from tilec.ir.nodes import Alloc, Bind, Copy, Fill, Gemm, Launch, Parallel, Pipelined, Stmt, Store
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, TensorLoad, Var

ROWS = 64
_PACKED = ("uint8", "int8")


@dataclass(frozen=True, eq=False)
class Match:
    """The parts of a launch: ``packed``, ``scale`` (where there is one) and ``b`` fill tiles in every trip of
    ``loop``; ``group`` columns share a row of scales; ``tail`` are elementwise loops over the accumulator."""

    loop: Pipelined
    packed: Copy
    b: Copy
    scale: Copy | None
    group: int
    packing: Packing
    gemm: Gemm
    accumulator: Alloc
    tail: tuple[Parallel, ...]
    teams: Teams


def is_candidate(launch: Launch) -> bool:
    """Whether a launch has a product whose first operand a loop of arithmetic in its pipeline makes."""
    loops = [stmt for stmt in launch.body if isinstance(stmt, Pipelined)]
    made = {inner.buffer for loop in loops for stmt in loop.body
            if isinstance(stmt, Parallel) and gather_of(stmt) is None
            for inner in stmt.body if isinstance(inner, Store)}  # fmt: skip
    gemms = [gemm for loop in loops for gemm in _products(loop)]
    return len(gemms) == 1 and gemms[0].a.buffer in made


def match(launch: Launch) -> Match:
    """The parts of ``launch``; Unfit where it has others."""
    need(not named(launch), "its tensors may alias each other")
    loop = next(stmt for stmt in launch.body if isinstance(stmt, Pipelined) and _products(stmt))
    at = launch.body.index(loop)
    before, after = launch.body[:at], launch.body[at + 1 :]
    copies, conversion, gemm = _loop_parts(loop)
    other = next((stmt for stmt in before if not isinstance(stmt, (Alloc, Fill))), None)
    remedy = "compute it inside of the loop, or in the epilogue"
    need(other is None, "more than allocations stand before its loop", other, remedy)
    _check_product(gemm)
    sizes = extents(gemm)
    assert sizes is not None
    with about(conversion, "store weights as examples/kernels/quantised_packed.py does"):
        weight = _weight(conversion, gemm)
        packing = packing_of(weight.number, weight.load, weight.column, sizes[2])
        scale, group = _scale(weight, copies, sizes[2])
    _check_loads(copies, 2 if scale is None else 3, launch)
    return Match(
        loop,
        _source(weight.load.source, copies),
        _source(gemm.b.buffer, copies),
        scale,
        group,
        packing,
        gemm,
        _accumulator(gemm, before),
        _tail(after, gemm),
        _teams(thread_count(launch), sizes[0]),
    )


def _check_product(gemm: Gemm) -> None:
    """Of rows of weights with rows of the other operand, all of both."""
    need(
        gemm.trans_b and not gemm.trans_a,
        "its product is not that of (M, K) with (N, K)",
        gemm,
        "make weights the first operand and store the second along K: T.gemm(W, X, acc, transpose_B=True)",
    )
    need(
        is_whole(gemm.a) and is_whole(gemm.b) and is_whole(gemm.c),
        "its product takes parts of tiles",
        gemm,
        "give each operand a tile of its own",
    )


def _check_loads(copies: Sequence[Copy], count: int, launch: Launch) -> None:
    """``count`` loads, of tensors that the launch does not write."""
    need(
        len(copies) == count,
        "its loop loads more than its operands and their scales",
        copies[-1],
        "load the rest behind the loop",
    )
    written = written_in(launch.body)
    for copy in copies:
        need(
            copy.src.buffer not in written,
            "it writes a tensor that it loads",
            copy,
            "write to another tensor",
        )


def _products(loop: Pipelined) -> list[Gemm]:
    return [stmt for stmt in loop.body if isinstance(stmt, Gemm)]


def _loop_parts(loop: Pipelined) -> tuple[list[Copy], Parallel, Gemm]:
    copies = [stmt for stmt in loop.body if isinstance(stmt, Copy)]
    loops = [stmt for stmt in loop.body if isinstance(stmt, Parallel)]
    gemms = _products(loop)
    order = "write T.copy of each operand, then one T.Parallel that converts, then T.gemm"
    need(
        len(copies) + 2 == len(loop.body),
        "its loop is not copies, one conversion and one product",
        loop,
        order,
    )
    need(
        loop.body[-2:] == (*loops, *gemms),
        "its loop is not loads, then a conversion, then a product",
        loop,
        order,
    )
    return copies, loops[0], gemms[0]


def _source(tile: Var, copies: list[Copy]) -> Copy:
    """The copy that fills a tile."""
    copy = load_of(tile, copies)
    with about(copy, "copy whole tiles of matrices, in the type of the tensor"):
        need(
            copy.src.buffer.scope() in TENSORS and is_whole(copy.dst),
            f"{tile.name} is no copy of a tensor's box",
        )
        need(len(tile.shape) == 2 and len(copy.src.extent) == 2, f"{tile.name} is no box of a matrix")
        need(str(copy.src.buffer.dtype) == str(tile.dtype), f"{tile.name} is converted by its copy")
    return copy


# ---- the conversion ----


@dataclass(frozen=True, eq=False)
class _Weight:
    """``number(row, column)`` of one stored byte (``load``), times ``factor`` where there is one."""

    number: Expr
    load: TensorLoad
    factor: TensorLoad | None
    row: Var
    column: Var


def _weight(loop: Parallel, gemm: Gemm) -> _Weight:
    store = loop.body[-1]
    binds = [stmt for stmt in loop.body[:-1] if isinstance(stmt, Bind)]
    need(isinstance(store, Store) and len(binds) == len(loop.body) - 1, "its conversion is no single store")
    assert isinstance(store, Store)
    own = len(loop.vars) == 2 and all(a.same_as(b) for a, b in zip(store.indices, loop.vars, strict=True))
    need(own and store.buffer.same_as(gemm.a.buffer), "its conversion does not fill the operand in order")
    sizes = tuple(int_value(extent) for extent in loop.extents)
    need(sizes == tuple(int_value(extent) for extent in store.buffer.shape), "its conversion fills a part")
    value = store.value
    for bind in reversed(binds):
        value = substitute(value, {bind.var: bind.value})
    number, factor = _factors(_without_casts(value))
    found = [load for load in loads(number) if str(load.source.dtype) in _PACKED]
    need(bool(found), "its conversion reads no packed bytes")
    row, column = loop.vars
    need(found[0].indices[0].same_as(row), f"rows of {found[0].source.name} are not those of the operand")
    need(not uses(found[0].indices[1], (row,)), "the place of a weight depends on its row")
    return _Weight(_without_casts(number), found[0], factor, row, column)


def _without_casts(expr: Expr) -> Expr:
    """``expr`` without conversions to floats around it."""
    while isinstance(expr, tirx.Cast) and "float" in dtype_of(expr):
        expr = expr.value
    return expr


def _factors(value: Expr) -> tuple[Expr, TensorLoad | None]:
    """The weight and the element that scales it."""
    if not isinstance(value, tirx.Mul) or "float" not in dtype_of(value):
        return value, None
    for number, other in ((value.a, value.b), (value.b, value.a)):
        scale = _without_casts(other)
        if type(scale).__name__ in ("TensorLoad", "BufferLoad") and str(scale.source.dtype) not in _PACKED:
            return number, scale
    raise Unfit("a weight is multiplied by more than an element")


def _scale(weight: _Weight, copies: list[Copy], depth: int) -> tuple[Copy | None, int]:
    """The copy that brings the scales, and how many columns share one."""
    if weight.factor is None:
        return None, depth
    row, column = weight.factor.indices
    need(column.same_as(weight.row) and not uses(row, (weight.row,)), "scales are not stored (groups, rows)")
    groups = evaluated(row, {weight.column: np.arange(depth, dtype=np.int32)}, depth)
    count = int(groups[-1]) + 1
    group = depth // count
    need((groups == np.arange(depth) // group).all(), "scales do not belong to equal groups of columns")
    return _source(weight.factor.source, copies), group


# ---- around the loop ----


def _accumulator(gemm: Gemm, before: tuple[Stmt, ...]) -> Alloc:
    c = gemm.c.buffer
    need(
        str(c.dtype) == "float32" and c.scope() == "local.fragment",
        "its accumulator is no float32 fragment",
        gemm,
        'accumulate in T.alloc_fragment(..., "float32")',
    )
    check_cleared((gemm,), before)
    return next(stmt for stmt in before if isinstance(stmt, Alloc) and stmt.buffer.same_as(c))


def _tail(after: tuple[Stmt, ...], gemm: Gemm) -> tuple[Parallel, ...]:
    found: list[Parallel] = []
    shape = tuple(int_value(extent) for extent in gemm.c.extent)
    for stmt in after:
        loop = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
        if not isinstance(loop, Parallel):
            raise Unfit(
                f"{type(stmt).__name__} stands behind its loop", stmt, "end with T.copy and T.Parallel"
            )
        with about(loop, "let it run over the elements of the accumulator, with assignments alone"):
            same_shape = tuple(int_value(extent) for extent in loop.extents) == shape
            need(same_shape, "its epilogue has another shape")
            for inner in loop.body:
                need(isinstance(inner, (Store, Bind)), "its epilogue is no plain arithmetic")
                check_elements(inner, loop, {gemm.c.buffer})
        found.append(loop)
    reads = [load.source for loop in found for load in loads_of(*loop.body)]
    need(all(buffer.scope() in ("global", "local.fragment") for buffer in reads), "its epilogue reads tiles")
    return tuple(found)


def _teams(threads: int, rows: int) -> Teams:
    """Warpgroups take 64 rows each or more; those beyond the rows share K."""
    need(
        threads % WARPGROUP == 0,
        f"{threads} threads are no whole warpgroups",
        remedy="give T.Kernel a multiple of 128 threads",
    )
    groups = threads // WARPGROUP
    need(rows % ROWS == 0, f"{rows} rows are no multiple of {ROWS}", remedy=f"choose tiles of {ROWS} rows")
    wide = next(count for count in range(min(groups, rows // ROWS), 0, -1)
                if groups % count == 0 and rows // ROWS % count == 0)  # fmt: skip
    return Teams(wide, groups // wide)
