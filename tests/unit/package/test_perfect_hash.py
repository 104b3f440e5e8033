from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilec.package.tables.perfect_hash import EMPTY_SLOT, build, hash_of

KEYS = st.integers(1, 4).flatmap(
    lambda n: st.sets(st.tuples(*[st.integers(0, 2**40)] * n), min_size=1, max_size=60)
)


@given(KEYS)
def test_every_key_finds_its_index(keys: set[tuple[int, ...]]) -> None:
    ordered = sorted(keys)
    hashes = [hash_of(range(len(key)), key) for key in ordered]
    table = build(hashes)
    assert [table.find(value) for value in hashes] == list(range(len(ordered)))


def test_two_thousand_shapes() -> None:
    keys = [(m, 128 * n, 4096) for m in range(1, 51) for n in range(1, 41)]
    hashes = [hash_of((0, 1, 2), key) for key in keys]
    table = build(hashes)
    assert len(table.slots) <= 4 * len(keys)
    assert all(table.find(value) == index for index, value in enumerate(hashes))
    assert table.find(hash_of((0, 1, 2), (0, 0, 0))) in {EMPTY_SLOT, *range(len(keys))}


def test_the_hash_of_some_dims_depends_on_which_they_are() -> None:
    assert hash_of((0, 1), (5, 7)) != hash_of((0, 1), (7, 5))
    assert hash_of((0, 2), (5, 7)) != hash_of((0, 1), (5, 7))
    assert hash_of((0, 2), (5, 7)) == hash_of((2, 0), (7, 5))
