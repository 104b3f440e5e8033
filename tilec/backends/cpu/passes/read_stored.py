"""Products of few rows read numbers of few bits as they are stored.

copy(K[k * 64:+64, 0:+128], Kb[0:+64, 0:+128])
for i, j in parallel(64, 128): Kf[i, j] = float32(Kb[i, j])
product(Qs, Kf, c)
->
copy(K[k * 64:+64, 0:+128], Kf_stored[0:+64, 0:+128])
product(Qs, Kf_stored, c)

The product converts what it reads. A converted tile is written and read once more, in two or four times the
bytes. Conversions are those that round nothing, and more rows than a register block has would repeat them.
Products by words of bfloat16 become multiply-adds of float32 for that, which are half as fast: of fewer rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.nodes import MicroGemm, RegisterBlock
from tilec.backends.cpu.passes.select_microkernel import across_block, plain_block
from tilec.ir.exprs import dtype_of, int_value, loads, same_all, substitute, uses
from tilec.ir.nodes import Alloc, Block, Copy, Kernel, Launch, Parallel, Region, Stmt, Store
from tilec.ir.traits import written
from tilec.lowering.analysis.regions import is_whole, static
from tilec.lowering.analysis.uses import addressed_in, changed_in, users
from tilec.lowering.math.float8 import FLOAT8_TYPES
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Types of numbers of eight bits or fewer, all of which every wider float type has.
_STORED = ("int8", "uint8", *FLOAT8_TYPES)

#: Types of tiles that hold them exactly.
_CONVERTED = ("float16", "bfloat16", "float32")

#: The form that gives way to them: that of aarch64's words and of matrix units was not measured beside them.
_WORDS = "vdpbf16ps"


class ReadStored(Pass):
    """In: ``MicroGemm`` of few rows on a ``b`` of floats that one statement converts from bytes of a tensor,
    or of a tile that one Copy fills. Out: multiply-adds on a tile of bytes that a Copy fills."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such tiles of bytes."""
        return rewrite_launches(kernel, lambda launch: _Stored(launch, target).result())


class _Stored:
    """Looks at one launch, then rewrites it. ``copies`` maps what fills a converted tile to the Copy that
    takes its place, ``twins`` that tile to the one of bytes."""

    def __init__(self, launch: Launch, target: Target) -> None:
        self.launch = launch
        self.target = target
        self.users = users(launch.body)
        self.unsure = changed_in(launch) | addressed_in(launch.body)
        self.copies: dict[Stmt, Copy] = {}
        self.twins: dict[Var, Var] = {}

    def result(self) -> Launch:
        """The launch with tiles of bytes in the place of converted ones."""
        rewrite_blocks(self.launch.body, self._look)
        if not self.copies:
            return self.launch
        return replace(self.launch, body=rewrite_blocks(self.launch.body, self._block))

    def _look(self, block: Block) -> Block:
        """Notes what a block converts, each with the Copy that has brought its bytes."""
        brought: dict[Var, Copy] = {}
        for stmt in block:
            found = _conversion(stmt)
            if found is not None and self._serves_few_rows(found):
                self._note(stmt, found, brought)
            if isinstance(stmt, Copy):
                brought[stmt.dst.buffer] = stmt
        return block

    def _note(self, stmt: Stmt, found: Copy, brought: dict[Var, Copy]) -> None:
        source = self._of_tensor(found.src, brought)
        if source is None:
            return
        tile = found.dst.buffer
        self.twins[tile] = tirx.decl_buffer(
            tile.shape, str(source.buffer.dtype), f"{tile.name}_stored", scope=tile.scope()
        )
        self.copies[stmt] = Copy(source, replace(found.dst, buffer=self.twins[tile]), loc=stmt.loc)

    def _of_tensor(self, source: Region, brought: dict[Var, Copy]) -> Region | None:
        """What ``source`` is of a tensor that stays as it is: itself, or what one Copy brings to all of it;
        None where it is neither."""
        if source.buffer.scope().startswith("global"):
            return None if source.buffer in self.unsure else source
        copy = brought.get(source.buffer)
        if copy is None or not is_whole(source) or not is_whole(copy.dst) or not _is_alike(copy):
            return None
        if any(True for start in copy.src.start for _ in loads(start)):
            return None
        writers = [user for user in self.users[source.buffer] if source.buffer in written(user)]
        return self._of_tensor(copy.src, {}) if writers == [copy] else None

    def _serves_few_rows(self, found: Copy) -> bool:
        """Whether one statement fills a tile for nothing but products of few rows."""
        tile = found.dst.buffer
        readers = [user for user in self.users[tile] if tile not in written(user)]
        alone = len(readers) + 1 == len(self.users[tile])
        return alone and bool(readers) and all(self._is_few(user, tile) for user in readers)

    def _is_few(self, user: Stmt, tile: Var) -> bool:
        """Whether ``user`` is a product that has ``tile`` as its ``b`` alone, and few rows beside it."""
        if not isinstance(user, MicroGemm):
            return False
        alone = not user.c.buffer.same_as(tile) and not user.a.region.buffer.same_as(tile)
        return alone and static(user.a.region.extent[user.a.row]) <= self._most_rows(user)

    def _most_rows(self, gemm: MicroGemm) -> int:
        """Rows up to which multiply-adds of float32 convert each byte once and are ahead; 0 where sums have
        another type. Words of bfloat16 are as fast from five rows on (docs/performance/cpu-2026-11-28.md)."""
        if gemm.computed != "float32":
            return 0
        if gemm.block.form == _WORDS:
            return across_block(self.target, None, 1).rows
        return gemm.block.rows if gemm.block.form == "fma" else 0

    def _block(self, block: Block) -> list[Stmt]:
        return [self._stmt(stmt) for stmt in block]

    def _stmt(self, stmt: Stmt) -> Stmt:
        if stmt in self.copies:
            return self.copies[stmt]
        if isinstance(stmt, Alloc) and stmt.buffer in self.twins:
            return replace(stmt, buffer=self.twins[stmt.buffer])
        if isinstance(stmt, MicroGemm) and stmt.b.region.buffer in self.twins:
            region = replace(stmt.b.region, buffer=self.twins[stmt.b.region.buffer])
            return replace(stmt, b=replace(stmt.b, region=region), block=self._multiply_adds(stmt))
        return stmt

    def _multiply_adds(self, gemm: MicroGemm) -> RegisterBlock:
        """The register block of ``gemm`` without words."""
        if gemm.block.form == "fma":
            return gemm.block
        return plain_block(self.target, gemm.computed, static(gemm.c.extent[-1]))


