"""Annotations of macro parameters that say what memory a tile lies in: for readers, they check nothing."""

from __future__ import annotations

from typing import Any


class BufferProxy:
    """``tile: T.SharedBuffer((64, 32), "float16")``; the call and the brackets describe, nothing else."""

    def __init__(self, memory: str) -> None:
        self.memory = memory

    def __call__(self, shape: Any = None, dtype: Any = "float32", *rest: Any, **options: Any) -> BufferProxy:
        """The proxy itself."""
        return self

    def __getitem__(self, keys: Any) -> BufferProxy:
        return self

    def __repr__(self) -> str:
        return f"T.{self.memory}Buffer"


SharedBuffer, FragmentBuffer, LocalBuffer = map(BufferProxy, ("Shared", "Fragment", "Local"))
