"""Products whose sums lie in tensor memory (tcgen05), and what moves these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes.products import WarpTile
from tilec.ir.stmt import At, Region, Signals, Stmt, Writes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.stmt import Buffer


@dataclass(frozen=True)
class TensorTile(WarpTile):
    """How the warps of warpgroups share sums of tcgen05 as they load them, in instructions of mma.sync's
    shape: a warp has 32 rows of 128, as tensor memory lets it. ``warps`` and ``tiles`` as in `WarpTile`;
    ``columns`` are those of an instruction of tcgen05, of 128 rows."""

    syntax = "tensor_tile(instruction, warps=, tiles=, steps=, paired=, columns=)"

    columns: int = 0


@dataclass(frozen=True, eq=False)
class TensorProduct(Stmt):
    """A product by tcgen05 of two shared tiles, issued by one of the threads that run it: sums lie in tensor
    memory, from ``column`` of what ``memory`` has on, until `TensorSums` loads them. It runs in the
    background until a `TensorCommit` behind it has arrived. Fields as in `tilec.ir.nodes.Gemm`. ``pair``: of
    two blocks, the first of which runs it: each has its own rows of A and of the sums, and half of B.
    ``offset``: columns in front of ``column`` that a run-time value counts."""

    syntax = "tensor_mma(a, b, trans_a=, trans_b=, clear=, tile=, memory=, column=, pair=, offset=)"

    a: Region
    b: Region
    trans_a: bool
    trans_b: bool
    clear: Expr
    tile: TensorTile
    memory: Signals[Buffer]
    column: int
    pair: bool = False
    offset: Expr | None = None


@dataclass(frozen=True, eq=False)
class HeldProduct(Stmt):
    """A `TensorProduct` whose first operand is what a `TensorPut` has written of 16 bits from column ``held``
    of what ``memory`` has on."""

    syntax = "held_mma(b, trans_b=, clear=, tile=, memory=, column=, held=)"

    b: Region
    trans_b: bool
    clear: Expr
    tile: TensorTile
    memory: Signals[Buffer]
    column: int
    held: int


@dataclass(frozen=True, eq=False)
class TensorCommit(Stmt):
    """Arrives once at ``barrier[index]``, of a ``pair`` of blocks in both, when all TensorProducts so far of
    the thread that issues them are complete, which have read ``tiles``."""

    syntax = "tensor_commit(barrier[index], *tiles, pair=)"

    barrier: Signals[Buffer]
    index: At[Expr]
    tiles: tuple[Buffer, ...]
    pair: bool = False


@dataclass(frozen=True, eq=False)
class TensorSums(Stmt):
    """``dst``, a whole fragment of the layout of ``tile``, becomes the sums in tensor memory from ``column``
    of what ``memory`` has on; products that are complete, or a `TensorPut`, made them. ``offset`` as in
    `TensorProduct`."""

    syntax = "tensor_sums(dst, tile=, memory=, column=, offset=)"

    dst: Writes[Region]
    tile: TensorTile
    memory: Signals[Buffer]
    column: int
    offset: Expr | None = None


@dataclass(frozen=True, eq=False)
class TensorPut(Stmt):
    """``src``, a whole fragment of the layout of ``tile``, goes to tensor memory from ``column`` of what
    ``memory`` has on: float32 as sums that products add to, 16 bits two to a column as a first operand. No
    product under way uses these columns."""

    syntax = "tensor_put(src, tile=, memory=, column=)"

    src: Region
    tile: TensorTile
    memory: Signals[Buffer]
    column: int


@dataclass(frozen=True, eq=False)
class OpenTensorMemory(Stmt):
    """The first warp of those that run it gets ``columns`` of tensor memory, whose address ``memory``, one
    uint32, has behind the next Sync. ``pair``: together with the other block of the cluster."""

    syntax = "open_tensor_memory(memory, columns, pair=)"

    memory: Signals[Buffer]
    columns: int
    pair: bool = False


@dataclass(frozen=True, eq=False)
class CloseTensorMemory(OpenTensorMemory):
    """That warp gives them back."""

    syntax = "close_tensor_memory(memory, columns, pair=)"


def opens_memory(stmt: Stmt | None) -> bool:
    """Whether a statement gets tensor memory, and does not give it back."""
    return isinstance(stmt, OpenTensorMemory) and not isinstance(stmt, CloseTensorMemory)
