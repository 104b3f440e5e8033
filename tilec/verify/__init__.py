"""`verify`: looks at a library's file, and runs every variant beside an oracle at the edges of its guards."""

from __future__ import annotations

from tilec.verify.audit import Finding, audit_library
from tilec.verify.library import verify_library
from tilec.verify.results import CaseResult

__all__ = ["CaseResult", "Finding", "audit_library", "verify_library"]
