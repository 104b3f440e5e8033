"""Tile IR: nodes, layouts, guards, printer, parser, verifier, reference interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.packages import names_of_others

if not TYPE_CHECKING:
    __getattr__ = names_of_others(__name__)
