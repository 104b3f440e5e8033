"""Tile IR: nodes, layouts, guards, printer, parser, verifier, reference interpreter."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Names of another compiler's IR, which kernel files import from here, refuse where they are used."""
        unoffered = import_module("tilec.unoffered")
        return unoffered.names_of(__name__, unoffered.EXPLAIN)(name)