def _conversion(stmt: Stmt) -> Copy | None:
    """``stmt`` as a Copy, if it fills all of a tile with converted bytes."""
    copy = stmt if isinstance(stmt, Copy) else _as_copy(stmt)
    if copy is None or not is_whole(copy.dst) or copy.dst.buffer.scope().startswith("global"):
        return None
    stored, converted = (str(region.buffer.dtype) for region in (copy.src, copy.dst))
    return copy if stored in _STORED and converted in _CONVERTED else None


def _is_alike(copy: Copy) -> bool:
    return str(copy.src.buffer.dtype) == str(copy.dst.buffer.dtype)


def _as_copy(stmt: Stmt) -> Copy | None:
    """A loop that stores one converted element in each iteration, at its variables; None for any other."""
    if not isinstance(stmt, Parallel) or len(stmt.body) != 1:
        return None
    store = stmt.body[0]
    if not isinstance(store, Store) or not same_all(store.indices, stmt.vars):
        return None
    load = _converted(store.value)
    start = None if load is None else _start(load, stmt.vars)
    if load is None or start is None:
        return None
    zeros = tuple(tirx.const(0, dtype_of(var)) for var in stmt.vars)
    count = len(load.indices) - len(stmt.vars)
    source = Region(load.source, start, (*[1] * count, *stmt.extents))
    return Copy(source, Region(store.buffer, zeros, stmt.extents), loc=stmt.loc)


def _converted(value: Expr) -> TensorLoad | None:
    """The element that ``value`` is, through types that hold it exactly."""
    while isinstance(value, tirx.Cast) and dtype_of(value) in _CONVERTED:
        value = value.value
    return value if isinstance(value, TensorLoad) else None


def _start(load: TensorLoad, moving: tuple[Var, ...]) -> tuple[Expr, ...] | None:
    """Where ``load`` is at the first iteration, if its last indices grow with one of the variables each, in
    their order, and its first with none."""
    first, analyzer = {var: tirx.const(0, dtype_of(var)) for var in moving}, sym.Analyzer()
    start = tuple(analyzer.simplify(substitute(index, first)) for index in load.indices)
    leading = len(start) - len(moving)
    if leading < 0 or any(uses(index, moving) for index in load.indices[:leading]):
        return None
    pairs = zip(load.indices[leading:], start[leading:], moving, strict=True)
    steps = (int_value(analyzer.simplify(index - at - var)) for index, at, var in pairs)
    return start if all(step == 0 for step in steps) else None
