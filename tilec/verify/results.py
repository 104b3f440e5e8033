"""What one case of verification found."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilec.families import host_family

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
#: What inputs hold: ordinary numbers, or NaN and infinities among them.
RANDOM, SPECIAL = "random", "special"


@dataclass(frozen=True)
class CaseResult:
    """One call of one variant. ``outcome``: "passed", "failed" or "skipped". ``oracle``: "reference";
    "interpreter", which says so where it stands in for a reference that raised; "guard" where the call had to
    be refused; "none" where it could not be made here. ``error`` is the largest absolute difference over all
    outputs; ``detail`` says what went wrong or why the case was skipped; ``seconds`` is wall time; ``values``
    is "random", or "special" where inputs hold NaN and infinities; ``raised`` says which function of the
    manifest raised, and what."""

    kernel: str
    variant: int
    target: str
    dims: Mapping[str, int]
    seed: int
    outcome: str
    oracle: str
    device: str = "cpu"
    error: float = 0.0
    detail: str = ""
    seconds: float = 0.0
    values: str = RANDOM
    raised: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong (skipped cases are not passed)."""
        return self.outcome == PASSED

    @property
    def dims_text(self) -> str:
        """``M=17,N=64``."""
        return ",".join(f"{name}={value}" for name, value in self.dims.items())

    def command(self, library: Path, manifest: Path | None = None) -> str:
        """The command line that runs this case again, with the references of ``manifest``."""
        case = f"--kernel {self.kernel} --variant {self.variant} --dims {self.dims_text} --seed {self.seed}"
        if self.values != RANDOM:
            case += f" --values {self.values}"
        if self.device != host_family().device:
            case += " --emulate" if self.device == "emulated" else f" --device {self.device}"
        if manifest is not None:
            case += f" --manifest {shlex.quote(str(manifest))}"
        return f"tilec verify {shlex.quote(str(library))} {case}"
