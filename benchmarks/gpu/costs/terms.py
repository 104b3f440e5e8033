"""What the scripts here that fit and balance costs have in common."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path

#: Times of GPUs that costs are fitted to.
MEASURED = Path(__file__).resolve().parent / "measured"
#: Those that ship, with the lists whose costs change.
MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"


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


def asked(
    what: str, names: Collection[str], changed: Path, times: Path | None = None, floors: bool = False
) -> argparse.Namespace:
    """The options of a script that does ``what`` to the lists ``names`` of the file ``changed``: ``times``,
    without which there are files to be given; ``lists``; ``write``; ``floors`` where it can."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("times", type=Path, nargs="*" if times else "+", default=[times] if times else None)
    parser.add_argument("--list", dest="lists", action="append", choices=sorted(names))
    if floors:
        parser.add_argument("--floors", action="store_true", help="give costs floors, and no factors")
    parser.add_argument("--write", action="store_true", help=f"change {changed.name}")
    return parser.parse_args()
