"""What a kernel does that is hardly meant: it reads tiles before anything was written to them, whose contents
are undefined there, or it writes nothing that outlives it, or returns what it does not write."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec.errors import Place, Remark
from tilec.ir import nodes as ir
from tilec.ir.exprs import choice_of, int_value, walk
from tilec.ir.foreign import is_foreign
from tilec.ir.nodes.barriers import Group
from tilec.language.frontend.review.crossed_reads import crossed_reads
from tilec.language.frontend.review.lonely_waits import lonely_waits
from tilec.language.frontend.review.lost_stores import lost_stores
from tilec.language.values.kernel.access import expressions_of, read_by, written_by

if TYPE_CHECKING:
    from tvm.ir import Var

#: Memory without contents at first; `T.alloc_var` starts at 0.
_UNDEFINED = ("shared.dyn", "local.fragment", "local")
#: The pass config that turns the warning off.
_SILENT = "disable_buffer_init_check"


def remarks_on(kernel: ir.Kernel, pass_configs: Mapping[Any, Any]) -> tuple[Remark, ...]:
    """What to warn of, each with the author's line."""
    silent = any(_SILENT in str(key).lower() and value for key, value in pass_configs.items())
    found = () if silent else (*_unwritten(kernel), *_undefined_outputs(kernel))
    shared = (*lost_stores(kernel), *crossed_reads(kernel), *lonely_waits(kernel))
    return (*found, *_without_effect(kernel), *_without_blocks(kernel), *_left_outputs(kernel), *shared)


def _remark(what: str, stmt: ir.Stmt, kernel: ir.Kernel, remedy: str) -> Remark:
    place = Place(stmt.loc.file, stmt.loc.line) if stmt.loc else Place(kernel.name)
    return Remark(what, place, remedy)


# ---- tiles without contents ----


def _unwritten(kernel: ir.Kernel) -> Iterator[Remark]:
    """The first read of each tile that nothing was written to before.

    Where some trip of a loop around both writes the tile, or a group of threads does, the author may know
    that the read comes later: not of what each trip adds to, on no condition."""
    for launch in kernel.launches:
        elsewhere = {buffer for group in _groups(launch.body) for buffer in _all_written(group)}
        for buffer, stmt in _Reader().reads(launch.body, elsewhere):
            what = f"{buffer.name} is read before anything is written to it: its contents are undefined"
            yield _remark(what, stmt, kernel, "clear, fill or copy to it first")


def _undefined_outputs(kernel: ir.Kernel) -> Iterator[Remark]:
    """The first read of each tensor that a call makes and returns (an atomic update is one) before anything
    was written to it."""
    tensors = [param for param in kernel.params if isinstance(param, ir.TensorParam)]
    made = {param.buffer for param in tensors if param.output and param.access == "inout"}
    reader = _Reader(dict.fromkeys(made))
    for launch in kernel.launches:
        elsewhere = {buffer for group in _groups(launch.body) for buffer in _all_written(group)}
        found = ((buffer, stmt) for buffer, stmt in reader.reads(launch.body, elsewhere) if buffer in made)
        for buffer, stmt in found:
            what = f"{buffer.name} is made by the call, and read before anything is written to it"
            remedy = "leave it out of out_idx and pass it, or clear it in a T.Kernel in front"
            yield _remark(f"{what}: its contents are undefined", stmt, kernel, remedy)


@dataclass
class _Reader:
    """Walks statements in program order. ``fresh`` are allocations that nothing was written to, ``later`` is
    what others write, or loops around a branch."""

    fresh: dict[Var, None] = field(default_factory=dict)

    def reads(
        self, block: ir.Block, later: Collection[Var] = (), around: Collection[Var] = ()
    ) -> Iterator[tuple[Var, ir.Stmt]]:
        """First reads of fresh tiles; each is named once. ``around`` is what loops around write."""
        for stmt in block:
            if isinstance(stmt, ir.Alloc) and stmt.init is None and stmt.buffer.scope() in _UNDEFINED:
                self.fresh[stmt.buffer] = None
            for buffer in _surely_read(stmt):
                known = buffer in around and not _adds_to(stmt, buffer)
                if buffer in self.fresh and buffer not in later and not known:
                    del self.fresh[buffer]
                    yield buffer, stmt
            for buffer in written_by(stmt):
                self.fresh.pop(buffer, None)
            inside = {*around, *_all_written(stmt)} if isinstance(stmt, ir.LOOPS) else around
            unsure = {*later, *inside} if isinstance(stmt, ir.If) else later
            for inner in ir.children(stmt):
                yield from self.reads(inner, unsure, inside)


