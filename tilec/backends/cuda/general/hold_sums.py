"""Sums of products that a ring feeds lie in tensor memory, where the target has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.fragments import WARP
from tilec.backends.cuda.analysis.tensor_memory import MOST, ROWS, handed_out, taken_columns, tensor_tile
from tilec.backends.cuda.analysis.tiles import is_whole
from tilec.backends.cuda.limits import has_tensor_memory
from tilec.backends.cuda.nodes import (
    BoxLoad,
    CloseTensorMemory,
    GiveBack,
    OpenTensorMemory,
    TensorCommit,
    TensorProduct,
    TensorSums,
    TensorTile,
)
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, Fill, For, Gemm, If, Kernel, Launch, Stmt, Store, walk
from tilec.ir.nodes.barriers import SCOPE, AllocBarrier, Group, WaitPhase
from tilec.ir.nodes.threads import Sync
from tilec.ir.roads import Road
from tilec.ir.traits import buffers, written
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target


class HoldSums(Pass):
    """In: launches with a producer, whose products each add to a fragment that is set to 0 in front of their
    loop and read behind it alone. Out: loops of one warp, a thread of which issues TensorProducts and whose
    TensorCommits give stages of rings back, and TensorSums behind. Other launches stay."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its sums."""
        if not has_tensor_memory(target):
            return kernel
        return rewrite_launches(kernel, lambda launch: _held(launch, target))


def _held(launch: Launch, target: Target) -> Launch:
    consumers = [stmt for stmt in launch.body if isinstance(stmt, Group) and stmt.first == 0]
    fed = any(isinstance(stmt, GiveBack) for stmt in walk(launch.body))
    if len(consumers) != 1 or not fed:
        return launch
    try:
        return _Sums(launch, consumers[0], target).made()
    except Unfit:
        return launch


