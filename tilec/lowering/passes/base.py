"""What a pass is, and the rewriting of blocks that passes share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tilec.ir.nodes import Block, Kernel, Launch, Stmt, children, with_children

if TYPE_CHECKING:
    from tilec.targets import Target

__all__ = [
    "BlockRewrite",
    "Pass",
    "describe",
    "rewrite_blocks",
    "rewrite_launch_blocks",
    "rewrite_launches",
    "with_children",
]

#: Maps one block whose inner blocks are already rewritten to its replacement.
BlockRewrite = Callable[[Block], Sequence[Stmt]]


@runtime_checkable
class Pass(Protocol):
    """A step from tile IR to tile IR: a frozen dataclass whose fields are its options.

    ``apply`` is pure: it returns a new kernel (or the same one) and never changes what it is given."""

    @property
    def name(self) -> str:
        """What `explain` calls the form after this pass."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The rewritten kernel."""


def rewrite_blocks(block: Block, rewrite: BlockRewrite) -> Block:
    """``block`` with ``rewrite`` applied to every block inside, innermost first, and then to itself."""
    return tuple(rewrite(tuple(_rewrite_inside(stmt, rewrite) for stmt in block)))


def _rewrite_inside(stmt: Stmt, rewrite: BlockRewrite) -> Stmt:
    inner = children(stmt)
    blocks = tuple(rewrite_blocks(block, rewrite) for block in inner)
    if all(_same(old, new) for old, new in zip(inner, blocks, strict=True)):
        return stmt
    return with_children(stmt, blocks)


def _same(old: Block, new: Block) -> bool:
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))


def rewrite_launches(kernel: Kernel, rewrite: Callable[[Launch], Launch]) -> Kernel:
    """``kernel`` with every launch replaced by ``rewrite(launch)``, but those that a strategy has taken: its
    own passes rewrite them."""
    body = (
        rewrite(stmt) if isinstance(stmt, Launch) and stmt.strategy is None else stmt for stmt in kernel.body
    )
    return replace(kernel, body=tuple(body))


def rewrite_launch_blocks(kernel: Kernel, rewrite: BlockRewrite) -> Kernel:
    """``kernel`` with ``rewrite`` applied to every block of every launch, innermost first."""
    return rewrite_launches(kernel, lambda launch: replace(launch, body=rewrite_blocks(launch.body, rewrite)))


def describe(step: Pass) -> dict[str, object]:
    """The options of a pass, for `explain` and cache keys."""
    if not is_dataclass(step):
        return {}
    return {option.name: getattr(step, option.name) for option in fields(step) if option.name != "name"}
