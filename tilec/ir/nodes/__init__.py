"""Tile IR: the whole of it, as frozen dataclasses over TVM's buffers and scalar expressions.

    Kernel   = params dims body                    one entry of the library
    body     = (Alloc[global.workspace] | Bind | Launch)*
    Launch   = grid, block_vars, threads, Block    one grid of independent blocks
    Block    = Stmt*
    Stmt     = Alloc | Bind | Store | Atomic | Copy | Fill | Gemm | SparseGemm | Reduce | Scan
             | Parallel | Pipelined | For | While | If | Break | Continue | Assume | Check | Print
             | what threads say to each other: `tilec.ir.nodes.threads`, and where they wait for each other:
               `tilec.ir.nodes.barriers`
             | what lowering adds: ``nodes.py`` in `tilec.backends.cpu` and `tilec.backends.cuda`, and in the
               folder of each strategy of the latter
    Region   = buffer[start : start + extent, ...]

A *buffer* is TVM's buffer variable (``tirx.decl_buffer(shape, dtype, name, scope=...)``); its scope is one of
``SCOPES``. An *expression* is a TVM primitive expression; reading an element is ``tirx.BufferLoad``. Nodes
compare by identity: two kernels are equal when their printed texts are.

Out-of-range rule: a read outside a buffer gives 0, a write outside is dropped, for every statement (Copy,
Parallel, scalar accesses). Passes make that true by guards where it cannot be proved redundant.

To add a statement: (1) its class in this folder, whose types of fields (`tilec.ir.stmt`) give children, uses,
names, rewriting, verification and text; (2) the function of ``T`` in `tilec.language` that makes it, exported
there and listed in `tilec.language.frontend.constructs`; (3) its meaning in `tilec.ir.interp`; (4) what it is
on a CPU and (5) on CUDA, each a pass or a file of emission; (6) rules in `tilec.ir.rules` where it has some.
A subclass is what its base is wherever nothing else is said. One that lowering adds takes its class, the pass
that makes it and the emission.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tilec.ir.hints import Hints
from tilec.ir.layout import Layout
from tilec.ir.roads import Road
from tilec.ir.schedule import Schedule
from tilec.ir.stmt import (
    Aside,
    At,
    Block,
    Defines,
    Loc,
    Region,
    Stmt,
    Updates,
    Writes,
    children,
    walk,
    with_children,
)

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.guards import Guard
    from tilec.ir.stmt import Buffer

__all__ = [
    "Block",
    "Buffer",
    "Loc",
    "Region",
    "Stmt",
    "children",
    "walk",
    "with_children",
]

#: global: a parameter; global.workspace: scratch of one call, shared by its launches (T.alloc_global);
#: global.address: what lies at an address that the kernel was given or has read (T.make_tensor);
#: shared.dyn: per block; local.fragment: a block-level tile in registers (logical shape); local: per thread;
#: local.var: a mutable scalar, shape (1,); shared.barrier: the barriers of `tilec.ir.nodes.barriers`.
SCOPES = (
    "global",
    "global.workspace",
    "global.address",
    "shared.dyn",
    "local.fragment",
    "local",
    "local.var",
    "shared.barrier",
)

REDUCE_KINDS = ("sum", "abssum", "max", "min", "absmax", "bitand", "bitor", "bitxor")
SCAN_KINDS = ("sum", "max")
ATOMIC_KINDS = ("add", "max", "min", "or", "load", "store")
MEMORY_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")
FOR_KINDS = ("serial", "unroll", "vectorized")


@dataclass(frozen=True)
class AskedLayout:
    """The ``layout`` that an author wants for a tile (T.annotate_layout), said in the line ``loc``."""

    layout: Layout
    loc: Aside[Loc | None] = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class Alloc(Stmt):
    """Storage for ``buffer``; lives to the end of the enclosing block. Contents undefined (local.var: zero,
    or ``init``; global.address: memory that is there, at the address ``init``, an int64). ``layout`` maps
    logical indices to a physical offset (None: row-major); ``place`` is where lowering put it: "stack",
    ("scratch", byte offset) or "registers" (no memory), "address" for a global.address; None before.
    ``asked`` is what the lowering of a GPU takes for ``layout`` where the statements on the tile can obey."""

    syntax = ""

    buffer: Defines[Buffer]
    init: Expr | None = None
    layout: Layout | None = None
    place: str | tuple[str, int] | None = None
    asked: AskedLayout | None = None


@dataclass(frozen=True, eq=False)
class Bind(Stmt):
    """An immutable scalar: ``value`` is evaluated here, once."""

    syntax = ""

    var: Defines[Var]
    value: Expr


@dataclass(frozen=True, eq=False)
class Store(Stmt):
    """``buffer[indices] = value``; the value has the buffer's dtype (the frontend casts)."""

    syntax = ""

    buffer: Writes[Buffer]
    indices: At[tuple[Expr, ...]]
    value: Expr


