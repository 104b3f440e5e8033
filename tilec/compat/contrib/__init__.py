"""Questions about the CUDA toolchain that kernel files ask."""

from __future__ import annotations

from tilec.packages import find_aliases, names_of_others

find_aliases(__name__)
__getattr__ = names_of_others(__name__)
