"""Questions about the machine that kernel files ask while they are built."""

from __future__ import annotations

from tilec.packages import find_aliases, names_of_others

find_aliases(__name__)
__getattr__ = names_of_others(__name__)
