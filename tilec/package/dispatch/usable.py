"""Which code of a library a machine may run: the rule of the C runtime, for a machine that is not at hand."""

from __future__ import annotations

from functools import cache

from tilec.families import family_of
from tilec.targets import parse_target


@cache
def may_run(code: str, device: str) -> bool:
    """Whether the machine that the target ``device`` describes runs code of the target ``code``. Answers are
    kept: a file of shapes asks the same few pairs for every call."""
    wanted, given = parse_target(code), parse_target(device)
    return wanted.family == given.family and family_of(wanted).may_run(wanted, given)
