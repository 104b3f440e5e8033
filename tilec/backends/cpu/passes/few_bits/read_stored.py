"""Products of few rows read numbers of few bits as they are stored.

copy(K[k * 64:+64, 0:+128], Kb[0:+64, 0:+128])
for i, j in parallel(64, 128): Kf[i, j] = float32(Kb[i, j])
product(Qs, Kf, c)
->
copy(K[k * 64:+64, 0:+128], Kf_stored[0:+64, 0:+128])
product(Qs, Kf_stored, c)

The product converts what it reads. A converted tile is written and read once more, in two or four times the
bytes. Numbers that bytes hold several of, and others that a byte has room for, are bytes of such a tile.
Conversions are those that round nothing, and more rows than a register block has would repeat them.
Products by words of bfloat16 become multiply-adds of float32 for that, which are half as fast at most.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import MicroGemm, RegisterBlock
from tilec.backends.cpu.passes.few_bits.stored_tiles import StoredTiles, conversion, of_numbers
from tilec.backends.cpu.passes.products.select_microkernel import plain_block
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, Block, Copy, Kernel, Launch, Parallel, Stmt
from tilec.lowering.analysis.regions import static
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target


class ReadStored(Pass):
    """In: ``MicroGemm`` of few rows on a ``b`` of floats that one statement converts from bytes, or from
    integers that it computes. Out: multiply-adds on a tile of bytes that a Copy fills, or a loop."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such tiles of bytes."""
        return rewrite_launches(kernel, lambda launch: _Stored(launch, target).result())


class _Stored(StoredTiles):
    """Looks at one launch, then rewrites it. ``fills`` maps what fills a converted tile to the statement that
    takes its place, ``twins`` that tile to the one of bytes."""

    def __init__(self, launch: Launch, target: Target) -> None:
        super().__init__(launch, target)
        self.fills: dict[Stmt, Stmt] = {}
        self.twins: dict[Var, Var] = {}

    def result(self) -> Launch:
        """The launch with tiles of bytes in the place of converted ones."""
        rewrite_blocks(self.launch.body, self._look)
        if not self.fills:
            return self.launch
        return replace(self.launch, body=rewrite_blocks(self.launch.body, self._block))

    def _look(self, block: Block) -> Block:
        """Notes what a block converts, each with the Copy that has brought its bytes."""
        brought: dict[Var, Copy] = {}
        for stmt in block:
            found, numbers = conversion(stmt), of_numbers(stmt)
            if found is not None and self.serves_few_rows(found.dst.buffer, computed=False):
                source = self.origin(found.src, brought)
                twin = self._twin(found.dst.buffer, str(source.buffer.dtype))
                self.fills[stmt] = Copy(source, replace(found.dst, buffer=twin), loc=stmt.loc)
            elif (
                isinstance(stmt, Parallel)
                and numbers is not None
                and self.serves_few_rows(numbers.buffer, computed=True)
            ):
                twin = self._twin(numbers.buffer, dtype_of(numbers.value))
                self.fills[stmt] = replace(stmt, body=(replace(numbers, buffer=twin),))
            if isinstance(stmt, Copy):
                brought[stmt.dst.buffer] = stmt
        return block

    def _twin(self, tile: Var, dtype: str) -> Var:
        """The tile of bytes in the place of ``tile``."""
        twin = tirx.decl_buffer(tile.shape, dtype, f"{tile.name}_stored", scope=tile.scope())
        self.twins[tile] = twin
        return twin

    def _block(self, block: Block) -> list[Stmt]:
        return [self._stmt(stmt) for stmt in block]

    def _stmt(self, stmt: Stmt) -> Stmt:
        if stmt in self.fills:
            return self.fills[stmt]
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
