"""What was found out about expressions, remembered: passes ask the same of the same ones again and again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

import tvm_ffi

from tilec.ir.exprs import same

if TYPE_CHECKING:
    from tvm.ir import Expr

Answer = TypeVar("Answer")


class Answers(Generic[Answer]):
    """Answers of one kind, by what they are about and the expression."""

    def __init__(self) -> None:
        self._found: dict[tuple[Hashable, int], list[tuple[Expr, Answer]]] = {}

    def of(self, about: Hashable, expr: Expr, find: Callable[[Expr], Answer]) -> Answer:
        """The answer of ``find``, which depends on nothing but ``about``, such as a state of knowledge."""
        found = self._found.setdefault((about, tvm_ffi.structural_hash(expr)), [])
        for earlier, answer in found:
            if same(earlier, expr):
                return answer
        answer = find(expr)
        found.append((expr, answer))
        return answer
