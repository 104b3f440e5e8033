"""`build`: from a manifest to a library on disk, reusing what has not changed."""

from __future__ import annotations

from tilec.build.library import BuildResult, Progress, build

__all__ = ["BuildResult", "Progress", "build"]
