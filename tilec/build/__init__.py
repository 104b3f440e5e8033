"""`build`: from a manifest to a library on disk, reusing what has not changed.

`library` runs it: expand, reuse, compile the rest in parallel, write the package. `records` is what compile
processes bring back.

| folder | holds |
|---|---|
| `elaborated` | from variants to verified kernels; what is wrong with a config before anything is lowered |
| `reuse` | compiled variants, machine code and whole packages that are still good |
| `processes` | compile processes: a pool of them, those that die, hang or are left behind |
| `schedules` | what schedules cost, and which ones `config = "auto"` stands for |
| `answers` | which variant serves a call, who serves a model, which variants a library does without |
| `written` | what is written beside the library, and what people read of a variant |
"""

from __future__ import annotations

from tilec.build.library import BuildResult, Progress, build

__all__ = ["BuildResult", "Progress", "build"]
