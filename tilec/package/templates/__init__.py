"""The texts that generated files are made of; ``$name`` and ``${name}`` are replaced."""

from __future__ import annotations

import string
from functools import lru_cache
from pathlib import Path

_FOLDER = Path(__file__).parent


def render(template: str, **values: object) -> str:
    """The template file ``<template>.in`` with its placeholders replaced; KeyError if one has no value."""
    text = (_FOLDER / f"{template}.in").read_text(encoding="utf-8")
    return string.Template(text).substitute({name: str(value) for name, value in values.items()})


@lru_cache(maxsize=1)
def template_bytes() -> bytes:
    """All templates, for the build id; they are read once."""
    return b"\0".join(path.read_bytes() for path in sorted(_FOLDER.glob("*.in")))
