"""How the statements of `tilec.backends.cpu.nodes` look in tile IR text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cpu.nodes import MicroGemm, PackWords, TransposePanels
from tilec.ir.text.printer import register

if TYPE_CHECKING:
    from tilec.backends.cpu.nodes import Matrix
    from tilec.ir.text.printer import Printer


@register(MicroGemm)
def _product(out: Printer, stmt: MicroGemm) -> None:
    block = stmt.block
    parts = [
        *(_matrix(out, matrix) for matrix in (stmt.a, stmt.b)),
        out.region(stmt.c),
        f"clear={out.expr(stmt.clear)}",
        f"rows={out.expr(stmt.rows)}",
        f"depth={out.expr(stmt.depth)}",
        f'block="{block.rows}x{block.cols} by {block.lanes}, {block.unroll} steps, {block.form}"',
    ]
    if stmt.registers:
        parts.append(f"registers=[{', '.join(out.name(buffer) for buffer in stmt.registers)}]")
    head = f"product({', '.join(parts)})"
    if not stmt.body:
        return out.line(head)
    names = ", ".join(out.name(var) for var in stmt.vars)
    return out.nest(f"for {names} in {head}:", stmt.body)


@register(TransposePanels)
def _transpose(out: Printer, stmt: TransposePanels) -> None:
    out.line(f"transpose_panels({_matrix(out, stmt.src)}, {out.region(stmt.dst)}, lanes={stmt.lanes})")


@register(PackWords)
def _words(out: Printer, stmt: PackWords) -> None:
    kind = f'"{stmt.group} x {stmt.stored}"'
    out.line(f"pack_words({_matrix(out, stmt.src)}, {out.region(stmt.dst)}, {kind}, lanes={stmt.lanes})")


def _matrix(out: Printer, matrix: Matrix) -> str:
    """The region, and its axes where they are not rows and columns in order."""
    text, last = out.region(matrix.region), len(matrix.region.start) - 1
    if matrix.panel is not None:
        return f"panels({text}, axis={matrix.panel})"
    return text if (matrix.row, matrix.col) == (last - 1, last) else f"transposed({text})"
