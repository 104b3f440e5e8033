"""What loops that count from 0 say of their variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import sym, tirx

from tilec.ir.exprs import dtype_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Var


def counted(
    variables: Sequence[Var], extents: Sequence[int], analyzer: sym.Analyzer | None = None
) -> sym.Analyzer:
    """An analyzer, or ``analyzer``, that knows ``variables`` to run from 0 to their ``extents``."""
    analyzer = sym.Analyzer() if analyzer is None else analyzer
    for var, extent in zip(variables, extents, strict=True):
        dtype = dtype_of(var)
        analyzer.bind(var, tvm_ir.Range(tirx.const(0, dtype), tirx.const(extent, dtype)))
    return analyzer
