"""Which code of a library a machine may run: the rule of the C runtime, for a machine that is not at hand."""

from __future__ import annotations

from functools import cache

from tilec.package.detection import arch_needs
from tilec.targets import parse_target


@cache
def may_run(code: str, device: str) -> bool:
    """Whether the machine that the target ``device`` describes runs code of the target ``code``.

    A CPU has the features of its target and no more. A GPU has the capability of its target; ``compute_90``
    stands for a GPU that is newer than every cubin, on which PTX up to that capability remains. Answers
    are kept: a file of shapes asks the same few pairs for every call."""
    wanted, given = parse_target(code), parse_target(device)
    if wanted.gpu is None or given.gpu is None:
        return wanted.is_cpu and given.is_cpu and not arch_needs(code) & ~arch_needs(device)
    if wanted.gpu.capability > given.gpu.capability:
        return False
    if given.gpu.is_ptx or wanted.gpu.is_ptx:
        return wanted.gpu.is_ptx
    if wanted.gpu.exact:
        return wanted.gpu.capability == given.gpu.capability
    return wanted.gpu.capability // 10 == given.gpu.capability // 10
