from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilec.package.perfect_hash import EMPTY_SLOT, build

KEYS = st.integers(1, 4).flatmap(
    lambda n: st.sets(st.tuples(*[st.integers(0, 2**40)] * n), min_size=1, max_size=60)
)


@given(KEYS)
def test_every_key_finds_its_index(keys: set[tuple[int, ...]]) -> None:
    ordered = sorted(keys)
    table = build(ordered)
    assert [table.find(key) for key in ordered] == list(range(len(ordered)))


def test_two_thousand_shapes() -> None:
    keys = [(m, 128 * n, 4096) for m in range(1, 51) for n in range(1, 41)]
    table = build(keys)
    assert len(table.slots) <= 4 * len(keys)
    assert all(table.find(key) == index for index, key in enumerate(keys))
    assert table.find((0, 0, 0)) in {EMPTY_SLOT, *range(len(keys))}
