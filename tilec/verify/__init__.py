"""Checks a built library: every variant of the shipped binary, at the edges of its guards."""

from __future__ import annotations

from tilec.verify.library import Outcome, verify_library

__all__ = ["Outcome", "verify_library"]
