"""Questions about the CUDA toolchain that kernel files ask."""

from __future__ import annotations

from tilec.unoffered import PACKAGES, names_of

__getattr__ = names_of(__name__, PACKAGES["contrib"])
