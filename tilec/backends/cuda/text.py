"""How the statements of `tilec.backends.cuda.nodes` look in tile IR text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import (
    ArriveOnce,
    AsyncCopy,
    AsyncGather,
    BlockReduce,
    BlockScan,
    CommitGroup,
    CompleteBytes,
    FirstOperands,
    GridMeet,
    InitBarriers,
    JoinThreads,
    RemoteStore,
    RotatedGemm,
    SparseWarpGemm,
    Sync,
    ThreadLoop,
    WaitGroup,
    WarpGemm,
    WarpSync,
)
from tilec.ir.text.printer import format_layout, register

if TYPE_CHECKING:
    from tilec.ir.text.printer import Printer


@register(ThreadLoop)
def _loop(out: Printer, stmt: ThreadLoop) -> None:
    names = ", ".join(out.name(var) for var in stmt.vars)
    extents = ", ".join(str(extent) for extent in stmt.extents)
    vector = f", vector={stmt.vector}" if stmt.vector > 1 else ""
    head = f'for {names} in threads({extents}, layout="{format_layout(stmt.layout)}"{vector}):'
    out.nest(head, stmt.body)


@register(AsyncCopy)
def _copy(out: Printer, stmt: AsyncCopy) -> None:
    out.line(f"async_copy({out.region(stmt.src)}, {out.region(stmt.dst)}, width={stmt.width})")


@register(AsyncGather)
def _gather(out: Printer, stmt: AsyncGather) -> None:
    names = ", ".join(out.name(var) for var in stmt.vars)
    extents = ", ".join(str(extent) for extent in stmt.extents)
    out.nest(f"for {names} in async_gather({extents}, width={stmt.width}):", stmt.body)


@register(CommitGroup)
def _commit(out: Printer, stmt: CommitGroup) -> None:
    out.line("commit_group()")


@register(WaitGroup)
def _wait(out: Printer, stmt: WaitGroup) -> None:
    out.line(f"wait_group({stmt.pending})")


@register(Sync)
def _sync(out: Printer, stmt: Sync) -> None:
    out.line("sync_threads()")


@register(WarpGemm)
def _product(out: Printer, stmt: WarpGemm) -> None:
    out.line(f"mma({', '.join(_product_parts(out, stmt))})")


@register(SparseWarpGemm)
def _sparse_product(out: Printer, stmt: SparseWarpGemm) -> None:
    places = [out.region(stmt.e), *(["trans_e=True"] if stmt.trans_e else [])]
    out.line(f"mma_sp({', '.join([*_product_parts(out, stmt), *places])})")


@register(FirstOperands)
def _first(out: Printer, stmt: FirstOperands) -> None:
    regions = ", ".join(out.region(region) for region in (stmt.a, stmt.b))
    out.line(f'first_operands({regions}, more={out.expr(stmt.more)}, registers="{stmt.registers}")')


@register(RotatedGemm)
def _rotated(out: Printer, stmt: RotatedGemm) -> None:
    following = ", ".join(out.region(region) for region in (stmt.next_a, stmt.next_b))
    parts = [
        *_product_parts(out, stmt),
        f"next=({following})",
        f"more={out.expr(stmt.more)}",
        f"pending={stmt.pending}",
        f'registers="{stmt.registers}"',
    ]
    out.line(f"rotated_mma({', '.join(parts)})")


def _product_parts(out: Printer, stmt: WarpGemm) -> list[str]:
    tile = stmt.tile
    return [
        *(out.region(region) for region in (stmt.a, stmt.b, stmt.c)),
        *(f"{name}=True" for name in ("trans_a", "trans_b") if getattr(stmt, name)),
        f"clear={out.expr(stmt.clear)}",
        f'"{tile.instruction}"',
        f"warps={tile.warps}",
        f"tiles={tile.tiles}",
        f"steps={tile.steps}",
    ]


@register(BlockScan)
def _scan(out: Printer, stmt: BlockScan) -> None:
    parts = [f'"{stmt.kind}"', out.region(stmt.tile), f"reverse={stmt.reverse}"]
    if stmt.scratch is not None:
        parts.append(f"scratch={out.name(stmt.scratch)}")
    out.line(f"block_scan({', '.join(parts)})")


@register(BlockReduce)
def _reduce(out: Printer, stmt: BlockReduce) -> None:
    parts = [
        f'"{stmt.kind}"',
        out.region(stmt.src),
        out.region(stmt.dst),
        f"axis={stmt.axis}",
        f"clear={stmt.clear}",
    ]
    if stmt.nan_propagate:
        parts.append("nan_propagate=True")
    if stmt.scratch is not None:
        parts.append(f"scratch={out.name(stmt.scratch)}")
    out.line(f"block_reduce({', '.join(parts)})")


@register(InitBarriers)
def _init(out: Printer, stmt: InitBarriers) -> None:
    out.line(f"init_barriers({out.name(stmt.barrier)}, {tuple(stmt.counts)!r})")


@register(CompleteBytes)
def _complete(out: Printer, stmt: CompleteBytes) -> None:
    out.line(f"complete_bytes({out.name(stmt.barrier)}[{out.expr(stmt.index)}], {stmt.count})")


@register(ArriveOnce)
def _arrive(out: Printer, stmt: ArriveOnce) -> None:
    block = "" if stmt.block is None else f", block={out.expr(stmt.block)}"
    out.line(f"arrive_once({out.name(stmt.barrier)}[{out.expr(stmt.index)}]{block})")


@register(RemoteStore)
def _remote(out: Printer, stmt: RemoteStore) -> None:
    indices = ", ".join(out.expr(index) for index in stmt.indices)
    at = f"{out.name(stmt.buffer)}[{indices}]"
    out.line(f"remote_store({at}, {out.expr(stmt.value)}, block={out.expr(stmt.block)})")


@register(GridMeet)
def _meet(out: Printer, stmt: GridMeet) -> None:
    out.line(f"grid_meet({out.name(stmt.arrivals)})")


@register(JoinThreads)
def _join(out: Printer, stmt: JoinThreads) -> None:
    left, right = (out.name(var) for var in stmt.vars)
    parts = [f"lambda {left}, {right}: {out.expr(stmt.combine)}"]
    parts += [out.expr(part) for part in (stmt.identity, stmt.value, stmt.cond)]
    scratch = (
        "" if stmt.scratch is None else f", digits={stmt.digits.parts!r}, scratch={out.name(stmt.scratch)}"
    )
    indices = ", ".join(out.expr(index) for index in stmt.indices)
    lanes = f"lanes={stmt.masks!r}{scratch}"
    out.line(f"{out.name(stmt.buffer)}[{indices or '()'}] = join_threads({', '.join(parts)}, {lanes})")


@register(WarpSync)
def _warp_sync(out: Printer, stmt: WarpSync) -> None:
    out.line(f"warp_sync({stmt.mask:#010x})")
