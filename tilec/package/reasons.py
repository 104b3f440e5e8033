"""Why dispatch takes or rejects each variant of a library, told from its metadata alone.

The words are those of ``explain`` in the C ABI (runtime_c/src/explain.c); a test holds the two together. The
driver's version plays no part here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.costs import cheapest, cost
from tilec.dtypes import lookup
from tilec.families import Family, family_of
from tilec.package.metadata import read_guards
from tilec.package.usable import may_run
from tilec.targets import parse_target


@dataclass(frozen=True)
class Reason:
    """What becomes of the variant ``id`` with code for ``target``: ``text`` is "taken" for at most one."""

    id: int
    target: str
    text: str

    def __str__(self) -> str:
        return f"variant {self.id} ({self.target}): {self.text}"


def reasons(
    kernel: Mapping[str, Any], device: str, dims: Mapping[str, int], units: int, forced: Sequence[int] = ()
) -> tuple[Reason, ...]:
    """One per variant of ``kernel`` (of a library's metadata), in dispatch order, on a machine that the
    target ``device`` describes, which has ``units`` multiprocessors or cores. ``dims`` gives every dim of the
    kernel; ``forced``: the ids that TILEC_FORCE_VARIANT names there."""
    found: list[Reason] = []
    taken = None
    only = _forced(kernel, device, forced)
    for variant in kernel["variants"]:
        text = _rejection(kernel, variant, device, dims, only)
        if not text:
            taken = taken or (variant if only is not None else _cheapest(kernel, variant, dims, units))
            text = _admitted(variant, taken, dims, units)
        found.append(Reason(variant["id"], variant["target"], text))
    return tuple(found)


def _calls(variant: Mapping[str, Any]) -> tuple[object, ...]:
    """What variants with costs must share to serve the same calls."""
    return (variant["target"], variant["guards"], variant["align"])


def _cheapest(
    kernel: Mapping[str, Any], first: Mapping[str, Any], dims: Mapping[str, int], units: int
) -> Mapping[str, Any]:
    """Of the variants that serve the same calls as ``first``, the one of least cost."""
    if "cost" not in first:
        return first
    same = [one for one in kernel["variants"] if "cost" in one and _calls(one) == _calls(first)]
    found: Mapping[str, Any] = same[cheapest([one["cost"] for one in same], dims, units)]
    return found


def _admitted(
    variant: Mapping[str, Any], taken: Mapping[str, Any], dims: Mapping[str, int], units: int
) -> str:
    """What is said of a variant that admits."""
    estimate = f", {cost(variant['cost'], dims, units):.1f} us" if "cost" in variant else ""
    if variant is taken:
        return f"taken{estimate}"
    if estimate and "cost" in taken and _calls(variant) == _calls(taken):
        return f"admits too{estimate}, but variant {taken['id']} costs less"
    return f"admits too, but variant {taken['id']} comes first"


def _rejection(
    kernel: Mapping[str, Any],
    variant: Mapping[str, Any],
    device: str,
    dims: Mapping[str, int],
    only: int | None,
) -> str:
    """Why the variant cannot serve; empty when it can."""
    wanted, given = _family(variant["target"]), _family(device)
    if wanted != given:
        return f"rejected: it is for a {wanted.word}"
    if not may_run(variant["target"], device):
        return f"rejected: this {given.word} may not run it"
    if only not in (None, variant["id"]):
        return f"rejected: TILEC_FORCE_VARIANT names {only}"
    for name, guard in read_guards(variant).items():
        broken = guard.rejection(dims[name])
        if broken:
            return f"rejected: {name} = {dims[name]} {broken}"
    return _unaligned(kernel, variant)


def _forced(kernel: Mapping[str, Any], device: str, forced: Sequence[int]) -> int | None:
    """The first variant for this kind of device that is named."""
    named = (each for each in kernel["variants"] if each["id"] in forced)
    return next((each["id"] for each in named if _family(each["target"]) == _family(device)), None)


def _unaligned(kernel: Mapping[str, Any], variant: Mapping[str, Any]) -> str:
    """Why alignment rejects the variant: nothing but that of the element types is known ahead of a call."""
    known = {param["name"]: lookup(param["dtype"]).bytes for param in kernel["params"]}
    for name, size in variant["align"].items():
        if size > known[name]:
            return f"rejected: {name} is not known to be aligned to {size} bytes"
    return ""


def _family(target: str) -> Family:
    return family_of(parse_target(target))