def _groups(block: ir.Block) -> Iterator[ir.Stmt]:
    """Code of some threads alone, which runs beside that of others."""
    return (stmt for stmt in ir.walk(block) if isinstance(stmt, Group))


def _surely_read(stmt: ir.Stmt) -> Iterator[Var]:
    """What a statement reads; the sums of a product only where it never starts anew, nothing where it says
    that foreign code writes an element."""
    if _touches(stmt):
        return
    starts_anew = isinstance(stmt, ir.PRODUCTS) and getattr(stmt.clear, "value", None) not in (0, False)
    for buffer in read_by(stmt):
        if not (starts_anew and buffer.same_as(stmt.c.buffer)):  # type: ignore[attr-defined]
            yield buffer


def _adds_to(stmt: ir.Stmt, buffer: Var) -> bool:
    """Whether a statement makes new sums in a buffer of those that it holds, whatever else is so."""
    if isinstance(stmt, ir.PRODUCTS):
        return bool(buffer.same_as(stmt.c.buffer))
    if not isinstance(stmt, ir.Store) or not buffer.same_as(stmt.buffer):
        return False
    return all(choice_of(part) is None for part in walk(stmt.value))


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


# ---- launches without effect ----


def _without_effect(kernel: ir.Kernel) -> Iterator[Remark]:
    """Launches of which nothing is left, and kernels that leave nothing but scratch."""
    remedy = "store to a tensor that is passed, or leave it out"
    launches = kernel.launches
    idle = [launch for launch in launches if not any(map(_leaves, ir.walk(launch.body)))]
    if len(idle) < len(launches):
        for launch in idle:
            yield _remark(
                f"this launch of {kernel.name} writes nothing that outlives it", launch, kernel, remedy
            )
    results = (_leaves(stmt, ("global", "global.address")) for one in launches for stmt in ir.walk(one.body))
    if launches and not any(results):
        yield _remark(f"{kernel.name} writes nothing: no tensor, no line", launches[0], kernel, remedy)


def _without_blocks(kernel: ir.Kernel) -> Iterator[Remark]:
    """Launches of no blocks, where no tensor is empty."""
    tensors = [param.buffer for param in kernel.params if isinstance(param, ir.TensorParam)]
    if any(0 in map(int_value, tensor.shape) for tensor in tensors):
        return
    for launch in kernel.launches:
        if 0 in map(int_value, launch.grid):
            what = f"this launch of {kernel.name} has a grid of 0 blocks and runs nothing"
            yield _remark(what, launch, kernel, "T.ceildiv(n, tile) is 1 where n is less than a tile")


def _left_outputs(kernel: ir.Kernel) -> Iterator[Remark]:
    """Tensors that a call makes and returns, and that nothing is stored to."""
    for param in kernel.params if kernel.launches else ():
        if isinstance(param, ir.TensorParam) and param.output and param.access == "in":
            what = (
                f"{kernel.name} returns {param.name}, which it writes nothing to: its contents are undefined"
            )
            yield _remark(what, kernel.launches[0], kernel, "store to it, or leave it out of out_idx")


def _leaves(
    stmt: ir.Stmt, scopes: Collection[str] = ("global", "global.address", "global.workspace")
) -> bool:
    """Whether anything of a statement is left when its block has ended: memory in ``scopes``, a line that was
    written, a call that failed, or what foreign code does."""
    if isinstance(stmt, (ir.Print, ir.Check)):
        return True
    if any(buffer.scope() in scopes for buffer in written_by(stmt)):
        return True
    return any(_calls_foreign(expr) for expr in expressions_of(stmt))


def _calls_foreign(expr: Any) -> bool:
    return any(is_foreign(part) for part in walk(expr))
