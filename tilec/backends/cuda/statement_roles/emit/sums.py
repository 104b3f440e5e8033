"""Products of tcgen05: one thread issues them, barriers tell of their end, warps load what they have made and
put what they multiply or add to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.layouts.fragments import WARPS_OF_A_GROUP
from tilec.backends.cuda.analysis.products.tensor_memory import KINDS, PAIRED_ROWS, ROWS, SUMS
from tilec.backends.cuda.device import moves
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.threads.groups import barrier_at
from tilec.backends.cuda.nodes import (
    CloseTensorMemory,
    HeldProduct,
    OpenTensorMemory,
    TensorCommit,
    TensorProduct,
    TensorPut,
    TensorSums,
    TensorTile,
)
from tilec.backends.cuda.statement_roles.emit.box import first_of_group
from tilec.backends.cuda.statement_roles.emit.product import Operand
from tilec.backends.cuda.warp_roles.emit.barriers import meet_warp
from tilec.backends.cuda.warp_roles.emit.build import emits, i32, let, ptx, u32, when
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Blocks that an instruction is of, by whether they are a pair.
_GROUPS = {False: "cta_group::1", True: "cta_group::2"}
#: Blocks of a pair in which a commit arrives.
_BOTH = tirx.const(3, "uint16")
#: Matrix descriptor (PTX ISA, "tcgen05 Shared Memory Descriptor"): the pattern at bit 61 by bytes of a slab's
#: rows, and what bits 46 to 48 always have.
_PATTERN, _PATTERN_BIT, _ALWAYS = {128: 2, 64: 4, 32: 6}, 61, 1 << 46
#: Instruction descriptor (PTX ISA, "tcgen05 Instruction Descriptor"): types of sums at bit 4, of A and B at 7
#: and 10, whether they lie across K at 15 and 16, columns / 8 at 17, rows / 16 at 24.
_SUMS_BIT, _A_BIT, _B_BIT, _A_ACROSS, _B_ACROSS, _COLUMNS_BIT, _ROWS_BIT = 4, 7, 10, 15, 16, 17, 24
#: Rows of an address in tensor memory stand above its columns.
_ROW_BIT = 16
#: Columns that one register quad of a load has, rows of a load, and the most quads of one: for runs of 32
#: registers and more ptxas 12.9 spills where it has room for those of 16 (attention of 64 channels, causal,
#: 64 keys a trip: 168 registers and 76 bytes, 157 and none).
_QUAD, _HALF, _MOST_QUADS = 8, 16, 4
#: Columns of 32 bits that a step takes of a first operand in tensor memory: 32 bytes of each row.
_STEP_WORDS = 8
#: Two neighbours of 16 bits as they lie in registers.
_PAIR = moves.bits(4)


class _Described(Operand):
    """An operand as tcgen05 has it described."""

    def pattern(self, width: int) -> int:
        """As `Operand.pattern`."""
        return _PATTERN[width] << _PATTERN_BIT | _ALWAYS


@emits(OpenTensorMemory)
def _open(stmt: OpenTensorMemory, ctx: DeviceContext) -> None:
    with when(tirx.EQ(ctx.warp, i32(0))):
        place = T.cuda.cvta_generic_to_shared(barrier_at(stmt.memory, 0, ctx))
        group = _GROUPS[stmt.pair]
        ptx(f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32", place, u32(stmt.columns))
        ptx(f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned")


@emits(CloseTensorMemory)
def _close(stmt: CloseTensorMemory, ctx: DeviceContext) -> None:
    with when(tirx.EQ(ctx.warp, i32(0))):
        ptx("tcgen05.fence::after_thread_sync")
        ptx(
            f"tcgen05.dealloc.{_GROUPS[stmt.pair]}.sync.aligned.b32",
            _address(stmt.memory, ctx),
            u32(stmt.columns),
        )


@emits(TensorProduct)
def _product(stmt: TensorProduct, ctx: DeviceContext) -> None:
    """All steps along K, of each 128 rows."""
    a = _Described(stmt.a, stmt.trans_a, ctx)

    def steps() -> Iterator[Expr]:
        first = let("a", a.descriptor(i32(0)))
        for step in range(stmt.tile.steps):
            for block in range(_blocks(stmt.tile)):
                yield first + a.step(step, block * ROWS)

    _issue(stmt, steps(), int(stmt.trans_a), ctx)


@emits(HeldProduct)
def _held_product(stmt: HeldProduct, ctx: DeviceContext) -> None:
    """The same: each step takes the next columns of the first operand."""

    def steps() -> Iterator[Expr]:
        first = let("a", _address(stmt.memory, ctx) + u32(stmt.held))
        for step in range(stmt.tile.steps):
            for block in range(_blocks(stmt.tile)):
                yield first + u32((block * stmt.tile.steps + step) * _STEP_WORDS)

    _issue(stmt, steps(), 0, ctx)


def _issue(stmt: TensorProduct | HeldProduct, steps: Iterator[Expr], across: int, ctx: DeviceContext) -> None:
    """The instructions of a product, whose first operands ``steps`` gives; ``across``: these lie across K."""
    b = _Described(stmt.b, not stmt.trans_b, ctx)
    with when(first_of_group(ctx)):
        ptx("tcgen05.fence::after_thread_sync")
        place = let("sums", _columns(stmt, ctx) + u32(stmt.column))
        first_b = let("b", b.descriptor(i32(0)))
        described, masks = u32(_described(stmt, across)), (u32(0),) * (8 if _is_paired(stmt) else 4)
        name = f"tcgen05.mma.{_GROUPS[_is_paired(stmt)]}.kind::{KINDS[str(stmt.b.buffer.dtype)][0]}"
        for number, a in enumerate(steps):
            step, block = divmod(number, _blocks(stmt.tile))
            adds = _adds(stmt, step, ctx)
            at = place + u32(block * stmt.tile.columns)
            ptx(name, at, a, first_b + b.step(step, 0), described, *masks, T.ptx.pred(adds))


def _is_paired(stmt: TensorProduct | HeldProduct) -> bool:
    """Whether a product is that of two blocks."""
    return isinstance(stmt, TensorProduct) and stmt.pair


def _blocks(tile: TensorTile) -> int:
    """How many times 128 rows a product has."""
    return tile.warps[0] // WARPS_OF_A_GROUP


def _described(stmt: TensorProduct | HeldProduct, across_a: int) -> int:
    """The instruction descriptor."""
    left = stmt.a if isinstance(stmt, TensorProduct) else stmt.b
    (kind, a), (_, b) = (KINDS[str(region.buffer.dtype)] for region in (left, stmt.b))
    across = across_a << _A_ACROSS | int(not stmt.trans_b) << _B_ACROSS
    rows = PAIRED_ROWS if _is_paired(stmt) else ROWS
    sizes = stmt.tile.columns // 8 << _COLUMNS_BIT | rows // 16 << _ROWS_BIT
    return SUMS[kind][1] << _SUMS_BIT | a << _A_BIT | b << _B_BIT | across | sizes


def _adds(stmt: TensorProduct | HeldProduct, step: int, ctx: DeviceContext) -> Expr:
    """Whether an instruction adds to its sums."""
    if step:
        return tirx.const(1, "uint32")
    return tirx.Cast("uint32", tirx.Not(ctx.value(stmt.clear)))


@emits(TensorCommit)
def _commit(stmt: TensorCommit, ctx: DeviceContext) -> None:
    with when(first_of_group(ctx)):
        place = T.cuda.cvta_generic_to_shared(barrier_at(stmt.barrier, stmt.index, ctx))
        name = f"tcgen05.commit.{_GROUPS[stmt.pair]}.mbarrier::arrive::one.shared::cluster"
        if stmt.pair:
            ptx(f"{name}.multicast::cluster.b64", place, _BOTH)
        else:
            ptx(f"{name}.b64", place)


@emits(TensorSums)
def _sums(stmt: TensorSums, ctx: DeviceContext) -> None:
    """What lies in the rows of a warp and the columns of its warpgroup; whole warps load together."""
    data = ctx.fragments[stmt.dst.buffer].data
    with _own_rows(stmt, 4, ctx) as parts:
        for at, count, first in parts:
            words = [data[first + word] for word in range(4 * count)]
            ptx(f"tcgen05.ld.sync.aligned.16x256b.x{count}.b32", *words, at)
        ptx("tcgen05.wait::ld.sync.aligned")


@emits(TensorPut)
def _put(stmt: TensorPut, ctx: DeviceContext) -> None:
    """The opposite. A lane has two neighbours of 16 bits in the place of a number of 32."""
    data, size = ctx.fragments[stmt.src.buffer].data, element_bytes(str(stmt.src.buffer.dtype))
    with _own_rows(stmt, size, ctx) as parts:
        for at, count, first in parts:
            places = range(first, first + 4 * count, 4 // size)
            words = [data[place] if size == 4 else _PAIR.call(data.ptr_to([place])) for place in places]
            ptx(f"tcgen05.st.sync.aligned.16x{64 * size}b.x{count}.b32", at, *words)
        ptx("tcgen05.wait::st.sync.aligned")


@contextmanager
def _own_rows(
    stmt: TensorSums | TensorPut, size: int, ctx: DeviceContext
) -> Iterator[Iterator[tuple[Expr, int, int]]]:
    """Accesses of a warp's part of a fragment, whose elements have ``size`` bytes, ordered among those of
    others: for each instruction its address, how many quads of registers of 32 bits it has, the first
    element."""
    assert ctx.warp is not None
    rows, quads = stmt.tile.tiles
    beside = stmt.tile.warps[1]
    group = tirx.truncdiv(ctx.warp, i32(WARPS_OF_A_GROUP))
    block, column = tirx.truncdiv(group, i32(beside)), tirx.truncmod(group, i32(beside))
    row = tirx.truncmod(ctx.warp, i32(WARPS_OF_A_GROUP)) * i32(rows * _HALF << _ROW_BIT)
    width = _QUAD * size // 4
    columns = block * i32(stmt.tile.columns * size // 4) + column * i32(quads * width)
    place = let("sums", _columns(stmt, ctx) + u32(columns + row + i32(stmt.column)))
    meet_warp()
    ptx("tcgen05.fence::after_thread_sync")
    yield (
        (place + u32((half * _HALF << _ROW_BIT) + first * width), count, 4 * (half * quads + first))
        for half in range(rows)
        for first, count in _runs(quads)
    )
    ptx("tcgen05.fence::before_thread_sync")


def _runs(quads: int) -> Iterator[tuple[int, int]]:
    """Loads of powers of two: the first quad of each, and how many."""
    first = 0
    while first < quads:
        count = min(_MOST_QUADS, 1 << (quads - first).bit_length() - 1)
        yield first, count
        first += count


def _columns(stmt: TensorProduct | HeldProduct | TensorSums | TensorPut, ctx: DeviceContext) -> Expr:
    """The address that columns are counted from."""
    address = _address(stmt.memory, ctx)
    offset = stmt.offset if isinstance(stmt, (TensorProduct, TensorSums)) else None
    return address if offset is None else address + u32(ctx.value(offset))


def _address(memory: Var, ctx: DeviceContext) -> Expr:
    """What `_open` has been given."""
    return ctx.storage(memory).data[0]
