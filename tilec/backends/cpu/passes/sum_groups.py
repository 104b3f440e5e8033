"""Products of few rows with weights of few bits add up stored numbers, by rows of weights and by groups.

for ko in pipelined(0, K // 128):
    copy(A[0:+1, ko * 128:+128], As)
    for j, k in parallel(64, 128):
        Ws[j, k] = float16(float32(int32(W[j, ko * 64 + k // 2]) >> k % 2 * 4 & 15) * s[j, ko])
    gemm(As, Ws, acc, trans_b=True)
->
for c in serial(0, K // 4096):
    planes[0, 0:2, 0:2048] = A[0, c * 4096:+4096], what lower halves of bytes are multiplied with and the rest
    for j in serial(0, 64):
        for t in serial(0, 32): own[0:16] = own[0:16] + s[j, c * 32 + t] * (sums of numbers of W times planes)
        total[0, j, 0:16] = total[0, j, 0:16] + own[0:16]
acc[0, 0:64] = acc[0, 0:64] + sums of total

Weights are read once and in order, long pieces of their rows, and no tile holds them. Sums are rounded
elsewhere than the kernel says. Zero points are taken off numbers, one by one: taken off sums of activations,
one that is infinite would make NaN of what is infinite.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.passes.group_numbers import GroupNumbers, group_numbers
from tilec.backends.cpu.passes.group_sums import GroupProduct, GroupSums
from tilec.backends.cpu.passes.stored_tiles import CONVERTED
from tilec.backends.cpu.passes.tile_values import TileValues
from tilec.ir.exprs import dtype_of, int_value, linear_in, loads, uses
from tilec.ir.nodes import Alloc, Bind, Block, For, Gemm, Launch, Pipelined, Stmt, walk
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.analysis.uses import addressed_in, changed_in, users
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

#: Rows of activations that are multiplied together at most; of more, a tile of weights is made
#: (docs/performance/cpu-2026-11-29.md).
_ROWS = 4
#: Lanes that are worth a loop.
_FEW_LANES = 8
#: Axes of a matrix.
_AXES = 2


class SumGroups(LaunchPass):
    """In: a loop along K of ``Gemm`` of few rows, whose weights copies and elementwise loops make of integers
    that hold several, or of scaled ones of a byte. Out: sums of groups of stored numbers, and no product."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops replaced, and without the tiles that they filled."""
        sums = _Sums(launch)
        body = rewrite_blocks(launch.body, sums.block)
        return replace(launch, body=rewrite_blocks(body, sums.without_tiles)) if sums.dropped else launch


class _Sums:
    """Rewrites one launch; ``dropped`` are the tiles that nothing uses then."""

    def __init__(self, launch: Launch) -> None:
        self.users = users(launch.body)
        self.unsure = changed_in(launch) | addressed_in(launch.body)
        self.dropped: set[Var] = set()

    def block(self, block: Block) -> list[Stmt]:
        """The block with its loops replaced."""
        return [new for stmt in block for new in self._stmt(stmt)]

    def without_tiles(self, block: Block) -> list[Stmt]:
        """The block without the tiles of such loops."""
        return [stmt for stmt in block if not (isinstance(stmt, Alloc) and stmt.buffer in self.dropped)]

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        product = self._found(stmt) if isinstance(stmt, (For, Pipelined)) else None
        return [stmt] if product is None else GroupSums(product).stmts()

    def _found(self, loop: For | Pipelined) -> GroupProduct | None:
        """The product that a loop is; its tiles are dropped then."""
        gemm = _only_product(loop)
        made = None if gemm is None else self._made(loop, gemm)
        if gemm is None or made is None:
            return None
        product = _product(loop, gemm, made)
        if product is None or not self._stays(product):
            return None
        self.dropped.update(made.tiles)
        return product

    def _made(self, loop: For | Pipelined, gemm: Gemm) -> TileValues | None:
        """The tiles of a loop, if it does nothing but fill them in front of its product."""
        made = TileValues(loop.body[: loop.body.index(gemm)])
        fills = [stmt for stmt in loop.body if not isinstance(stmt, (Alloc, Bind, Gemm))]
        own = set(walk(loop.body))
        inside = all(user in own for tile in made.tiles for user in self.users[tile])
        return made if len(made.tiles) == len(fills) and inside else None

    def _stays(self, product: GroupProduct) -> bool:
        """Whether a product reads nothing but tensors that the launch leaves as they are."""
        groups = product.groups
        values = (product.activation, groups.stored, groups.scale, *groups.shared.values())
        read = [load.source for value in values for load in loads(value)]
        return all(buffer.scope().startswith("global") and buffer not in self.unsure for buffer in read)


def _only_product(loop: For | Pipelined) -> Gemm | None:
    """The product that a loop in steps of one adds to float32 sums of few rows; None where it has none or
    several."""
    gemms = [stmt for stmt in loop.body if isinstance(stmt, Gemm)]
    if len(gemms) != 1 or (isinstance(loop, For) and int_value(loop.step) != 1):
        return None
    gemm = gemms[0]
    regions = (gemm.a, gemm.b, gemm.c)
    if not all(is_whole(region) and len(region.extent) == _AXES for region in regions):
        return None
    adds = gemm.trans_b and not gemm.trans_a and int_value(gemm.clear) == 0
    few = (int_value(gemm.c.extent[0]) or 0) <= _ROWS
    return gemm if adds and few and str(gemm.c.buffer.dtype) == "float32" else None


def _product(loop: For | Pipelined, gemm: Gemm, made: TileValues) -> GroupProduct | None:
    """What ``gemm`` multiplies, whose operands are ``made`` in front of it; None where weights are no numbers
    in groups, or where elements beyond their tensor are not 0."""
    row, column, k = (tirx.Var(name, "int32") for name in ("m", "j", "k"))
    activation, weight = made.value(gemm.a.buffer, (row, k)), made.value(gemm.b.buffer, (column, k))
    if activation is None or weight is None or str(gemm.b.buffer.dtype) not in CONVERTED:
        return None
    groups = group_numbers(weight, loop.var, loop.start, k, int_value(gemm.a.extent[1]) or 0)
    if groups is None or not _pays(groups):
        return None
    count = _columns(groups.stored, column, int_value(gemm.c.extent[1]) or 0)
    if count is None or not groups.is_zero_beyond:
        return None
    return GroupProduct(loop, gemm, row, column, k, activation, groups, count)


def _pays(groups: GroupNumbers) -> bool:
    """Whether there are several numbers in an integer, or scales: plain bytes are read by products. In either
    case they fill lanes."""
    scaled = any(True for _ in loads(groups.scale))
    return (groups.each > 1 or scaled) and groups.size // groups.each >= _FEW_LANES


def _columns(stored: TensorLoad, column: Var, most: int) -> Expr | None:
    """How many columns of a tile the tensor of ``stored`` has; None where no axis counts them."""
    moving = [axis for axis, index in enumerate(stored.indices) if uses(index, (column,))]
    factors = linear_in(stored.indices[moving[0]], [column]) if len(moving) == 1 else []
    if not factors or int_value(factors[0]) != 1:
        return None
    left = stored.source.shape[moving[0]] - factors[1]
    return tirx.min(tirx.const(most, dtype_of(left)), left)
