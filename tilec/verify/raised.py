"""Functions of a manifest that raise in every case of a kernel: they check nothing.

One that raises in some cases is narrower than its kernel; the interpreter alone stands for the rest, or they
are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.verify.results import FAILED, RANDOM, CaseResult


def fail_unanswered(results: Sequence[CaseResult]) -> list[CaseResult]:
    """``results``, where the first case of a kernel has failed whose functions raised in all of its cases."""
    found = list(results)
    for name in dict.fromkeys(result.kernel for result in results):
        places = [at for at, result in enumerate(results) if result.kernel == name and _asks(result)]
        if places and all(results[at].raised for at in places):
            first = results[places[0]]
            found[places[0]] = replace(first, outcome=FAILED, detail=_detail(first))
    return found


def _asks(result: CaseResult) -> bool:
    """Whether a case asks the functions of a manifest for anything: of NaN and infinities the interpreter
    alone says what becomes, and calls outside of the guards have no outputs."""
    return result.values == RANDOM and result.oracle not in ("guard", "none")


def _detail(result: CaseResult) -> str:
    others = f"; {result.detail}" if result.detail not in ("", result.raised) else ""
    return f"in every case {result.raised}{others}"
