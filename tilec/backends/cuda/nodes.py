"""Statements that CUDA lowering adds to the tile IR."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilec.ir.layout import Layout
from tilec.ir.nodes import LOOPS, Atomic, For, Parallel
from tilec.ir.nodes.barriers import Arrive, WaitPhase
from tilec.ir.nodes.threads import ThreadReduce
from tilec.ir.stmt import At, Block, Defines, Operands, Region, Scratch, Signals, Stmt, Updates, Writes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer


@dataclass(frozen=True, eq=False)
class ThreadLoop(Stmt):
    """A Parallel whose iterations are spread over threads and registers by ``layout``; iterations of padding
    (beyond ``extents``) do nothing. The first ``vector`` values of the last variable lie in one thread."""

    syntax = "threads(*extents, layout=, vector=)"

    vars: Defines[tuple[Var, ...]]
    extents: tuple[int, ...]
    layout: Layout
    body: Block
    vector: int = 1


@dataclass(frozen=True, eq=False)
class RaggedLoop(Parallel):
    """A Parallel whose accesses of tensors along its last variable are vectors of up to ``width`` elements,
    each where a test says so as the loop runs: rows may begin and end anywhere. Where its body first names a
    shift s and a column, the latter is ``place - s``, and of the first s places the last s columns. ``cut``:
    vectors at the ends of rows are read whole, and what is beside the row is cut off."""

    syntax = "ragged(*extents, dtypes=, hints=, width=, cut=)"

    width: int = 1
    cut: bool = False


@dataclass(frozen=True, eq=False)
class RaggedThreadLoop(ThreadLoop):
    """A `RaggedLoop` spread over threads and registers."""

    syntax = "ragged_threads(*extents, layout=, vector=, cut=)"

    cut: bool = False


@dataclass(frozen=True, eq=False)
class EndLoop(Parallel):
    """A Parallel for where tensors of one axis end, beside one that moves them in vectors where they do not:
    it moves single elements, which costs a block alone."""

    syntax = "ends(*extents, dtypes=, hints=)"


@dataclass(frozen=True, eq=False)
class EndThreadLoop(ThreadLoop):
    """An `EndLoop` spread over threads and registers."""

    syntax = "end_threads(*extents, layout=, vector=)"


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
class Sync(Stmt):
    """A barrier of all threads of the block."""

    syntax = "sync_threads()"


@dataclass(frozen=True, eq=False)
class SharedSync(Sync):
    """A barrier of all threads of the block that orders shared memory alone: loads of global memory stay
    under way."""

    syntax = "sync_shared()"


@dataclass(frozen=True)
class WarpTile:
    """How warps share one product and what each issues.

    ``instruction`` is mma.sync's shape ("m16n8k16") or wgmma's ("m64n128k16"); ``warps`` rows and columns of
    warps, ``tiles`` rows of instructions and columns of eight elements that one warp has per step along K,
    ``steps`` the steps of one product. By wgmma the warps of a warpgroup have 16 rows each of an
    instruction's 64, and rows of instructions follow each other in steps of 64; by mma.sync a warp's rows lie
    together. ``paired``: the two rows that a lane has of an instruction of wgmma are neighbours."""

    syntax = "warp_tile(instruction, warps=, tiles=, steps=, paired=)"

    instruction: str
    warps: tuple[int, int]
    tiles: tuple[int, int]
    steps: int
    paired: bool = False

    @property
    def of_warpgroups(self) -> bool:
        """Whether a warpgroup issues an instruction together."""
        return self.instruction.startswith("m64")


@dataclass(frozen=True, eq=False)
class WarpGemm(Stmt):
    """A Gemm on tensor cores: ``a`` in shared memory or in a fragment, ``b`` in shared memory, ``c`` in a
    fragment. Fields as in `tilec.ir.nodes.Gemm`."""

    syntax = "mma(a, b, c, trans_a=, trans_b=, clear=, tile=)"

    a: Region
    b: Region
    c: Updates[Region]
    trans_a: bool
    trans_b: bool
    clear: Expr
    tile: WarpTile


@dataclass(frozen=True, eq=False)
class SparseWarpGemm(WarpGemm):
    """A WarpGemm by mma.sp: ``a`` holds two values of each group of four along K, in shared memory, ``e`` in
    shared memory where they are (`tilec.ir.nodes.SparseGemm`). ``tile.steps`` are those of ``a``."""

    syntax = "mma_sp(a, e, b, c, trans_a=, trans_e=, trans_b=, clear=, tile=)"

    e: Region
    trans_e: bool


@dataclass(frozen=True, eq=False)
class ScaledWarpGemm(WarpGemm):
    """A WarpGemm by mma.sync with ``block_scale``: ``sfa`` and ``sfb`` hold the scales, in shared memory, one
    for ``group`` numbers along K (`tilec.ir.nodes.ScaledGemm`)."""

    syntax = "mma_scaled(a, b, c, sfa, sfb, group=, trans_a=, trans_b=, clear=, tile=)"

    sfa: Region
    sfb: Region
    group: int


@dataclass(frozen=True, eq=False)
class WarpgroupProduct(WarpGemm):
    """A WarpGemm by wgmma, which runs in the background until a `ProductsWait` covers it: ``a`` in shared
    memory or, of 16 bits, in a fragment. ``types`` are those in the instruction's name. ``registers``: what
    `BringOperand` has loaded of ``a``, of 8 or 32 bits across K, under this name."""

    syntax = "wgmma(a, b, c, trans_a=, trans_b=, clear=, tile=, types=, registers=)"

    types: str
    registers: str | None = None

    @property
    def width(self) -> int:
        """Columns of one instruction."""
        return int(self.tile.instruction[len("m64n") :].partition("k")[0])


@dataclass(frozen=True, eq=False)
class BringOperand(Stmt):
    """Lanes load into ``registers`` (a name) what a `WarpgroupProduct` of ``tile`` takes of ``a``, a shared
    tile of 8 or 32 bits across K."""

    syntax = "bring_operand(a, tile=, registers=)"

    a: Region
    tile: WarpTile
    registers: str


@dataclass(frozen=True, eq=False)
class TurnTile(Stmt):
    """``dst[j, i] = src[i, j]`` for elements of 8 or 32 bits in shared memory: an operand that is stored
    across K, for wgmma, which takes it along K alone. ``dst`` is a whole tile, or a version of one, of whole
    units (`tilec.backends.cuda.analysis.turn_operands.UNITS`)."""

    src: Region
    dst: Writes[Region]


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


@dataclass(frozen=True, eq=False)
class ProductsWait(Stmt):
    """Waits until at most ``pending`` products of this warpgroup are under way; ``sums`` are the accumulators
    that are complete from here on, ``tiles`` what those products have read until now."""

    syntax = "wgmma_wait(pending, *tiles, sums=)"

    pending: int
    tiles: tuple[Buffer, ...]
    sums: Updates[tuple[Region, ...]]


@dataclass(frozen=True, eq=False)
class ProxyFence(Stmt):
    """What the threads that run it have written to shared memory is seen by wgmma and TMA behind the next
    barrier."""

    syntax = "proxy_fence()"


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
class GiveBack(Stmt):
    """The warps that run it are done with ``tiles``, whose loads may overwrite them: an arrival at
    ``barrier[index]``, of a thread for each warpgroup where products alone have read them (``once``), else of
    one for each warp. Behind the products that read the tiles, wherever it stands."""

    syntax = "give_back(barrier[index], *tiles, once=)"

    barrier: Signals[Buffer]
    index: At[Expr]
    tiles: tuple[Buffer, ...]
    once: bool = True


@dataclass(frozen=True, eq=False)
class EachTile(Stmt):
    """``body`` for every tile of a launch's ``grid`` that falls to this block: those gridDim.x apart from its
    own number on, which the launch's block variables stand for there. Tiles follow each other along the first
    axis, or in bands of ``band`` along the second one. ``pair``: blocks with numbers 2 n and 2 n + 1 have
    neighbours along that axis, the second of which may lie outside of the grid."""

    syntax = "each_tile(*grid, band=, pair=)"

    grid: tuple[int | Expr, ...]
    body: Block
    band: int = 0
    pair: int | None = None


#: What runs its body again and again in device code.
REPEATING = (*LOOPS, EachTile)


@dataclass(frozen=True, eq=False)
class EachLane(Stmt):
    """Each of the first ``count`` threads of those that run it, all of one warp, runs ``body``, with its
    number among them as ``var``."""

    syntax = "each_lane(count)"

    var: Defines[Var]
    count: int
    body: Block


@dataclass(frozen=True, eq=False)
class Anew(Stmt):
    """``body``, in which a thread finds its places in tiles from its lane's number anew, with ``warp`` from
    its warp's, too."""

    syntax = "anew(warp=)"

    body: Block
    warp: bool = False