@dataclass(frozen=True, eq=False)
class Atomic(Stmt):
    """``buffer[indices] = combine(buffer[indices], value)`` as one step that no other thread or block comes
    between; once per iteration of the loops around it. kind: one of ATOMIC_KINDS; max and min of floats give
    the operand that is a number. The value has the buffer's dtype. ``prev``, where there is one, is defined
    here as what the element held before (0 outside of the buffer). ``order``: one of MEMORY_ORDERS. "store"
    leaves the value in the element, "load" what is there: its value counts for nothing, ``prev`` is there."""

    syntax = "atomic_{kind}(buffer[indices], value, order=)"
    kinds = ATOMIC_KINDS

    kind: str
    buffer: Updates[Buffer]
    indices: At[tuple[Expr, ...]]
    value: Expr
    prev: Defines[Var | None] = None
    order: str = "relaxed"

    @staticmethod
    def declared(buffer: Buffer, **_: object) -> tuple[str, ...]:
        """The dtype of ``prev``."""
        return (str(buffer.dtype),)

    @property
    def update(self) -> str:
        """Loads and stores are no updates."""
        return {"load": "reads", "store": "writes"}.get(self.kind, "updates")


@dataclass(frozen=True, eq=False)
class Copy(Stmt):
    """``dst[...] = cast(src[...])`` elementwise. Extent-1 axes aside, both sides have the same extents in
    order; they are already resolved by the rules of the language (the faster memory decides)."""

    syntax = "copy(src, dst, hints=)"

    src: Region
    dst: Writes[Region]
    hints: Hints = field(default_factory=Hints)


@dataclass(frozen=True, eq=False)
class Fill(Stmt):
    """``dst[...] = value`` (a scalar of the buffer's dtype)."""

    dst: Writes[Region]
    value: Expr


@dataclass(frozen=True, eq=False)
class Gemm(Stmt):
    """``c = (clear ? 0 : c) + op(a) @ op(b)``. Regions have extent-1 leading axes beyond the last two.
    a: (M, K) or (K, M) if trans_a; b: (K, N) or (N, K) if trans_b; c: (M, N). ``clear`` is a bool
    expression."""

    syntax = "gemm(a, b, c, trans_a=, trans_b=, clear=, policy=)"

    a: Region
    b: Region
    c: Updates[Region]
    trans_a: bool
    trans_b: bool
    clear: Expr
    policy: int = 0


@dataclass(frozen=True, eq=False)
class SparseGemm(Stmt):
    """A Gemm whose left operand has two values in each group of four along K: ``a`` holds those, (M, K/2),
    ``e`` which ones they are, (M, K/w) integers of w bits, row by row a string of bits: four for each group
    from the lowest on, two for the place of the first value and two for that of the second, behind it
    (PTX ISA, "Sparse matrix storage"). ``trans_a`` and ``trans_e``: stored (K/2, M), (K/w, M)."""

    syntax = "gemm_sp(a, e, b, c, trans_a=, trans_e=, trans_b=, clear=, policy=)"

    a: Region
    e: Region
    b: Region
    c: Updates[Region]
    trans_a: bool
    trans_e: bool
    trans_b: bool
    clear: Expr
    policy: int = 0


#: Products of tiles.
PRODUCTS = (Gemm, SparseGemm)


