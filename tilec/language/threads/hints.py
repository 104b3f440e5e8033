"""Hints: accepted, recorded on the launch where a target may care, without meaning for results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilec.errors import SourceAssertionError, SourceTypeError, SourceValueError
from tilec.language.threads.launches import current_launch, schedule
from tilec.language.tiles.memory.buffers import Buffer
from tilec.language.values.kernel.annotations import unheeded
from tilec.language.values.kernel.places import source_error
from tilec.language.values.layouts.layout import check_layout
from tilec.language.values.operands import stored_value

_REGISTERS = "registers are shared out by tilec and the assembler"
_ATTRIBUTES = "attributes of functions and blocks mean nothing here"
#: Hints that add nothing -> why.
_WHY = {
    "no_set_max_nreg": _REGISTERS,
    "disable_warp_group_reg_alloc": _REGISTERS,
    "annotate_producer_reg_dealloc": _REGISTERS,
    "annotate_consumer_reg_alloc": _REGISTERS,
    "func_attr": _ATTRIBUTES,
    "block_attr": _ATTRIBUTES,
    "sblock_attr": _ATTRIBUTES,
    "annotate_padding": "shared tiles are swizzled, not padded",
}
#: All hints that nothing obeys.
UNHEEDED = (*_WHY, "annotate_l2_hit_ratio")
#: Calls that are accepted and add nothing: barriers and waits have no meaning while every statement is
#: complete, and seen by the block, before the next one.
_SILENT = (
    "fence_proxy_async",
    "ptx_commit_group",
    "ptx_wait_group",
    "tma_store_arrive",
    "tma_store_wait",
    "warpgroup_arrive",
    "warpgroup_commit_batch",
    "warpgroup_fence_operand",
)


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Walk the grid in panels for the sake of a shared cache."""
    if not isinstance(panel_size, int) or panel_size < 1:
        raise source_error(
            SourceValueError,
            f"use_swizzle: {panel_size!r} is no number of rows or columns of a panel",
            construct="T.use_swizzle",
            remedy="give an integer of 1 or more",
        )
    if order not in ("row", "column", "mlx"):
        raise source_error(
            SourceValueError,
            f"use_swizzle order {order!r} does not exist",
            construct="T.use_swizzle",
            remedy='use "row" or "column"',
        )
    if enable:
        schedule("T.use_swizzle", "use_swizzle", (panel_size, order))


def annotate_layout(layouts: Mapping[Buffer, Any]) -> None:
    """Layouts of tiles: `Layout`, `Fragment` or a function of the indices. Layouts never change values; code
    for GPUs has them where the statements on the tile can obey, `tilec explain` says where they cannot."""
    from tilec.language.threads.asked_layouts import ask  # loads NumPy, which no import of T does

    for buffer, layout in _buffers("T.annotate_layout", layouts).items():
        check_layout(buffer, layout)
        ask(buffer, layout)


def annotate_safe_value(values: Mapping[Buffer, Any]) -> None:
    """What reads outside of a buffer give from here on, in place of 0: a number per buffer."""
    for buffer, value in _buffers("T.annotate_safe_value", values).items():
        buffer.safe_value = stored_value(value, buffer.dtype, "T.annotate_safe_value")


def annotate_l2_hit_ratio(ratios: Mapping[Buffer, float]) -> None:
    """How much of a global tensor should stay in the L2 cache."""
    for buffer in _buffers("T.annotate_l2_hit_ratio", ratios):
        if buffer.scope() != "global":
            raise source_error(
                SourceAssertionError,
                f"{buffer.name} is not in global memory",
                construct="T.annotate_l2_hit_ratio",
                remedy="give a tensor parameter",
            )
        why = f"no part of the L2 cache is set aside for {buffer.name}"
        unheeded("T.annotate_l2_hit_ratio", why, "use eviction_policy on the copies of the tensor")


def annotate_min_blocks_per_sm(count: int) -> None:
    """How many blocks a multiprocessor should hold."""
    if not isinstance(count, int) or count < 1:
        raise source_error(
            SourceValueError,
            f"{count!r} is no positive number of blocks",
            construct="T.annotate_min_blocks_per_sm",
            remedy="give an integer of 1 or more",
        )
    schedule("T.annotate_min_blocks_per_sm", "min_blocks_per_sm", int(count))


def pdl_sync() -> None:
    """Lets this launch begin before the one in front of it in its stream has ended, where the target can: it
    waits for that end before it touches memory. One of the same kernel in front lets it as soon as it has
    begun itself."""
    schedule("T.pdl_sync", "pdl", True)


def pdl_trigger() -> None:
    """Lets the launch behind this one begin early; as `pdl_sync`, since each needs the other."""
    schedule("T.pdl_trigger", "pdl", True)


def annotate_restrict_buffers(*buffers: Buffer) -> None:
    """These parameters may share memory with each other: calls accept that, and no code is moved past what
    writes one of them. Raises `SourceAssertionError` for what is no tensor parameter."""
    given = _buffers("T.annotate_restrict_buffers", dict.fromkeys(buffers))
    for buffer in given:
        if buffer.scope() != "global":
            raise source_error(
                SourceAssertionError,
                f"{buffer.name} is no parameter of the kernel",
                construct="T.annotate_restrict_buffers",
                remedy="name the tensors that a call may let overlap; tiles have memory of their own",
            )
    frame = current_launch("T.annotate_restrict_buffers").frame
    before = frame.schedule.get("may_alias", ()) if frame is not None else ()
    names = dict.fromkeys((*before, *(buffer.name for buffer in given)))
    schedule("T.annotate_restrict_buffers", "may_alias", tuple(names))


def _buffers(construct: str, given: Mapping[Any, Any]) -> Mapping[Buffer, Any]:
    for key in given:
        if not isinstance(key, Buffer):
            raise source_error(
                SourceTypeError,
                f"{construct} takes buffers, not {type(key).__name__}",
                construct=construct,
                remedy="map buffers to values: {tile: value}",
            )
    return given


def _silent(name: str) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        return None

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "Accepted; adds nothing."
    return call


def _unheeded(name: str, why: str) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        unheeded(f"T.{name}", why, "leave it out")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "Accepted; a loss of the launch."
    return call


SILENT: dict[str, Callable[..., None]] = {
    **{name: _silent(name) for name in _SILENT},
    **{name: _unheeded(name, why) for name, why in _WHY.items()},
}
