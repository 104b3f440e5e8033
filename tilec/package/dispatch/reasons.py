"""Why dispatch takes or rejects each variant of a library, told from its metadata alone.

The words are those of ``explain`` in the C ABI (runtime_c/src/dispatch/explain.c); a test holds the two
together. The driver's version plays no part here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.costs import kept_cost
from tilec.dtypes import lookup
from tilec.families import Family, family_of
from tilec.package.dispatch.choices import Calls, calls, choices, several, taken
from tilec.package.dispatch.starts import VECTOR_BYTES
from tilec.package.dispatch.usable import may_run
from tilec.package.library.metadata import read_guards, read_listed
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
    variants, only = kernel["variants"], _forced(kernel, device, forced)
    rejected = [_rejection(kernel, variant, device, dims, only) for variant in variants]
    texts = rejected
    if not all(rejected):
        features = parse_target(device).features
        choice = _Choice(variants, rejected, only is not None, dims, units, features)
        texts = [text or choice.admitted(at) for at, text in enumerate(rejected)]
    return tuple(
        Reason(variant["id"], variant["target"], text) for variant, text in zip(variants, texts, strict=True)
    )


class _Choice:
    """What is said of variants that admit a call, at least one: ``rejected`` says of each why it does not,
    and of all but one where that ``is_forced``."""

    def __init__(
        self,
        variants: Sequence[Mapping[str, Any]],
        rejected: Sequence[str],
        is_forced: bool,
        dims: Mapping[str, int],
        units: int,
        features: Collection[str],
    ) -> None:
        self._variants, self._dims, self._units, self._features = variants, dims, units, features
        self._choices = choices([_calls(one) for one in variants])
        first = next(at for at, text in enumerate(rejected) if not text)
        self._compared = self._choices[first]
        costs = [one.get("cost", "") for one in variants]
        chosen = taken(self._compared, lambda at: not rejected[at], costs, dims, units, features)
        self._taken = first if is_forced else chosen

    def admitted(self, at: int) -> str:
        """Of number ``at``."""
        if at == self._taken:
            return f"taken{self._estimate(at)}"
        winner = f"variant {self._variants[self._taken]['id']}"
        if any(at in run for run in self._compared):
            return f"admits too{self._estimate(at)}, but {winner} costs less"
        return f"admits too, but {winner} comes first"

    def _estimate(self, at: int) -> str:
        if not several(self._choices[at]):
            return ""
        text = self._variants[at]["cost"]
        return f", {kept_cost(text, self._dims, self._units, self._features):.1f} us"


def _calls(variant: Mapping[str, Any]) -> Calls:
    guards, align = read_guards(variant), tuple(variant["align"].items())
    return calls(variant["target"], guards, read_listed(variant), align, variant.get("cost", ""))


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
    """Why alignment rejects the variant: ahead of a call it is known of the element types on a CPU, and on a
    device what tensors usually start at."""
    usual = 0 if _family(variant["target"]).on_host else VECTOR_BYTES
    known = {param["name"]: max(lookup(param["dtype"]).bytes, usual) for param in kernel["params"]}
    for name, size in variant["align"].items():
        if size > known[name]:
            return f"rejected: {name} is not known to be aligned to {size} bytes"
    return ""


def _family(target: str) -> Family:
    return family_of(parse_target(target))
