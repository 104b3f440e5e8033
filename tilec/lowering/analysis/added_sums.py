"""What a product reads of its sums before it adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tvm import tirx

from tilec.ir.exprs import int_value
from tilec.ir.nodes import If, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr


class _Product(Protocol):
    """A product, of a block or of warps."""

    @property
    def clear(self) -> Expr:
        """Whether it puts its sums in place of what is there."""

    @property
    def loc(self) -> Any:
        """Its line."""


def where_added(product: _Product, read: Sequence[Stmt]) -> list[Stmt]:
    """``read``, which brings a product's sums to another tile, where the product adds to them: sums that it
    clears may never have been written."""
    clears = int_value(product.clear)
    if clears is None:
        return [If(tirx.Not(product.clear), tuple(read), loc=product.loc)]
    return [] if clears else [*read]
