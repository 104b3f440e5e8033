"""`verify`: runs every variant of a built library beside an oracle, at the edges of its guards."""

from __future__ import annotations

from tilec.verify.library import verify_library
from tilec.verify.results import CaseResult

__all__ = ["CaseResult", "verify_library"]