@dataclass(frozen=True, eq=False)
class Reduce(Stmt):
    """``dst = combine(clear ? identity : dst, reduction of src along axis)``; src elements are cast to dst's
    dtype first. dst has src's extents with ``axis`` removed, or 1 there. kind: one of REDUCE_KINDS."""

    syntax = "reduce_{kind}(src, dst, axis=, clear=!, nan_propagate=)"
    kinds = REDUCE_KINDS

    kind: str
    src: Region
    dst: Updates[Region]
    axis: int
    clear: bool
    nan_propagate: bool = False

    @property
    def update(self) -> str:
        """What is cleared first is not read."""
        return "writes" if self.clear else "updates"


@dataclass(frozen=True, eq=False)
class Scan(Stmt):
    """``dst`` = the inclusive scan of ``src`` along ``axis``: element k combines elements 0 to k, with
    ``reverse`` elements k to the last. Elements of src are cast to dst's dtype first; both regions have the
    same extents and are one and the same or do not overlap. kind: one of SCAN_KINDS; max ignores NaN."""

    syntax = "scan_{kind}(src, dst, axis=, reverse=)"
    kinds = SCAN_KINDS

    kind: str
    src: Region
    dst: Writes[Region]
    axis: int
    reverse: bool = False


@dataclass(frozen=True, eq=False)
class Parallel(Stmt):
    """Independent iterations ``vars[d] in [0, extents[d])``, each exactly once, in any order; an accumulation
    into a fragment element shared by several iterations counts each once."""

    syntax = "parallel(*extents, dtypes=, hints=)"

    vars: Defines[tuple[Var, ...]]
    extents: tuple[int | Expr, ...]
    body: Block
    hints: Hints = field(default_factory=Hints)


#: Statements that the threads of a block carry out together.
COLLECTIVE = (Copy, Fill, *PRODUCTS, Reduce, Scan, Parallel)


@dataclass(frozen=True, eq=False)
class Pipelined(Stmt):
    """A sequential loop ``var in [start, stop)`` whose copies may be multi-buffered ``num_stages`` deep;
    results never depend on it. ``stage`` and ``order`` are the author's explicit schedule, or None."""

    syntax = "pipelined(start, stop, num_stages=, stage=, order=, dtypes=)"

    var: Defines[Var]
    start: Expr
    stop: Expr
    body: Block
    num_stages: int = 0
    stage: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class For(Stmt):
    """A sequential loop ``for var in range(start, stop, step)``; kind: one of FOR_KINDS."""

    syntax = "{kind}(start, stop, step)"
    kinds = FOR_KINDS

    kind: str
    var: Defines[Var]
    start: Expr
    stop: Expr
    step: Expr
    body: Block


@dataclass(frozen=True, eq=False)
class While(Stmt):
    """``cond`` is evaluated before each trip."""

    syntax = ""

    cond: Expr
    body: Block


@dataclass(frozen=True, eq=False)
class If(Stmt):
    """A runtime branch."""

    syntax = ""

    cond: Expr
    then: Block
    orelse: Block = ()


@dataclass(frozen=True, eq=False)
class Break(Stmt):
    """Leaves the innermost For, Pipelined or While."""

    syntax = ""


@dataclass(frozen=True, eq=False)
class Continue(Stmt):
    """Ends this trip of the innermost For, Pipelined, While or Parallel."""

    syntax = ""


@dataclass(frozen=True, eq=False)
class Assume(Stmt):
    """A fact that the compiler may use; the interpreter checks it."""

    cond: Expr


@dataclass(frozen=True, eq=False)
class Check(Stmt):
    """A condition that has to hold: where it does not, the call fails with ``text`` (a GPU traps)."""

    syntax = "check(cond, text!r)"

    cond: Expr
    text: str


@dataclass(frozen=True, eq=False)
class Print(Stmt):
    """A line for people: ``text`` with a ``{}`` for every value, in the form of `str.format`. Once per
    iteration of the Parallel around it; outside of one, once per thread on a GPU and once per block
    elsewhere. Values are scalars."""

    syntax = "print(text!r, *values)"

    text: str
    values: tuple[Expr, ...] = ()


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
    author; no printed text has them."""

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
