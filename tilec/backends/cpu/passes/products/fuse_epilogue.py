"""Elementwise work that follows a product runs on each register block right after its K loop.

A statement joins the epilogue as long as doing it element by element changes nothing: every buffer that the
epilogue writes is touched at one and the same place per element. An accumulator that nobody else reads,
cleared before, then never reaches memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.cpu.passes.loops.privatise_tiles import is_written_first
from tilec.backends.cpu.products.elementwise import (
    accesses,
    is_pointwise,
    map_expressions,
    per_element,
    stores,
)
from tilec.backends.cpu.products.steps import in_steps, product_of
from tilec.ir.exprs import dtype_of, int_value, is_zero, same_all, substitute
from tilec.ir.nodes import (
    Alloc,
    Block,
    Break,
    Continue,
    Fill,
    For,
    Launch,
    Pipelined,
    Region,
    Stmt,
    is_global,
    walk,
)
from tilec.lowering.analysis.regions import minima, static
from tilec.lowering.analysis.uses import users
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class FuseEpilogue(LaunchPass):
    """In: ``MicroGemm`` between a Fill of its accumulator and elementwise statements. Out: both are part
    of it; accumulators that only it uses are in its ``registers``, their ``Alloc`` has the place
    "registers"."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with epilogues fused."""
        fuser = _Fuser(users(launch.body))
        body = rewrite_blocks(launch.body, fuser.block)
        return replace(launch, body=rewrite_blocks(body, fuser.placed))


class _Fuser:
    """Fuses the products of one launch. ``users`` are the statements that name a buffer, before any
    fusion."""

    def __init__(self, users: dict[Var, list[Stmt]]) -> None:
        self.users = users
        self.analyzer = sym.Analyzer()
        self.registers: set[Var] = set()

    def block(self, block: Block) -> list[Stmt]:
        """The block with every product fused with its neighbours."""
        result, position = list(block), 0
        while position < len(result):
            stmt = result[position]
            gemm = stmt if isinstance(stmt, MicroGemm) else product_of(stmt)
            if gemm is not None and _is_whole(gemm.c):
                position = self._fuse(result, position, gemm)
            position += 1
        return result

    def placed(self, block: Block) -> list[Stmt]:
        """The block with the allocations of registers marked."""
        return [self._placed(stmt) for stmt in block]

    def _placed(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Alloc) and stmt.buffer in self.registers:
            return replace(stmt, place="registers")
        return stmt

    def _fuse(self, block: list[Stmt], position: int, gemm: MicroGemm) -> int:
        """Replaces ``gemm`` at ``position``, or a loop there that ends with it, and what it takes in; its new
        position."""
        fill = _fill_before(block, position, gemm)
        taken, body = self._epilogue(block[position + 1 :], gemm)
        stmt, cleared = block[position], fill is not None or int_value(gemm.clear) == 1
        if not taken and (fill is None or stmt is not gemm):
            return position
        behind = tuple(block[position + 1 : position + 1 + taken])
        before = () if fill is None else (block[fill],)
        registers = self._registers(gemm, body, set(walk((gemm, *before, *behind)))) if cleared else ()
        if (_is_limited(gemm) or stmt is not gemm) and not _is_private_work(gemm, body, registers):
            return position
        made = replace(gemm, body=gemm.body + body, registers=registers)
        if isinstance(stmt, (For, Pipelined)):
            new = in_steps(stmt, made, (*before, *behind), self.analyzer)
        else:
            new = [self._cleared(made) if cleared else made]
        block[position : position + 1 + taken] = new
        if fill is None:
            return position
        del block[fill]
        return position - 1

    def _cleared(self, gemm: MicroGemm) -> MicroGemm:
        """``gemm`` as the first that its sums see, its registers noted."""
        self.registers.update(gemm.registers)
        return replace(gemm, clear=tirx.const(True, "bool"))

    def _epilogue(self, following: list[Stmt], gemm: MicroGemm) -> tuple[int, Block]:
        """How many of the ``following`` statements join, and their work per element."""
        extents = (static(gemm.c.extent[-2]), static(gemm.c.extent[-1]))
        taken: int = 0
        body: Block = ()
        for stmt in following:
            part = per_element(stmt, gemm.vars, extents)
            if part is None:
                break
            joined = body + map_expressions(part, self.analyzer.simplify)
            if not self._is_pointwise(joined, gemm) or not self._ends_with_limits(joined, gemm):
                break
            taken, body = taken + 1, joined
        return taken, body

    def _registers(self, gemm: MicroGemm, body: Block, own: set[Stmt]) -> tuple[Var, ...]:
        """The tiles that exist for nothing but this product and its epilogue, the accumulator among them."""
        if any(user not in own for user in self.users[gemm.c.buffer]):
            return ()
        written = dict.fromkeys([gemm.c.buffer, *(store.buffer for store in stores(body))])
        return tuple(buffer for buffer in written if self._is_private(buffer, body, gemm, own))

    def _is_private(self, buffer: Var, body: Block, gemm: MicroGemm, own: set[Stmt]) -> bool:
        if is_global(buffer) or any(user not in own for user in self.users[buffer]):
            return False
        touched = [indices for source, indices in accesses(body) if source.same_as(buffer)]
        is_set = buffer.same_as(gemm.c.buffer) or is_written_first(body, buffer)
        return is_set and all(same_all(indices, gemm.vars) for indices in touched)

    def _is_pointwise(self, body: Block, gemm: MicroGemm) -> bool:
        """Whether every buffer written is touched at one and the same place per element, and no operand is
        written."""
        found = {gemm.c.buffer, *(store.buffer for store in stores(body))}
        if any(region.buffer in found for region in (gemm.a.region, gemm.b.region)):
            return False
        return is_pointwise(body, gemm, (gemm.c.buffer,), self.analyzer)

    def _ends_with_limits(self, body: Block, gemm: MicroGemm) -> bool:
        """Whether rows and columns that the product leaves out would only write outside of global buffers."""
        counts = zip(gemm.vars, (gemm.rows, gemm.columns), gemm.c.extent[-2:], strict=True)
        limits = [
            (var, limit)
            for var, count, extent in counts
            for limit in minima(count)
            if int_value(limit) != static(extent)
        ]
        outside = [store for store in stores(body) if is_global(store.buffer)]
        return all(
            self._is_outside(store.buffer, store.indices, var, limit)
            for store in outside
            for var, limit in limits
        )

    def _is_outside(self, buffer: Var, indices: tuple[Expr, ...], var: Var, limit: int | Expr) -> bool:
        """Whether an index is beyond its axis by as much as ``var`` is beyond a ``limit`` of its type."""
        dtype = dtype_of(var)
        if not isinstance(limit, int) and dtype_of(limit) != dtype:
            return False
        beyond = tirx.Var("beyond", dtype)
        moved = {var: limit + beyond}
        return any(
            int_value(self.analyzer.simplify(substitute(index, moved) - size - beyond)) == 0
            for index, size in zip(indices, buffer.shape, strict=True)
        )


