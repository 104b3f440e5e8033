"""Rounding to bfloat16 what only products read, by one instruction; of what lanes look up the table is
rounded, and looked up by words of 16 bits (`vpermw`).

`vcvtneps2bf16` takes denormal numbers as zeros, which bfloat16 otherwise keeps. The instructions that
multiply pairs of bfloat16 on x86-64 take them as zeros themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.numbers.bfloat16 import nearest_bfloat16
from tilec.backends.cpu.emit.vectors.table_forms import looked_up
from tilec.backends.cpu.nodes import MicroGemm, PackWords
from tilec.backends.cpu.products.forms.word_forms import word_form
from tilec.ir.nodes import Alloc, Fill, Store, walk
from tilec.ir.traits import buffers, loads_of
from tilec.lowering.emission.storage import convert
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block, Stmt

_LOOK_UP = "llvm.x86.avx512.permvar.hi.256"


def is_operand(alloc: Alloc, rest: Block) -> bool:
    """Whether ``rest`` (what follows in its block) only writes a bfloat16 tile, and reads it by instructions
    that take denormal operands as zeros."""
    tile = alloc.buffer
    if str(tile.dtype) != "bfloat16":
        return False
    users = [stmt for stmt in walk(rest) if any(tile.same_as(buffer) for buffer in buffers(stmt))]
    readers = [stmt for stmt in users if not _only_writes(stmt, tile)]
    return bool(readers) and all(_takes_zeros(stmt, tile) for stmt in readers)


def rounded_operand(value: Expr, functions: dict[str, str]) -> Expr | None:
    """The bits of float32 lanes in such a tile; None where no instruction has as many. The function that
    rounds goes into ``functions``: its text by its name."""
    found, lanes = looked_up(value), lanes_of(value)
    if found is not None:
        table, at = found
        words = (rounded_operand(table, functions), convert(at, "int16"))
        return tirx.call_llvm_pure_intrin(f"uint16x{lanes}", _LOOK_UP, *words)
    return nearest_bfloat16(value, functions, zeros=True)


def _only_writes(stmt: Stmt, tile: Var) -> bool:
    if not isinstance(stmt, (Store, Fill)):
        return False
    return not any(load.source.same_as(tile) for load in loads_of(stmt))


def _takes_zeros(stmt: Stmt, tile: Var) -> bool:
    if isinstance(stmt, PackWords):
        form = word_form(stmt.form)
    elif isinstance(stmt, MicroGemm) and not stmt.c.buffer.same_as(tile) and tile not in stmt.registers:
        form = word_form(stmt.block.along or stmt.block.form)
    else:
        return False
    return form is not None and form.takes_denormals_as_zeros
