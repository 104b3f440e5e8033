"""What device code says to people: printf, and the trap of an assertion that does not hold."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np

from tilec.emulate.group import Group
from tilec.emulate.instructions.registry import function
from tilec.emulate.state.clocks import Hazard

_LENGTHS = re.compile(r"%(?:ll)([du])")


@function("printf", dtype="void")
def printf(g: Group, m: Any, text: str, *values: Any) -> None:
    """A line to stderr for each lane that runs."""
    lanes = [np.broadcast_to(np.asarray(value), (g.count,)) for value in values]
    plain = _LENGTHS.sub(r"%\1", text)
    for lane in range(g.count) if m is None else np.flatnonzero(m):
        line = plain % tuple(one[lane].item() for one in lanes)
        g.state["said"] = line.strip()
        sys.stderr.write(line)


@function("__trap", dtype="void")
def trap(g: Group, m: Any) -> None:
    """The end of the launch, for the reason that was printed before."""
    raise Hazard(f"a thread traps: {g.state.get('said', 'no reason is given')}")
