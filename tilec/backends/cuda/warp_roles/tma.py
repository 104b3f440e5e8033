"""Which boxes of tensors TMA moves (PTX ISA, "Tensor Copies"; CUDA driver API, cuTensorMapEncodeTiled)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.warp_roles.nodes import TensorMap
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import int_value
from tilec.lowering.emission.storage import element_bytes
from tilec.spelling import counted

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts

#: Scopes of what a launch gets tensor maps of: tensors of the call and of its workspace.
TENSORS = ("global", "global.workspace")
#: Limits of a box and of the steps between its rows.
LARGEST_BOX, STRIDE_BYTES, MOST_AXES = 256, 16, 5


def tensor_map(buffer: Var, rows: int, columns: int, swizzle: int, facts: Facts) -> TensorMap:
    """Boxes of ``rows`` x ``columns`` of the last two axes. Unfit where TMA cannot address them."""
    return box_map(buffer, (1,) * (len(buffer.shape) - 2) + (rows, columns), swizzle, facts)


def box_map(buffer: Var, box: tuple[int, ...], swizzle: int, facts: Facts) -> TensorMap:
    """Boxes with these extents per axis. Unfit where TMA cannot address them."""
    if max(box) > LARGEST_BOX:
        raise Unfit(
            f"a box of {' x '.join(map(str, box))} of {buffer.name} is beyond {LARGEST_BOX}",
            remedy=f"choose tiles of up to {LARGEST_BOX} rows",
        )
    check_tensor(buffer, facts)
    return TensorMap(buffer, box, swizzle)


def check_tensor(buffer: Var, facts: Facts, least: int = 2) -> None:
    """Unfit where TMA cannot address a tensor, or it has fewer than ``least`` axes."""
    if not least <= len(buffer.shape) <= MOST_AXES:
        axes = counted(len(buffer.shape), "axis", "axes")
        raise Unfit(
            f"{buffer.name} has {axes}, TMA takes {least} to {MOST_AXES}",
            remedy="join or split axes by T.reshape",
        )
    if not has_aligned_rows(buffer, facts):
        size = element_bytes(str(buffer.dtype))
        raise Unfit(
            f"rows of {buffer.name} are not known to start at multiples of {STRIDE_BYTES} bytes",
            remedy=f'give the dimension of its rows a guard such as "%{STRIDE_BYTES // size}", or pin it',
        )
    if len(buffer.strides) and int_value(buffer.strides[-1]) != 1:
        raise Unfit(
            f"the last axis of {buffer.name} is not contiguous", remedy="give the last axis a stride of 1"
        )


def has_aligned_rows(buffer: Var, facts: Facts) -> bool:
    """Whether all axes but the last have steps that TMA takes."""
    count = rows_of_a_group(buffer)
    return all(divides(count, stride, facts) for stride in element_strides(buffer)[:-1])


def rows_of_a_group(buffer: Var) -> int:
    """How many rows, of any length, take a multiple of what TMA wants of steps together: the elements of a
    step, where a row has one."""
    return STRIDE_BYTES // element_bytes(str(buffer.dtype))


def element_strides(buffer: Var) -> list[Expr | int]:
    """Elements from one index to the next, per axis."""
    if len(buffer.strides):
        return list(buffer.strides)
    strides: list[Expr | int] = [1]
    for extent in reversed(buffer.shape[1:]):
        last = strides[-1]
        strides.append(extent if isinstance(last, int) and last == 1 else extent * last)
    return strides[::-1]
