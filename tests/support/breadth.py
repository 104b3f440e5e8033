"""Which cases of a test are fast; the others are its breadth: slow, they run with ``ALL=1`` and by CI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def parametrized(
    names: str | tuple[str, ...], cases: Iterable[Any], *, fast: Iterable[Any], ids: Any = None
) -> pytest.MarkDecorator:
    """`pytest.mark.parametrize` of ``names`` over ``cases``, slow but for those in ``fast``."""
    cases, fast = list(cases), list(fast)
    unknown = [case for case in fast if case not in cases]
    assert not unknown, f"no cases of {names}: {unknown}"
    values = [case if case in fast else _slow(names, case) for case in cases]
    return pytest.mark.parametrize(names, values, ids=ids)


def _slow(names: str | tuple[str, ...], case: Any) -> Any:
    values = (case,) if isinstance(names, str) else case
    return pytest.param(*values, marks=pytest.mark.slow)


def diagonal(*lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    """As many cases as the longest list has, of one value of each, so that every value is in one of them."""
    return [tuple(values[at % len(values)] for values in lists) for at in range(max(map(len, lists)))]