def _is_whole(region: Region) -> bool:
    """Whether a region is a whole matrix."""
    if len(region.start) != 2:
        return False
    starts = all(int_value(start) == 0 for start in region.start)
    return starts and all(
        int_value(extent) == int_value(size)
        for extent, size in zip(region.extent, region.buffer.shape, strict=True)
    )


def _fill_before(block: list[Stmt], position: int, gemm: MicroGemm) -> int | None:
    """Where the accumulator of the product at ``position`` is set to zero right before: all of it, or the
    rows that a product which clears leaves out."""
    for place in range(position - 1, -1, -1):
        stmt = block[place]
        if isinstance(stmt, Alloc):
            continue
        if isinstance(stmt, Fill) and stmt.dst.buffer.same_as(gemm.c.buffer):
            rest = int_value(gemm.clear) == 1
            return place if (_is_whole(stmt.dst) or rest) and is_zero(stmt.value) else None
        if _mentions(stmt, gemm.c.buffer) or _may_leave(stmt):
            return None
    return None


def _mentions(stmt: Stmt, buffer: Var) -> bool:
    return buffer in users((stmt,))


def _may_leave(stmt: Stmt) -> bool:
    """Whether what follows ``stmt`` may be skipped."""
    return any(isinstance(inner, (Break, Continue)) for inner in walk((stmt,)))


def _is_private_work(gemm: MicroGemm, body: Block, registers: tuple[Var, ...]) -> bool:
    """Whether all that ``gemm`` and its epilogue leave on chip are ``registers``."""
    left = [gemm.c.buffer, *(store.buffer for store in stores(body))]
    return all(buffer in registers or is_global(buffer) for buffer in left)


def _is_limited(gemm: MicroGemm) -> bool:
    """Whether ``gemm`` leaves rows or columns of its tile out."""
    counts = zip((gemm.rows, gemm.columns), gemm.c.extent[-2:], strict=True)
    return any(int_value(count) != static(extent) for count, extent in counts)
