"""``tilec.autotuner.param``: what searches take and give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.inprocess.search.tuned import AutotuneResult, ProfileArgs


@dataclass(frozen=True)
class CompileArgs:
    """The options of `tilec.compile` that a search keeps."""

    out_idx: Any = None
    target: Any = None
    execution_backend: Any = None
    target_host: Any = None
    verbose: Any = None
    pass_configs: Any = None


__all__ = ["AutotuneResult", "CompileArgs", "ProfileArgs"]
