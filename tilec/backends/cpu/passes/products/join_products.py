"""Products that add to the same sums are one loop over register blocks, each of which goes through them all.

Weights of few bits have a product for each group that shares a scale, activations of two bytes one for each
byte: one after the other, all sums of a tile would pass through memory between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym

from tilec.backends.cpu.nodes import JoinedProducts, MicroGemm, PackPanels, PackWords, TransposePanels
from tilec.backends.cpu.passes.loops.privatise_tiles import is_written_first
from tilec.backends.cpu.products.elementwise import accesses, is_pointwise, map_expressions, stores
from tilec.backends.cpu.products.forms.matrix_forms import MATRIX_FORMS
from tilec.backends.cpu.products.forms.tile_forms import TILE_FORMS
from tilec.ir.exprs import int_value, same, same_all, substitute
from tilec.ir.nodes import Alloc, Bind, Block, For, If, Launch, Parallel, Stmt, Store, is_global, walk
from tilec.lowering.analysis.uses import used_in, users, written_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Bytes that joined products may read of their right operands for one block of columns: half of the least of
#: first caches, which keeps them while all rows pass.
_MOST = 16 << 10

#: What may go in front of products that it has nothing to do with.
_MOVED = (Alloc, Bind, For, If, PackPanels, PackWords, Parallel, Store, TransposePanels)


class JoinProducts(LaunchPass):
    """In: products by blocks of one size over the same rows and columns, which write the same tile element by
    element. Out: `JoinedProducts`; what stands between them is in front. Sums that only they use are in its
    ``registers``, their ``Alloc`` has the place "registers"."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such products joined."""
        joiner = _Joiner(users(launch.body))
        body = rewrite_blocks(launch.body, joiner.block)
        return replace(launch, body=rewrite_blocks(body, joiner.placed))


class _Joiner:
    """Joins the products of one launch. ``users`` are the statements that name a buffer."""

    def __init__(self, users: dict[Var, list[Stmt]]) -> None:
        self.users = users
        self.analyzer = sym.Analyzer()
        self.registers: set[Var] = set()

    def block(self, block: Block) -> list[Stmt]:
        """The block with its products joined."""
        result: list[Stmt] = []
        position = 0
        while position < len(block):
            taken, made = self._from(block[position:])
            result += made
            position += taken
        return result

    def placed(self, block: Block) -> list[Stmt]:
        """The block with the allocations of registers marked."""
        return [
            replace(stmt, place="registers")
            if isinstance(stmt, Alloc) and stmt.buffer in self.registers
            else stmt
            for stmt in block
        ]

    def _from(self, following: Block) -> tuple[int, list[Stmt]]:
        """How many of the ``following`` statements one or several products take in, and what they become."""
        first = following[0]
        if not isinstance(first, MicroGemm) or not _is_plain(first):
            return 1, [first]
        taken, products, ahead = 1, [first], list[Stmt]()
        found, between = [first], list[Stmt]()
        for number, stmt in enumerate(following[1:], 2):
            if isinstance(stmt, MicroGemm) and self._follows(stmt, found):
                shares = _changed(found) & _changed((stmt,))
                found = [*found, stmt]
                if shares:
                    taken, products, ahead = number, found, list(between)
            elif _is_apart(stmt, found):
                between.append(stmt)
            else:
                break
        return (1, [first]) if taken == 1 else (taken, [*ahead, self._joined(products)])

    def _follows(self, gemm: MicroGemm, products: Sequence[MicroGemm]) -> bool:
        """Whether ``gemm`` may be done block by block with the products before it."""
        if not _is_plain(gemm) or not _are_alike(gemm, products[0]):
            return False
        every = [*products, gemm]
        if sum(map(_bytes_of_b, every)) > _MOST:
            return False
        operands = {matrix.region.buffer for each in every for matrix in (each.a, each.b)}
        if operands & _changed(every):
            return False
        body = tuple(stmt for each in every for stmt in _body_at(each, products[0].vars))
        return is_pointwise(body, products[0], [each.c.buffer for each in every], self.analyzer)

    def _joined(self, products: Sequence[MicroGemm]) -> JoinedProducts:
        """The products as one statement."""
        inside = {*walk(tuple(products))}
        found = dict.fromkeys(buffer for each in products for buffer in _changed_by(each))
        handed = tuple(buffer for buffer in found if self._is_handed(buffer, products, inside))
        self.registers.update(handed)
        made = tuple(replace(each, registers=_registers(each, handed)) for each in products)
        return JoinedProducts(made, handed, loc=products[0].loc)

    def _is_handed(self, buffer: Var, products: Sequence[MicroGemm], inside: set[Stmt]) -> bool:
        """Whether a tile holds nothing but what products hand on from one to the other."""
        own = any(buffer in each.registers for each in products)
        if own or is_global(buffer) or any(user not in inside for user in self.users[buffer]):
            return False
        first = next(each for each in products if _touches(each, buffer))
        is_sum = first.c.buffer.same_as(buffer)
        is_set = int_value(first.clear) == 1 if is_sum else is_written_first(first.body, buffer)
        return is_set and all(
            same_all(indices, each.vars)
            for each in products
            for source, indices in accesses(each.body)
            if source.same_as(buffer)
        )


