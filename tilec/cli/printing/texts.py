"""Words for variants and answers that more than one command prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilec.portable.dims import dims_text
from tilec.spelling import counted

if TYPE_CHECKING:
    from tilec.build.answers.dispatch import Service
    from tilec.manifest import Plan, Variant


def guards_text(variant: Variant) -> str:
    """`M=1..64 N=4096 K=dynamic`."""
    return dims_text(variant.dims) or "-"


def restrictions_text(variant: Variant) -> str:
    """The same without what is dynamic: `M=1..64 N=4096`; "any" if all is."""
    found = [f"{name}={guard}" for name, guard in variant.dims.items() if not guard.is_dynamic]
    return " ".join(found) or "any"


def server_text(target: str, found: Service, guards: Callable[[Variant], str] = guards_text) -> str:
    """The guards of the variant that serves, and its target where that is another one."""
    if found.variant is None:
        return "-"
    code = found.variant.target.name
    return guards(found.variant) + ("" if code == target else f" of {code}")


def excused(plan: Plan, strict: bool) -> frozenset[str]:
    """Kernels that may miss calls: those that say so, unless every miss counts."""
    return frozenset(kernel.name for kernel in plan.kernels if kernel.entry.fallback == "none" and not strict)


def misses_text(misses: int, excused_misses: int, answers: int) -> str:
    """What the last line of `check` says of its answers, one for each call and target."""
    verb = "is" if misses == 1 else "are"
    note = f", {excused_misses} of kernels that may refuse calls" if excused_misses else ""
    return f"{misses} of {counted(answers, 'answer')} {verb} a miss{note}"
