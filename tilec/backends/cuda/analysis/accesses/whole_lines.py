"""Workspace tensors between two launches of one call, whose rows are padded to whole cache lines.

TMA wants rows at multiples of 16 bytes, and brings most where they are whole lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of
from tilec.lowering.emission.storage import element_bytes
from tilec.targets import LINE

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def num_pieces(extent: Expr, size: int) -> Expr:
    """How many pieces of a size there are."""
    dtype = dtype_of(extent)
    return (extent + tirx.const(size - 1, dtype)) // tirx.const(size, dtype)


def in_whole_lines(name: str, like: Var, shape: Sequence[int | Expr]) -> Var:
    """A tensor of the workspace with elements as another's, whose rows are whole lines: TMA brings most by
    these."""
    *sizes, columns = shape
    dtype = str(like.dtype)
    count = LINE // element_bytes(dtype)
    return tirx.decl_buffer(
        (*sizes, num_pieces(columns, count) * count), dtype, name, scope="global.workspace"
    )