class _Sums:
    """The sums of one launch."""

    def __init__(self, launch: Launch, group: Group, target: Target) -> None:
        self.launch, self.group, self.target = launch, group, target
        products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
        _check_boxes(launch, {region.buffer for stmt in products for region in (stmt.a, stmt.b)})
        self.tiles = {stmt: self._tile(stmt) for stmt in products}
        self.columns = self._places(products)
        self.given: set[Var] = set()
        self.done = tirx.decl_buffer((1,), "uint64", name="sums_done", scope=SCOPE)
        self.parity = tirx.decl_buffer((1,), "int32", name="sums_round", scope="local.var")
        self.memory = tirx.decl_buffer((1,), "uint32", name="tensor_memory", scope=SCOPE)

    def _tile(self, product: Gemm) -> TensorTile:
        found = tensor_tile(product, self.group.count // WARP, self.target)
        if isinstance(found, str):
            raise Unfit(found, product)
        need(int_value(product.clear) == 0, "it clears its sums itself", product)
        return found

    def _places(self, products: Sequence[Gemm]) -> dict[Var, int]:
        """The first column of each fragment."""
        places: dict[Var, int] = {}
        at = 0
        for product in products:
            if product.c.buffer not in places:
                places[product.c.buffer] = at
                at += taken_columns(self.tiles[product])
        need(0 < at <= MOST, f"tensor memory has no {at} columns")
        self.total = handed_out(at)
        return places

    def made(self) -> Launch:
        """The launch with its sums in tensor memory."""
        inner = rewrite_blocks(self.group.body, self._block)
        left = [stmt for stmt in walk(inner) if isinstance(stmt, (Gemm, GiveBack))]
        need(not left, "a product, or a stage, is no part of such a loop", left[0] if left else None)
        opened: Block = (OpenTensorMemory(self.memory, self.total), Sync("threads"))
        closed: Block = (CloseTensorMemory(self.memory, self.total),)
        begun = Alloc(self.parity, init=tirx.const(0, "int32"))
        group = replace(self.group, body=(*opened, begun, *inner, *closed))
        body = [Alloc(self.memory), AllocBarrier(self.done, (1,))]
        body += [self._outer(stmt, group) for stmt in self.launch.body]
        return with_roads(replace(self.launch, body=tuple(body)), list(self._roads()))

    def _outer(self, stmt: Stmt, group: Group) -> Stmt:
        """A statement of the launch: stages come back by one arrival."""
        if stmt is self.group:
            return group
        if isinstance(stmt, AllocBarrier) and stmt.buffer in self.given:
            return replace(stmt, counts=(1,) * len(stmt.counts))
        return stmt

    def _roads(self) -> Iterator[Road]:
        for product, tile in self.tiles.items():
            depth = tile.instruction.rpartition("k")[2]
            how = f"tcgen05 m{ROWS}n{tile.columns}k{depth}, sums in tensor memory"
            yield road_of(product, "tcgen05", how)

    def _block(self, block: Block) -> list[Stmt]:
        """A block with its fills and loops."""
        made = list(block)
        for loop in (stmt for stmt in block if isinstance(stmt, For)):
            own = [stmt for stmt in loop.body if isinstance(stmt, Gemm)]
            if not own:
                continue
            sums = dict.fromkeys(product.c.buffer for product in own)
            for fragment in sums:
                made.remove(_fill_of(fragment, loop, block))
            at = made.index(loop)
            made[at : at + 1] = [self._through(loop, own)]
        return made

    def _loop(self, loop: For, own: list[Gemm]) -> For:
        """A loop that issues its products, the first of which for a fragment clears it in the first trip."""
        cleared: set[Var] = set()
        body: list[Stmt] = []
        for stmt in loop.body:
            if isinstance(stmt, Gemm):
                first = stmt.c.buffer not in cleared
                cleared.add(stmt.c.buffer)
                clear = tirx.EQ(loop.var, loop.start) if first else tirx.const(False, "bool")
                body.append(self._product(stmt, clear))
            elif isinstance(stmt, GiveBack):
                body.append(self._commit(stmt, loop, own))
            else:
                body.append(stmt)
        return replace(loop, body=tuple(body))

    def _product(self, gemm: Gemm, clear: tirx.Expr) -> TensorProduct:
        column = self.columns[gemm.c.buffer]
        sides = (gemm.trans_a, gemm.trans_b)
        tile = self.tiles[gemm]
        return TensorProduct(gemm.a, gemm.b, *sides, clear, tile, self.memory, column, loc=gemm.loc)

    def _commit(self, stmt: GiveBack, loop: For, own: list[Gemm]) -> TensorCommit:
        """A stage comes back when what has read it is complete: products alone."""
        for user in walk(loop.body):
            used = set(stmt.tiles) & set(buffers(user))
            need(not used or user is stmt or user in own, "threads read a stage, too", user)
        self.given.add(stmt.barrier)
        return TensorCommit(stmt.barrier, stmt.index, stmt.tiles, loc=stmt.loc)

    def _through(self, loop: For, own: list[Gemm]) -> If:
        """The loop of one warp, behind which all wait for its products and bring sums to registers; zeros of
        a loop without trips. Others than that warp do not wait for stages: the next ones could come before a
        late one has looked."""
        zero = tirx.const(0, "int32")
        round_ = tirx.BufferLoad(self.parity, [zero])
        first = {product.c.buffer: product for product in reversed(own)}
        loads = [
            TensorSums(product.c, self.tiles[product], self.memory, self.columns[fragment], loc=product.loc)
            for fragment, product in first.items()
        ]
        fills = [Fill(product.c, tirx.const(0, str(product.c.buffer.dtype))) for product in first.values()]
        issued: Block = (self._loop(loop, own), TensorCommit(self.done, zero, ()))
        done: Block = (
            Group(0, WARP, issued),
            WaitPhase(self.done, zero, round_),
            Store(self.parity, (zero,), tirx.bitwise_xor(round_, tirx.const(1, "int32"))),
            *loads,
            Sync("threads"),
        )
        return If(loop.start < loop.stop, done, tuple(fills))


def _check_boxes(launch: Launch, operands: set[Var]) -> None:
    """Unfit where threads fill an operand: tcgen05 would have to be told of what they write."""
    for stmt in walk(launch.body):
        by_threads = not isinstance(stmt, BoxLoad) and operands & set(written(stmt))
        need(not by_threads, "threads load an operand", stmt)


def _fill_of(fragment: Var, loop: For, block: Block) -> Fill:
    """What sets a fragment to 0 in front of a loop in whose trips nothing but products names it."""
    at = block.index(loop)
    users = [stmt for stmt in block[:at] if _names(stmt, fragment)]
    inside = [stmt for stmt in walk(loop.body) if fragment in set(buffers(stmt))]
    need(all(isinstance(stmt, Gemm) and stmt in loop.body for stmt in inside), "a trip reads its sums", loop)
    fill = users[-1] if users else None
    if not isinstance(fill, Fill) or not is_whole(fill.dst) or getattr(fill.value, "value", None) != 0:
        raise Unfit(f"{fragment.name} does not begin with zeros", loop)
    return fill


def _names(stmt: Stmt, fragment: Var) -> bool:
    """Whether a statement, or one inside, does something to a fragment."""
    return any(fragment in set(buffers(each)) and not isinstance(each, Alloc) for each in walk((stmt,)))
