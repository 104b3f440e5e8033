"""tilec: tile kernels in Python plus a manifest become one fat shared library with a stable C ABI."""

from __future__ import annotations

__version__ = "0.1.0"
