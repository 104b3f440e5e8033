"""What costs that the scripts here fit have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class Sum(ABC):
    """A cost as a sum of terms, for `tilec.build.schedules.fit`."""

    @abstractmethod
    def terms(self, held: int) -> tuple[str, ...]:
        """The texts whose factors are fitted, for so many blocks on a multiprocessor."""

    def cost(self, held: int, factors: Sequence[float]) -> str:
        """The sum of `terms` with such factors; those of 0 are left out."""
        told = zip(factors, self.terms(held), strict=True)
        parts = [f"{factor:.4g}" + ("" if term == "1" else f" * {term}") for factor, term in told if factor]
        return " + ".join(parts) or "0"
