"""A kernel: parameters, dims, launches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tilec.ir.roads import Road
from tilec.ir.schedule import Schedule
from tilec.ir.stmt import Aside, Block, Defines, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.guards import Guard
    from tilec.ir.stmt import Buffer


class Strategy:
    """One of several ways in which a family of targets carries launches out; its passes and its code are that
    family's."""

    name: str


@dataclass(frozen=True, eq=False)
class Launch(Stmt):
    """One grid of blocks. ``grid`` (x fastest, 1 to 3 entries) is over dims and scalar params; ``threads``
    has 3 entries. ``schedule`` is how its author and its config want it carried out.

    ``thread_vars`` are the three thread indices (int32) of a launch with thread-level code, whose statements
    have the meaning of `tilec.ir.nodes.threads`; there are none where nothing depends on a thread's index.

    ``roads`` and ``notes`` are what lowering has decided and says of it so far, ``strategy`` the way that it
    has chosen, None for the common one, and ``asked`` then the statements that have hints or layouts of their
    author; ``for_rings`` are the bytes of shared memory that rings may take where what later passes make had
    no room beside them, None before. No printed text has them."""

    syntax = "launch(*grid, threads=!, hints=schedule)"

    grid: tuple[int | Expr, ...]
    block_vars: Defines[tuple[Var, ...]]
    threads: tuple[int, int, int]
    body: Block
    schedule: Schedule = field(default_factory=Schedule)
    thread_vars: Defines[tuple[Var, ...]] = ()
    roads: Aside[tuple[Road, ...]] = ()
    notes: Aside[tuple[str, ...]] = ()
    strategy: Aside[Strategy | None] = None
    asked: Aside[tuple[Stmt, ...]] = ()
    for_rings: Aside[int | None] = None


@dataclass(frozen=True, eq=False)
class Dim:
    """A named dimension of the kernel. ``var`` is the symbol (int32 or int64) where it is a runtime value,
    None where ``guard`` pins it to an integer. ``guard`` is what the compiler may rely on."""

    name: str
    var: Var | None
    guard: Guard


@dataclass(frozen=True, eq=False)
class TensorParam:
    """A tensor argument. ``extents`` and ``strides`` are texts over dim names ("M", "K // 2", "4096"), in
    Python syntax with + - * // % and min(a, b), max(a, b); they keep the names of pinned dims. ``strides``
    is None for row-major contiguous, in elements otherwise. ``output``: allocated and returned by Python
    callers that leave it out (T.empty, out_idx). ``access``: "in", "out" or "inout". ``pointer``: it is an
    address (T.ptr) of which the kernel says what lies there; Python callers may give an integer."""

    name: str
    buffer: Buffer
    extents: tuple[str, ...]
    strides: tuple[str, ...] | None
    access: str
    output: bool = False
    pointer: bool = False


@dataclass(frozen=True, eq=False)
class ScalarParam:
    """A runtime scalar argument; ``default`` is what Python callers may leave out. ``pointer``: an address as
    an int64, of which no tensor says all that lies there."""

    name: str
    var: Var
    default: int | float | bool | None = None
    pointer: bool = False


Param: TypeAlias = "TensorParam | ScalarParam"


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kernel for one choice of pinned dims, args and config.

    ``params`` in the C order (parameters, then outputs made by T.empty in return order). ``dims`` in order of
    first appearance in the parameters' shapes, then strides; then the remaining ones as the manifest lists
    them. ``doc`` is the first line of the author's docstring. ``options`` are those of `tilec.ir.options`."""

    name: str
    params: tuple[Param, ...]
    dims: tuple[Dim, ...]
    body: Block
    doc: str = ""
    options: tuple[tuple[str, object], ...] = ()

    def option(self, name: str) -> object:
        """The value of an option, None where it is not set."""
        return dict(self.options).get(name)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order."""
        return tuple(stmt for stmt in self.body if isinstance(stmt, Launch))