@dataclass(frozen=True, eq=False)
class SideBySide(Stmt):
    """Products by wgmma of one first operand and of matrices that lie one behind the other in a tile, or in a
    ring's stages, each with sums of its own, as one product of all columns."""

    syntax = "side_by_side()"

    body: Block


@dataclass(frozen=True, eq=False)
class FirstOperands(WarpGemm):
    """Loads what the first step of a product multiplies into ``registers`` (a name), where ``more`` holds.
    The product itself is a `RotatedGemm` in the loop behind."""

    syntax = "first_operands(a, b, c, trans_a=, trans_b=, clear=, tile=)"

    more: Expr
    registers: str


@dataclass(frozen=True, eq=False)
class RotatedGemm(WarpGemm):
    """A WarpGemm that finds the operands of its first step in ``registers`` and leaves those of the next trip
    there: before its last step it waits for all but ``pending`` groups of copies and for all threads, then
    loads from ``next_a`` and ``next_b`` where ``more`` holds."""

    syntax = "rotated_mma(a, b, c, trans_a=, trans_b=, clear=, tile=)"

    next_a: Region
    next_b: Region
    more: Expr
    pending: int
    registers: str


@dataclass(frozen=True, eq=False)
class BlockScan(Stmt):
    """``tile``, a whole fragment, becomes its inclusive scan along the last axis; with ``reverse`` from the
    end. ``scratch`` is a shared tile (pieces of a thread, warps along the axis, lines) where the axis is
    spread over warps, else None. Fields as in `tilec.ir.nodes.Scan`."""

    kind: str
    tile: Updates[Region]
    reverse: bool
    scratch: Scratch[Buffer | None] = None


