"""The lanes of a vectorised loop, and what has no form in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block


class NotVectorisable(Exception):
    """A loop body that has no vector form; the text is the reason, ``remedy`` what to change."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy or "give iterations the same control flow, and elements of their own"


@dataclass(frozen=True, eq=False)
class Lanes:
    """The loop variable that runs over vector lanes: ``var`` is ``base`` + 0, 1, ..., ``width`` - 1. ``body``
    is what the loop runs."""

    var: Var
    base: Expr
    width: int
    body: Block = ()
