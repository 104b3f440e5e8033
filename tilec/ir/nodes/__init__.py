"""Tile IR: the whole of it, as frozen dataclasses over TVM's buffers and scalar expressions.

    Kernel   = params dims body                    one entry of the library
    body     = (Alloc[global.workspace] | Bind | Launch)*
    Launch   = grid, block_vars, threads, Block    one grid of independent blocks
    Block    = Stmt*
    Stmt     = Alloc | Bind | Store | Atomic | Copy | Fill | Gemm | SparseGemm | ScaledGemm | Reduce | Scan
             | Parallel | Pipelined | For | While | If | Break | Continue | Assume | Check | Print
             | Rest, an If for the threads that have not ended
             | what threads say to each other: `tilec.ir.nodes.threads`, and where they wait for each other:
               `tilec.ir.nodes.barriers`
             | what lowering adds: `tilec.backends.cpu.nodes`, `tilec.backends.cuda.nodes`, and what
               ``nodes.py`` has in the folder of each strategy of the latter
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

from typing import TYPE_CHECKING

from tilec.ir.nodes import barriers, threads
from tilec.ir.nodes.access import (
    ATOMIC_KINDS,
    MEMORY_ORDERS,
    SCOPES,
    Alloc,
    AskedLayout,
    Atomic,
    Bind,
    Store,
    is_global,
)
from tilec.ir.nodes.control import (
    FOR_KINDS,
    LOOPS,
    Assume,
    Break,
    Check,
    Continue,
    For,
    If,
    Parallel,
    Pipelined,
    Print,
    Rest,
    While,
)
from tilec.ir.nodes.kernel import Dim, Kernel, Launch, Param, ScalarParam, Strategy, TensorParam
from tilec.ir.nodes.tiles import (
    PRODUCTS,
    REDUCE_KINDS,
    SCAN_KINDS,
    Copy,
    Fill,
    Gemm,
    Reduce,
    ScaledGemm,
    Scan,
    SparseGemm,
    Unscaled,
)
from tilec.ir.stmt import Block, Loc, Region, Stmt, children, every_block, walk, with_children

if TYPE_CHECKING:
    from tilec.ir.stmt import Buffer

__all__ = [
    "ATOMIC_KINDS",
    "LOOPS",
    "Alloc",
    "AskedLayout",
    "Assume",
    "Atomic",
    "Bind",
    "Block",
    "Break",
    "Buffer",
    "COLLECTIVE",
    "Check",
    "Continue",
    "Copy",
    "Dim",
    "FOR_KINDS",
    "Fill",
    "For",
    "Gemm",
    "If",
    "Kernel",
    "Launch",
    "Loc",
    "MEMORY_ORDERS",
    "PRODUCTS",
    "Parallel",
    "Param",
    "Pipelined",
    "Print",
    "REDUCE_KINDS",
    "Reduce",
    "Region",
    "Rest",
    "SCAN_KINDS",
    "SCOPES",
    "ScalarParam",
    "Scan",
    "ScaledGemm",
    "SparseGemm",
    "Stmt",
    "Store",
    "Strategy",
    "TensorParam",
    "Unscaled",
    "While",
    "barriers",
    "children",
    "every_block",
    "is_global",
    "threads",
    "walk",
    "with_children",
]

#: Statements that the threads of a block carry out together.
COLLECTIVE = (Copy, Fill, *PRODUCTS, Reduce, Scan, Parallel)