@dataclass(frozen=True, eq=False)
class BlockReduce(Stmt):
    """A Reduce whose ``dst`` has the layout of ``src`` without ``axis``. ``scratch`` is a shared tile
    (warps along the axis, elements of dst) where the axis is spread over warps, else None."""

    kind: str
    src: Region
    dst: Updates[Region]
    axis: int
    clear: bool
    nan_propagate: bool
    scratch: Scratch[Buffer | None] = None


@dataclass(frozen=True, eq=False)
class OwnReduce(BlockReduce):
    """A BlockReduce of each thread's own elements: threads that share a result have parts of it."""


@dataclass(frozen=True, eq=False)
class JoinReduce(Stmt):
    """A BlockReduce of the ``parts`` that OwnReduce left, which lie as ``dst``: threads have them over which
    ``layout``, that of what was reduced, spreads the ``axis``."""

    kind: str
    parts: Region
    dst: Updates[Region]
    axis: int
    layout: Layout
    clear: bool
    nan_propagate: bool
    scratch: Scratch[Buffer | None] = None


@dataclass(frozen=True, eq=False)
class AheadLoop(ThreadLoop):
    """A ThreadLoop that reads one tensor's elements to a fragment, which nothing waits for before TakeAhead:
    vectors go to its registers as they come, whole."""

    syntax = "ahead(*extents, layout=, vector=)"


@dataclass(frozen=True, eq=False)
class TakeAhead(Stmt):
    """``dst`` becomes ``src``, fragments of one layout, ``width`` elements at once."""

    src: Region
    dst: Writes[Region]
    width: int


@dataclass(frozen=True, eq=False)
class InitBarriers(Stmt):
    """Barriers begin their first phase: ``barrier`` is a buffer of them, ``counts`` the arrivals that a phase
    of each takes. Other threads may use them behind a Sync."""

    barrier: Signals[Buffer]
    counts: tuple[int, ...]
    cluster: bool = False


@dataclass(frozen=True, eq=False)
class CompleteBytes(Stmt):
    """``count`` of the bytes that the phase of ``barrier[index]`` waits for are there. ``alone``: a single
    thread runs it; else one of them says so for those that have met at a Sync."""

    syntax = "complete_bytes(barrier[index], count, alone=)"

    barrier: Signals[Buffer]
    index: At[Expr]
    count: int
    alone: bool = False


@dataclass(frozen=True, eq=False)
class RemoteStore(Atomic):
    """Leaves ``value`` in that element of the shared tile of the block of rank ``block`` in the cluster. Its
    bytes count at ``barrier[index]`` of that block, where there is a barrier."""

    syntax = "remote_store(buffer[indices], value, block=, barrier[index]=)"

    block: Expr = field(kw_only=True)
    barrier: Signals[Buffer | None] = None
    index: At[Expr | None] = None


@dataclass(frozen=True, eq=False)
class ArriveOnce(Arrive):
    """An Arrive of one thread for all that run it."""

    syntax = "arrive_once(barrier[index], expect=, block=)"


@dataclass(frozen=True, eq=False)
class ArriveLanded(Arrive):
    """An Arrive of each thread that runs it, as soon as all of its asynchronous copies so far are
    complete."""

    syntax = "arrive_landed(barrier[index])"


@dataclass(frozen=True, eq=False)
class WaitLanded(WaitPhase):
    """A WaitPhase for asynchronous copies of other threads, which wgmma reads behind it."""

    syntax = "wait_landed(barrier[index], parity)"


@dataclass(frozen=True, eq=False)
class GridMeet(Stmt):
    """The threads of a block meet, one of them waits at ``arrivals`` (one uint32 in global memory) for those
    of all other blocks, and they meet again."""

    arrivals: Signals[Buffer]


@dataclass(frozen=True, eq=False)
class ThreadVector(For):
    """A T.vectorized loop of one thread over stores alone, from 0 to a power of two: neighbours in memory
    move at once."""


@dataclass(frozen=True, eq=False)
class WarpSync(Stmt):
    """The lanes of ``mask`` of one warp, which all run it, see what each of them wrote."""

    mask: int


@dataclass(frozen=True)
class Digits:
    """Digits of a thread's number in its block, as (stride, extent)."""

    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class JoinThreads(ThreadReduce):
    """A ThreadReduce: lanes that differ in a bit of ``masks`` exchange values, then threads that differ in a
    digit of ``digits`` read each other's in ``scratch`` (an element for each thread), if there are any."""

    syntax = "buffer[indices] = join_threads(combine, identity, value, cond, axes=)"

    masks: tuple[int, ...] = ()
    digits: Digits = Digits(())
    scratch: Scratch[Buffer | None] = None
