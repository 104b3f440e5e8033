"""What the bundle times, a file per family of kernels.

To add a row: append a `Row` to what ``rows()`` of its family's file returns. A row whose kernel the
bundle's library lacks is left out; one whose kernel it has, but no variant for, is reported as wrong. A new
family is a new file with a ``rows()``, and an entry in `FAMILIES`.
"""

from __future__ import annotations

from rows import attention, conv, decode, epilogue, gemm, memory, quantised, varlen
from rows.row import Row

FAMILIES = {
    "gemm": gemm.rows,
    "shipped": gemm.shipped,
    "epilogue": epilogue.rows,
    "attention": attention.rows,
    "varlen": varlen.rows,
    "conv": conv.rows,
    "memory": memory.rows,
    "quantised": quantised.rows,
    "decode": decode.rows,
}

__all__ = ["FAMILIES", "Row"]
