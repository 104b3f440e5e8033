"""Imported once by the server that compile processes are forked from: what every compilation needs."""

from __future__ import annotations

import tvm  # noqa: F401
