"""Which launches are products: those of loaded tiles in one Pipelined loop, and their epilogue.

    for k in pipelined(..): copy(A[..], As); copy(B[..], Bs); gemm(As, Bs, acc)      the loop
    for i, j: C[i, j] = f(acc[i, j], bias[j], ..)                                    the epilogue

A launch of another form is `Unfit`, with the statement to blame and the reason; `explain` shows it as a loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.backends.cuda.matmul.match.epilogue import Shape, check_tail, tail_of
from tilec.backends.cuda.matmul.match.heads import foreign_to_head, head_of, without_guard
from tilec.backends.cuda.matmul.match.promotion import Promotion, without_promotion
from tilec.backends.cuda.matmul.nodes import WindowCopy
from tilec.backends.cuda.warp_roles.epilogue import check_call
from tilec.backends.cuda.warp_roles.neighbours import reads_pairs
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.unfit import about, check_cleared, load_of, need
from tilec.ir.exprs import inlined, int_value, loads, uses, walk
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Copy,
    Gemm,
    Launch,
    Parallel,
    Pipelined,
    Region,
    Stmt,
    is_global,
)
from tilec.ir.nodes import walk as walk_statements
from tilec.ir.traits import buffers, expressions, loads_of
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.scopes import conditioned
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True, eq=False)
class Match:
    """The parts of a launch. ``loads`` fill the operands of ``gemms`` in every trip of ``loop``, each of them
    once, first operands first; ``head`` is scalar code, ``guard`` the condition of all behind it, ``tail``
    elementwise loops over tiles of accumulators, ``promotion`` says how the sums of a trip are scaled, where
    they are."""

    head: tuple[Stmt, ...]
    loop: Pipelined
    inner: tuple[Bind, ...]
    loads: tuple[Copy | WindowCopy, ...]
    gemms: tuple[Gemm, ...]
    fragments: tuple[Alloc, ...]
    tail: tuple[Parallel, ...]
    warpgroups: int
    promotion: Promotion | None = None
    guard: Expr | None = None

    @property
    def names(self) -> dict[Var, Expr]:
        """The values of all names, those of elements that are read too."""
        return values_of(walk_statements((*self.head, *self.inner)))

    @property
    def ends(self) -> tuple[Expr, Expr]:
        """Where the trips of a tile start and stop, without names."""
        names = self.names
        return inlined(self.loop.start, names), inlined(self.loop.stop, names)

    def same_trips(self, launch: Launch) -> bool:
        """Whether the trips of all tiles of ``launch`` follow from dims."""
        return not any(uses(end, launch.block_vars) or any(True for _ in loads(end)) for end in self.ends)

    @property
    def reads_pairs(self) -> bool:
        """Whether its epilogue reads other columns of fragments than an element's own."""
        fragments = {alloc.buffer for alloc in self.fragments}
        return any(reads_pairs(conditioned(loop.body)[1], loop.vars[1], fragments) for loop in self.tail)

    @property
    def gemm(self) -> Gemm:
        """The first product: the only one for who has asked (`is_single`)."""
        return self.gemms[0]

    @property
    def is_single(self) -> bool:
        """Whether there is one product."""
        return len(self.gemms) == 1

    @property
    def a(self) -> Copy | WindowCopy:
        """What fills the first product's first operand."""
        return self._filling({self.gemm.a.buffer})[0]

    @property
    def b(self) -> Copy | WindowCopy:
        """What fills the first product's second operand."""
        return self._filling({self.gemm.b.buffer})[0]

    @property
    def firsts(self) -> tuple[Copy | WindowCopy, ...]:
        """What fills first operands."""
        return self._filling({gemm.a.buffer for gemm in self.gemms})

    @property
    def seconds(self) -> tuple[Copy | WindowCopy, ...]:
        """What fills second operands."""
        return self._filling({gemm.b.buffer for gemm in self.gemms})

    def _filling(self, tiles: set[Var]) -> tuple[Copy | WindowCopy, ...]:
        return tuple(copy for copy in self.loads if copy.dst.buffer in tiles)

    @property
    def sums(self) -> tuple[Gemm, ...]:
        """For each accumulator the first product that adds to it."""
        return tuple({gemm.c.buffer: gemm for gemm in reversed(self.gemms)}.values())[::-1]

    @property
    def rows(self) -> int:
        """Rows of the first product's accumulator."""
        return _size(self.gemm.c, 0)

    @property
    def columns(self) -> int:
        """Columns of the first product's accumulator."""
        return _size(self.gemm.c, 1)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Rows and columns of each accumulator."""
        return tuple((_size(gemm.c, 0), _size(gemm.c, 1)) for gemm in self.sums)


def match(launch: Launch) -> Match:
    """The parts of ``launch``; Unfit where it has others."""
    launch, guard = without_guard(launch)
    groups, (before, whole, after) = _warpgroups(launch), _around_loop(launch)
    loop, promotion = without_promotion(whole)
    inner, copies, gemms = _loop_parts(loop)
    for gemm in gemms:
        _check_source(gemm.a, copies)
        _check_source(gemm.b, copies)
        _check_accumulator(gemm)
    check_cleared(gemms, before)
    _check_order(loop, gemms, copies)
    fragments = _fragments((*before, *after), launch, promotion)
    tail, firsts = tail_of(after), {gemm.a.buffer for gemm in gemms}
    copies = tuple(sorted(copies, key=lambda copy: copy.dst.buffer not in firsts))
    found = Match(_head(before), loop, inner, copies, gemms, fragments, tail, groups, promotion, guard)
    check_tail(found.tail, found.fragments, found.shapes, launch)
    _check_sources(found, launch)
    return found


def _warpgroups(launch: Launch) -> int:
    threads = thread_count(launch)
    need(
        threads in (WARPGROUP, 2 * WARPGROUP),
        f"{threads} threads are not one or two warpgroups",
        remedy="give T.Kernel threads=128 or threads=256",
    )
    return threads // WARPGROUP


def _around_loop(launch: Launch) -> tuple[Block, Pipelined, Block]:
    """The one pipelined loop of a launch, between what stands before and after it."""
    loops = [stmt for stmt in launch.body if isinstance(stmt, Pipelined)]
    need(
        len(loops) == 1,
        "it is not one pipelined loop",
        loops[1] if len(loops) > 1 else None,
        "write the loop along K as for ko in T.Pipelined(...), one in a launch",
    )
    at = launch.body.index(loops[0])
    return launch.body[:at], loops[0], launch.body[at + 1 :]


def _fragments(block: Block, launch: Launch, promotion: Promotion | None) -> tuple[Alloc, ...]:
    """The fragments of a launch that it uses; what a trip sums for a promotion has registers of its own."""
    used = {buffer for stmt in walk_statements(launch.body) for buffer in buffers(stmt)}
    if promotion is not None:
        used.discard(promotion.part)
    allocs = (stmt for stmt in block if isinstance(stmt, Alloc) and stmt.buffer in used)
    return tuple(each for each in allocs if each.buffer.scope() not in ("shared.dyn", "local.var"))


def all_expressions(stmt: Stmt) -> Iterator[Expr]:
    """The expressions of a statement and of all inside."""
    return (expr for inner in walk_statements((stmt,)) for expr in expressions(inner))


def _size(region: Region, axis: int) -> int:
    value = int_value(region.extent[axis])
    assert value is not None, "tiles have build-time extents"
    return value


# ---- the loop ----


def _loop_parts(
    loop: Pipelined,
) -> tuple[tuple[Bind, ...], tuple[Copy | WindowCopy, ...], tuple[Gemm, ...]]:
    inner = tuple(stmt for stmt in loop.body if isinstance(stmt, Bind))
    copies = tuple(stmt for stmt in loop.body if isinstance(stmt, (Copy, WindowCopy)))
    gemms = tuple(stmt for stmt in loop.body if isinstance(stmt, Gemm))
    alone = len(inner) + len(copies) + len(gemms) == len(loop.body)
    other = next((stmt for stmt in loop.body if not isinstance(stmt, (Bind, Copy, WindowCopy, Gemm))), loop)
    need(
        alone and len(gemms) > 0,
        "its loop is not copies and products alone",
        other,
        "keep T.copy of the operands and T.gemm in the loop, and move the rest before or behind it",
    )
    reading = next((stmt for stmt in inner for _ in loads_of(stmt)), None)
    need(
        reading is None,
        "its loop reads memory for addresses",
        reading,
        "look it up before the loop, or gather with T.copy of whole tiles",
    )
    return inner, copies, gemms


def _check_order(loop: Pipelined, gemms: Sequence[Gemm], copies: Iterable[Copy | WindowCopy]) -> None:
    """Every load stands before the products that read it, of which there are some, and all of them have it on
    the same side."""
    at = loop.body.index
    for copy in copies:
        tile = copy.dst.buffer
        first = [gemm for gemm in gemms if gemm.a.buffer.same_as(tile)]
        second = [gemm for gemm in gemms if gemm.b.buffer.same_as(tile)]
        need(bool(first or second), f"no product reads {tile.name}", copy, "copy operands of products alone")
        twice = next(iter(first), None) if second else None
        need(
            twice is None, f"{tile.name} is a first and a second operand", twice, "copy it to a tile for each"
        )
        early = next((gemm for gemm in (*first, *second) if at(gemm) < at(copy)), None)
        need(early is None, "the product comes first", early, "copy before T.gemm")


def _check_source(operand: Region, copies: Sequence[Copy | WindowCopy]) -> None:
    """One copy of a box fills an operand."""
    copy, name = load_of(operand.buffer, copies), operand.buffer.name
    need(
        is_global(copy.src.buffer),
        f"{name} does not come from a tensor",
        copy,
        "copy from a tensor parameter",
    )
    need(len(operand.buffer.shape) == 2, f"{name} is no matrix", copy, "give the tile two axes")
    need(
        is_whole(operand) and is_whole(copy.dst),
        f"the product or the copy takes a part of {name}",
        copy,
        "give each operand a tile of its own size",
    )
    need(
        str(copy.src.buffer.dtype) == str(copy.dst.buffer.dtype),
        f"{name} is converted on its way",
        copy,
        f"allocate {name} with the type of {copy.src.buffer.name}",
    )
    if isinstance(copy, Copy):
        _check_axes(copy, name)


def _check_axes(copy: Copy, name: str) -> None:
    """The tile is a box of the last two axes of the tensor."""
    lead = copy.src.extent[:-2]
    same = len(copy.src.extent) >= 2 and all(
        int_value(x) == int_value(y) for x, y in zip(copy.src.extent[-2:], copy.dst.extent, strict=True)
    )
    need(
        same and all(int_value(extent) == 1 for extent in lead),
        f"{name} is no box of the last two axes of {copy.src.buffer.name}",
        copy,
        "store the tensor so that rows and columns of the tile are its last two axes",
    )


def _check_accumulator(gemm: Gemm) -> None:
    c = gemm.c
    name = c.buffer.name
    need(
        c.buffer.scope() == "local.fragment" and len(c.extent) == 2,
        f"its accumulator {name} is no 2-D fragment",
        gemm,
        "accumulate in T.alloc_fragment((bM, bN), ...)",
    )
    need(
        is_whole(c),
        f"it adds to a part of its accumulator {name}",
        gemm,
        "give the product a fragment of its own",
    )


def _head(before: Block) -> tuple[Stmt, ...]:
    foreign = foreign_to_head(before)
    need(
        foreign is None,
        f"{type(foreign).__name__} stands before its loop",
        foreign,
        "keep scalar code alone before the loop, or make it a launch of its own",
    )
    found = head_of(before)
    for stmt in found:
        with about(stmt, "compute it before the launch, or with other arithmetic"):
            for node in (part for expr in all_expressions(stmt) for part in walk(expr)):
                check_call(node)
    return found


# ---- memory that it reads ----


def _written(block: Block) -> set[Var]:
    images = {stmt.src.buffer for stmt in walk_statements(block) if isinstance(stmt, WindowCopy)}
    return written_in(block) - images


def _check_sources(found: Match, launch: Launch) -> None:
    written = _written(launch.body)
    apart = "write to another tensor, or split the launch in two"
    for stmt in found.head:
        for source in {load.source for expr in all_expressions(stmt) for load in loads(expr)}:
            free = source not in written or source.scope() == "local.var"
            need(free, f"{source.name} is written by the launch", stmt, apart)
    for copy in found.loads:
        name = copy.src.buffer.name
        need(copy.src.buffer not in written, f"{name} is written by the launch", copy, apart)
    tiles = {copy.dst.buffer for copy in found.loads}
    for loop in found.tail:
        used = {buffer for stmt in conditioned(loop.body)[1] for buffer in buffers(stmt)}
        need(not tiles & used, "its tiles are used behind its loop", loop, "allocate another tile for it")
