"""Tiles that are read before anything was written to them: their contents are undefined there."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec.ir import nodes as ir
from tilec.ir.barriers import Group
from tilec.language.access import read_by, written_by

if TYPE_CHECKING:
    from tvm.ir import Var

#: Memory without contents at first; `T.alloc_var` starts at 0.
_UNDEFINED = ("shared.dyn", "local.fragment", "local")
_LOOPS = (ir.For, ir.Pipelined, ir.While)
#: The pass config that turns the warning off.
_SILENT = "disable_buffer_init_check"


def warn_of_unwritten(kernel: ir.Kernel, pass_configs: Mapping[Any, Any]) -> None:
    """Warns, with the author's line, of the first read of each tile that nothing was written to before.

    Where some trip of a loop around both writes the tile, or a group of threads does, the author may know
    that the read comes later."""
    if any(_SILENT in str(key).lower() and value for key, value in pass_configs.items()):
        return
    for launch in kernel.launches:
        elsewhere = {buffer for group in _groups(launch.body) for buffer in _all_written(group)}
        for buffer, stmt in _Reader().reads(launch.body, elsewhere):
            what = f"{buffer.name} is read before anything is written to it: its contents are undefined"
            file, line = (stmt.loc.file, stmt.loc.line) if stmt.loc else (kernel.name, 0)
            warnings.warn_explicit(what, UserWarning, file, line)


@dataclass
class _Reader:
    """Walks statements in program order. ``fresh`` are allocations that nothing was written to, ``later`` is
    what loops around write anywhere."""

    fresh: dict[Var, None] = field(default_factory=dict)

    def reads(self, block: ir.Block, later: Collection[Var] = ()) -> Iterator[tuple[Var, ir.Stmt]]:
        """First reads of fresh tiles; each is named once."""
        for stmt in block:
            if isinstance(stmt, ir.Alloc) and stmt.init is None and stmt.buffer.scope() in _UNDEFINED:
                self.fresh[stmt.buffer] = None
            for buffer in _surely_read(stmt):
                if buffer in self.fresh and buffer not in later:
                    del self.fresh[buffer]
                    yield buffer, stmt
            for buffer in written_by(stmt):
                self.fresh.pop(buffer, None)
            around = {*later, *_all_written(stmt)} if isinstance(stmt, _LOOPS) else later
            for inner in ir.children(stmt):
                yield from self.reads(inner, around)


def _groups(block: ir.Block) -> Iterator[ir.Stmt]:
    """Code of some threads alone, which runs beside that of others."""
    return (stmt for stmt in ir.walk(block) if isinstance(stmt, Group))


def _surely_read(stmt: ir.Stmt) -> Iterator[Var]:
    """What a statement reads; the sums of a product only where it never starts anew, nothing where it says
    that foreign code writes an element."""
    if _touches(stmt):
        return
    starts_anew = isinstance(stmt, ir.Gemm) and getattr(stmt.clear, "value", None) not in (0, False)
    for buffer in read_by(stmt):
        if not (starts_anew and buffer.same_as(stmt.c.buffer)):  # type: ignore[attr-defined]
            yield buffer


def _touches(stmt: ir.Stmt) -> bool:
    """Whether a statement stores an element to itself, as beside foreign code that is given its address."""
    from tilec.ir.exprs import same

    if not isinstance(stmt, ir.Store):
        return False
    source = getattr(stmt.value, "source", None)
    if source is None or not stmt.buffer.same_as(source):
        return False
    return all(map(same, stmt.value.indices, stmt.indices))


def _all_written(stmt: ir.Stmt) -> Iterator[Var]:
    for inner in ir.walk((stmt,)):
        yield from written_by(inner)
