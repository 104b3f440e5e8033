"""Storage, scalars and single elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilec.ir.layout import Layout
from tilec.ir.stmt import Aside, At, Defines, Loc, Stmt, Updates, Writes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer

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

ATOMIC_KINDS = ("add", "max", "min", "or", "load", "store")
MEMORY_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")


def is_global(buffer: Buffer) -> bool:
    """Whether a buffer lies in memory that all blocks reach: a tensor, a workspace, what is at an address."""
    return bool(buffer.scope().startswith("global"))


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
    ("scratch", byte offset), "scratch" while that is open, "registers" (no memory), "address" for a
    global.address; None before.
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
