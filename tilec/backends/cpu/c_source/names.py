"""Identifiers of a C function: TIR's names, made legal and told apart."""

from __future__ import annotations

import re
from typing import Any

from tilec.reserved import C_WORDS


class Names:
    """``of(var)`` gives the same identifier for the same variable, and no other one's."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._used: set[str] = {*C_WORDS, "main"}

    def of(self, var: Any) -> str:
        """The identifier of a variable."""
        if var not in self._names:
            self._names[var] = self._fresh(str(var.name))
        return self._names[var]

    def _fresh(self, name: str) -> str:
        plain = re.sub(r"\W", "_", name)
        plain = plain if re.match(r"[A-Za-z]", plain) else f"v{plain}"
        made, count = plain, 0
        while made in self._used:
            count += 1
            made = f"{plain}_{count}"
        self._used.add(made)
        return made