def _registers(gemm: MicroGemm, handed: Iterable[Var]) -> tuple[Var, ...]:
    """Those of a product: its own, and what is handed on and it touches."""
    return (*gemm.registers, *(buffer for buffer in handed if _touches(gemm, buffer)))


def _touches(gemm: MicroGemm, buffer: Var) -> bool:
    return buffer in used_in((gemm,))


def _is_plain(gemm: MicroGemm) -> bool:
    """Whether a product is done in one step by vectors: its sums are a whole tile, stored as they are
    computed, and its right operand lies on chip."""
    starts = len(gemm.c.start) == 2 and all(int_value(start) == 0 for start in gemm.c.start)
    partial = (gemm.last, gemm.band, gemm.c_reach, gemm.a_reach)
    if not starts or any(part is not None for part in partial) or int_value(gemm.depth) is None:
        return False
    if gemm.block.form in MATRIX_FORMS or gemm.block.form in TILE_FORMS or gemm.block.form == "across":
        return False
    stored = gemm.computed == str(gemm.c.buffer.dtype)
    return stored and not is_global(gemm.b.region.buffer) and _has_whole_vectors(gemm)


def _has_whole_vectors(gemm: MicroGemm) -> bool:
    """Whether no block of columns ends in a part of a vector, which has sums of its own."""
    columns = int_value(gemm.columns)
    return gemm.block.form != "fma" or (columns is not None and columns % gemm.block.cols == 0)


def _are_alike(gemm: MicroGemm, other: MicroGemm) -> bool:
    """Whether two products go over the same rows and columns by the same blocks."""
    counts = ((gemm.rows, other.rows), (gemm.columns, other.columns))
    extents = zip(gemm.c.extent, other.c.extent, strict=True)
    return gemm.block == other.block and all(_is_one(*pair) for pair in (*counts, *extents))


def _is_one(count: int | Expr, other: int | Expr) -> bool:
    known = int_value(count), int_value(other)
    if known != (None, None) or isinstance(count, int) or isinstance(other, int):
        return known[0] == known[1]
    return same(count, other)


def _bytes_of_b(gemm: MicroGemm) -> int:
    """Those of the right operand of a product that one block of columns reads, words of it where it has
    such."""
    size = element_bytes(str(gemm.b.region.buffer.dtype))
    extent = gemm.b.region.extent[gemm.b.row]
    return (int_value(extent) or _MOST) * gemm.block.cols * size


def _body_at(gemm: MicroGemm, variables: tuple[Var, Var]) -> Block:
    """The body of a product for the element ``variables``."""
    values = dict(zip(gemm.vars, variables, strict=True))
    return map_expressions(gemm.body, lambda expr: substitute(expr, values))


def _changed_by(gemm: MicroGemm) -> list[Var]:
    """The buffers that a product and its body write."""
    return [gemm.c.buffer, *(store.buffer for store in stores(gemm.body))]


def _changed(products: Iterable[MicroGemm]) -> set[Var]:
    return {buffer for each in products for buffer in _changed_by(each)}


def _is_apart(stmt: Stmt, products: Sequence[MicroGemm]) -> bool:
    """Whether a statement may as well stand in front of the products."""
    if not all(isinstance(inner, _MOVED) for inner in walk((stmt,))):
        return False
    changed, used = _changed(products), used_in(tuple(products))
    return not changed & used_in((stmt,)) and not written_in((stmt,)) & used
