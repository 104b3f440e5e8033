"""The error for code that a compiler refuses, or that breaks what its target promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.errors import CompileError

if TYPE_CHECKING:
    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target

_LOOK = "`tilec explain --stage tir` shows what was compiled"


def failure(
    lowered: LoweredKernel, target: Target, problem: Exception | str, remedy: str = _LOOK
) -> CompileError:
    """Code generation of ``lowered`` failed; ``problem`` is the reason, a compiler's own words or ours."""
    return CompileError(
        f"code generation of {lowered.name!r} for {target.name} failed",
        place=next((launch.place for launch in lowered.launches), None),
        why=str(problem).strip(),
        remedy=remedy,
    )
